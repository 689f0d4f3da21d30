#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# run.sh - moves data by what stands above the verbs, and proves by the packets that it was RDMA
#
#   run.sh [APP…]     without APP: all of them, each a file APP.sh here
#
# Two VMs (testenv/testenv.sh) with more kernel modules than the samples need: the client has
# 10.0.1.2, the server 10.0.1.1. APP.sh says what to install (`needs`, a group of
# testenv/deps.sh) and has these functions; data is 256 KiB that nobody can guess:
#   serve, unserve        on the server: make ready, undo
#   join, leave           on the client: connect, undo
#   put FILE, get FILE    on the client: write the data to the server; read it back
# Between them the client sends a mark, a UDP packet to port 9, so that proof.py knows which
# packets belong to which step. The capture stays in results/above/APP.pcap.
#
#   BY=tcp   the same over TCP, where APP can: all the data arrives, and the verdict is FAIL
#   BLOCK=4096        bytes of one read or write; nvme and iser
#   SPOIL="COMMAND"   what the client does between connecting and writing
# Exit status: 0 all passed, 1 one failed, 77 none failed, one could not run.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
server=10.0.1.1
bytes=262144
needs=''
all='nvme nfs iser srp smc rds rsockets libfabric ucx mpi'
# For all of them one image, beside the samples' own, which stays as small as it is.
modules='brd nvme_rdma nvmet_rdma nvme_tcp nvmet_tcp nfsv4 nfsd rpcrdma sd_mod ib_iser ib_isert ib_srp ib_srpt'
modules+=' target_core_iblock iscsi_tcp crc32c_generic rds_rdma rds_tcp'
counter=/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts

# mark STEP - the packets from here on belong to it
mark() { for _ in 1 2 3; do echo "$1" >"/dev/udp/$server/9"; done; } # thrice: one may be lost
there() { "$root/testenv/there.sh" "$@"; }
# An APP has its own of these, where it needs one; prepare: on this machine, before the VMs start.
prepare() { :; }
serve() { :; }
join() { :; }
leave() { :; }
unserve() { :; }
# until_true SECONDS COMMAND…
until_true() {
	local end=$((SECONDS + $1))
	until "${@:2}"; do
		((SECONDS < end)) || { echo "run.sh: not in $1 s: ${*:2}" >&2 && return 1; }
		sleep 0.1
	done
}
# has MODULE - 77 and a sentence, where this kernel has not loaded it
has() {
	[ -d "/sys/module/$1" ] || {
		echo "run.sh: this kernel ($(uname -r)) has no module $1" >&2
		exit 77
	}
}

# step NAME COMMAND… - one step of an APP; the first that fails is the verdict
step() {
	local status
	mark "$1"
	"${@:2}" && return
	status=$?
	[ $status != 77 ] || exit 77
	why=${why:-"${*:2} ended with status $status"}
	return 1
}

# steps DATA BACK - connects, writes, reads back and compares
steps() {
	step connect there "$here/run.sh" --at "$app" serve && step connect join || return
	if [ -n "${SPOIL:-}" ]; then bash -c "$SPOIL"; fi
	step write put "$1" && step read get "$2" || return
	[ "${compares:-}" = itself ] || cmp "$1" "$2" || { why='other data came back' && return 1; }
}

# client - in the first VM: all steps, then what the counters say
client() {
	local data=/run/data sent start=$EPOCHREALTIME status why=''
	head -c $bytes /dev/urandom >$data
	sent=$(cat $counter)
	steps $data /run/back
	status=$?
	# What was set up is undone, also where something failed on the way.
	step leave leave || status=1
	step leave there "$here/run.sh" --at "$app" unserve || status=1
	mark end
	sleep 0.2 # the last packets are on their way
	echo "sent_pkts=$(($(cat $counter) - sent)) us=$((${EPOCHREALTIME/./} - ${start/./})) status=$status why=$why" \
		>"$root/results/above/$app.said"
	return $status
}

# outside - on this machine: one APP
outside() {
	local pcap=$root/results/above/$app.pcap said=$root/results/above/$app.said status
	. "$here/$app.sh"
	"$root/testenv/deps.sh" build vm wire "$needs" || return 1
	prepare || return 1
	mkdir -p "$root/results/above"
	rm -f "$pcap" "$said"
	cd "$here" || return
	TESTENV=vm TESTENV_HOSTS=2 TESTENV_MODULES=$modules CAPTURE="ip or ip6" TESTENV_LIMIT=${TESTENV_LIMIT:-150} \
		TESTENV_PASS='BY BLOCK SPOIL CAPTURE' "$root/testenv/testenv.sh" run \
		"$root/testenv/capture.sh" "$pcap" "$here/run.sh" --client "$app" >&2
	status=$?
	if [ -s "$said" ]; then
		"$here/proof.py" "$app" "$pcap" $bytes "$said"
	else
		[ $status = 77 ] || status=1
		echo "RESULT above=$app status=$([ $status = 77 ] && echo SKIP || echo FAIL) reason=see-above"
		return $status
	fi
}

case ${1:-} in
--client | --at)
	app=$2
	. "$here/$app.sh"
	if [ "$1" = --at ]; then "$3"; else client; fi
	exit
	;;
esac
[ $# -gt 0 ] || set -- $all
worst=0
for app; do
	[[ " $all " = *" $app "* ]] || { echo "run.sh: no APP $app: $all" >&2 && exit 2; }
	(outside)
	status=$?
	if [ $worst = 0 ] || [ $status = 1 ]; then worst=$status; fi
done
exit $worst
