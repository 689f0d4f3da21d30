#!/usr/bin/env bash
# Measures 05 to 07 where the device is, one after the other: a CSV file for each under
# results/ and all that the two sides print.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
for sample in 05_gather_write/gather_write 06_scatter_read/scatter_read 07_gssr/gssr; do
	name=${sample%/*}
	testenv/pair.sh "$sample" --bench --csv "results/$name.csv" "$@" |
		tee "results/$name.txt" | grep -v '^BENCH'
	[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
exit $status
