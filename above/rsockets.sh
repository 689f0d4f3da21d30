# SPDX-License-Identifier: BSD-2-Clause
# rsockets: a library with the calls of sockets; rcopy copies a file by them.
needs=above-rsockets

# setsid: it stays when the command that starts it has ended.
serve() {
	setsid rcopy >/dev/null 2>&1 </dev/null &
	echo $! >/run/rcopy.pid
	until_true 20 grep -qx rcopy "/proc/$!/comm" # then setsid has done its work
}
join() { serve; }
# Refused, as long as the other one does not listen yet.
put() { until_true 20 rcopy "$1" $server:/run/stored >/dev/null; }
get() { until_true 20 there rcopy /run/stored "10.0.1.2:$1" >/dev/null; }
leave() { kill "$(cat /run/rcopy.pid)"; }
unserve() { leave; }
