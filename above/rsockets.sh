# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2154
# rsockets: a library with the calls of sockets; rcopy copies a file by them.
# client WRITE IMM + | bytes of the stream go into the ring of the receiver, the immediate says how many | 字节流写进接收方的环形缓冲区，立即数说明有多少
# server WRITE IMM + | the same from the server | 服务器也这样做
# client WRITE + | the sender tells where there is room again | 告诉对方哪里又有空间
# server WRITE + | the receiver tells where there is room again | 告诉对方哪里又有空间
needs=above-rsockets

# setsid: it stays when the command that starts it has ended.
serve() {
	setsid rcopy >/dev/null 2>&1 </dev/null &
	until_true 20 pgrep -x rcopy >/dev/null
}
join() { serve; }
# Refused, as long as the other one does not listen yet.
put() { until_true 20 rcopy "$1" $server:/run/stored >/dev/null; }
get() { until_true 20 there rcopy /run/stored "10.0.1.2:$1" >/dev/null; }
leave() { pkill -x rcopy; }
unserve() { pkill -x rcopy; }
