#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Our contiguous transfers beside perftest's, in the same boot: same size, depth, path MTU
# GID and device, medians of three runs in turn. Prints both and the ratio, ours to
# perftest's.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C
rounds=3
depth=16

median() { sort -g | sed -n "$(((rounds + 1) / 2))p"; }

# perftest TOOL SIZE COUNT [OPTION…] - its line of figures
perftest() {
	local tool=$1 size=$2 count=$3 options
	shift 3
	# as ours said: device rxe0, port 1, GID index 1 (...
	read -ra options < <(sed -n 's/^device \(.*\), port \(.*\), GID index \([0-9]*\) .*/-d \1 -i \2 -x \3/p' /tmp/ours)
	options+=(-F -m 1024 -s "$size" -n "$count" -u 18 "$@")
	timeout 120 "$tool" "${options[@]}" >/dev/null 2>&1 &
	local server=$!
	for _ in 1 2 3 4 5 6 7 8 9 10; do # until it listens on its port, 18515 = 0x4853
		grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break
		sleep 0.3
	done
	timeout 120 "$tool" "${options[@]}" 127.0.0.1 2>/dev/null | awk -v s="$size" '$1 == s'
	wait "$server"
}

# compare VERB SAMPLE SIZES PERFTEST-OPTIONS…
compare() {
	local verb=$1 sample=$2 ours theirs round size count lat
	shift 2
	rm -f /tmp/ours.* /tmp/theirs.*
	for ((round = 1; round <= rounds; round++)); do
		testenv/pair.sh "$sample" --bench --iters=1 --sizes=4K,64K,1M --depth=$depth \
			--mtu=1024 --timeout=100 >/tmp/ours || return
		for size in 4096 65536 1048576; do
			count=$((size == 4096 ? 256 : size == 65536 ? 64 : depth))
			# the message sweep comes first, and one of its sizes is in the other too
			grep "^BENCH method=contig .*bytes=$size " /tmp/ours | head -n 1 |
				sed 's/.*lat_p50_us=\([^ ]*\) .*bw_MBps=\([^ ]*\).*/\1 \2/' >>/tmp/ours.$size
			perftest "ib_${verb}_bw" "$size" "$count" -t "$depth" -Q 1 -N \
				--use_old_post_send "$@" | awk '{print $4}' >>/tmp/theirs.$size
		done
	done
	for size in 4096 65536 1048576; do
		ours=$(awk '{print $2 / 1.048576}' /tmp/ours.$size | median)
		theirs=$(median </tmp/theirs.$size)
		lat=$(perftest "ib_${verb}_lat" "$size" 20 | awk '{print $5}')
		awk -v v="$verb" -v s="$size" -v o="$ours" -v t="$theirs" -v lat="$lat" \
			-v ol="$(awk '{print $1}' /tmp/ours.$size | median)" 'BEGIN {
			printf "%-6s%9d |%10.2f%10.2f%8.3f |%10.1f%10.1f\n", v, s, o, t, o / t, ol, lat }'
	done
}

echo "clock: ${TESTENV_CLOCK:-real} time; kernel $(uname -r); path MTU 1024; $depth in flight"
printf '%-6s%9s |%10s%10s%8s |%10s%10s\n' verb bytes ours perftest ratio ours perftest
printf '%15s |%20s%8s |%20s\n' '' 'MiB/s' '' 'latency, us (see README)'
status=0
compare write 05_gather_write/gather_write || status=1
compare read 06_scatter_read/scatter_read -o 16 || status=1
compare send 07_gssr/gssr -r $depth || status=1
exit $status
