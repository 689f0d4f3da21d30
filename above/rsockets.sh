# SPDX-License-Identifier: BSD-2-Clause
# shellcheck shell=bash disable=SC2034,SC2086,SC2154 # the names are run.sh's
# rsockets: a library with the calls of sockets; rcopy copies a file by them.
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
