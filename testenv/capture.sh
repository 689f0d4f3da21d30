#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# capture.sh - on one of two hosts: runs a command and keeps what RoCE packets the wire
# carries meanwhile, whole
#
#   capture.sh FILE.pcap CMD [ARG…]   exit status: CMD's
#   CAPTURE=FILTER   other packets than RoCE v2's, in tcpdump's words
set -uo pipefail
file=$1
shift
# Room for 7000 packets: a slot of the buffer, 64 MiB, is as long as the longest may be.
exec {said}< <(exec tcpdump -i eth0 -s 9216 -B 65536 --immediate-mode -U -Z root -w - "${CAPTURE:-udp port 4791}" 2>&1 >"$file")
tcpdump=$! log=''
until [[ $log = *"tcpdump: listening"* ]]; do
	IFS= read -r line <&"$said" || { echo "$log" >&2 && exit 1; }
	log+=$line$'\n'
done
"$@"
status=$?
sleep 0.5 # the last packets are on their way
kill -INT "$tcpdump"
log+=$(cat <&"$said")
if [[ $log != *$'\n0 packets dropped by kernel'* ]]; then
	printf '%s\n' "capture.sh: packets are missing in $file:" "$log" >&2
	[ $status -ne 0 ] || status=1
fi
exit $status
