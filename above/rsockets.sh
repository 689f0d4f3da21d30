# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# rsockets: a library with the calls of sockets; rcopy copies a file by them.
# client WRITE IMM 16 | the receiver tells where there is room again (credits) | 告诉对方哪里又有空间（信用）
# server WRITE IMM 16 | the receiver tells where there is room again (credits) | 告诉对方哪里又有空间（信用）
# client WRITE IMM 0 | no more data comes | 不再有数据
# server WRITE IMM 0 | no more data comes | 不再有数据
# client WRITE IMM + | bytes of the stream, into the receiver's ring | 字节流，写进接收方的环形缓冲区
# server WRITE IMM + | bytes of the stream, into the receiver's ring | 字节流，写进接收方的环形缓冲区
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
