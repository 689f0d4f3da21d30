# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# RDS: datagrams that arrive, in order, by a socket of the kernel; rds.py sends them.
needs=above-rds

serve() {
	has rds_rdma
	setsid "$here/rds.py" serve >/dev/null 2>&1 </dev/null &
	echo $! >/run/rds.pid
	until_true 20 [ -e /run/rds.ready ]
}
join() { has rds_rdma; }
put() { "$here/rds.py" put "$1"; }
get() { "$here/rds.py" get "$1" $bytes; }
leave() { :; }
unserve() { kill "$(cat /run/rds.pid)"; }
