# SPDX-License-Identifier: BSD-2-Clause
# RDS: datagrams that arrive, in order, by a socket of the kernel; rds.py sends them.
needs=above-rds
program=$here/rds.py

serve() {
	join
	setsid "$program" serve >/dev/null 2>&1 </dev/null &
	echo $! >/run/serve.pid
	until_true 20 [ -e /run/ready ]
}
join() { has rds_rdma; }
put() { "$program" put "$1"; }
get() { "$program" get "$1" $bytes; }
unserve() { kill "$(cat /run/serve.pid)"; }
