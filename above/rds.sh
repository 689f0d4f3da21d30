# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# RDS: datagrams that arrive, in order, by a socket of the kernel; rds.py sends them.
# client SEND 4144 | 4096 bytes behind RDS's header of 48: a datagram, or half of the map of the ports that are full | 48 字节的 RDS 头后面是 4096 字节：数据报，或者已满端口位图的一半
# server SEND 4144 | 4096 bytes behind RDS's header of 48: a datagram, or half of the map of the ports that are full | 48 字节的 RDS 头后面是 4096 字节：数据报，或者已满端口位图的一半
# client SEND + | a header alone, which acknowledges, or a short message | 只有头（确认），或者一条短消息
# server SEND + | a header alone, which acknowledges, or a short message | 只有头（确认），或者一条短消息
needs=above-rds

serve() {
	has rds_rdma
	setsid "$here/rds.py" serve >/dev/null 2>&1 </dev/null &
	until_true 20 [ -e /run/rds.ready ]
}
join() { has rds_rdma; }
put() { "$here/rds.py" put "$1"; }
get() { "$here/rds.py" get "$1" $bytes; }
leave() { :; }
unserve() { pkill -f 'rds.py serve'; }
