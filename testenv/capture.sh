#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# capture.sh - on one of two hosts: runs a command and keeps what RoCE packets the wire
# carries meanwhile, whole
#
#   capture.sh FILE.pcap CMD [ARG…]   exit status: CMD's
set -uo pipefail
file=$1
shift
log=$(mktemp)
# Room for 7000 packets: a slot of the buffer, 64 MiB, is as long as the longest may be.
tcpdump -i eth0 -s 9216 -B 65536 --immediate-mode -U -Z root -w - udp port 4791 >"$file" 2>"$log" &
tcpdump=$!
until grep -q '^tcpdump: listening' "$log"; do
	kill -0 "$tcpdump" 2>/dev/null || { cat "$log" >&2 && exit 1; }
	sleep 0.1
done
"$@"
status=$?
sleep 0.5 # the last packets are on their way
kill -INT "$tcpdump"
wait "$tcpdump"
if ! grep -q '^0 packets dropped by kernel' "$log"; then
	{ echo "capture.sh: packets are missing in $file:" && cat "$log"; } >&2
	[ $status -ne 0 ] || status=1
fi
rm -f "$log"
exit $status
