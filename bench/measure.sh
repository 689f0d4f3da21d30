#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# Measures 05 to 07 where the device is, one after the other: results/SAMPLE.csv, and
# results/SAMPLE.txt with all that the two sides print. Arguments go to the clients.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
for sample in 05_gather_write/gather_write 06_scatter_read/scatter_read 07_gssr/gssr; do
	name=${sample%/*}
	{
		echo "MACHINE kernel=$(uname -r) cpus=$(nproc)"
		testenv/pair.sh "$sample" --bench --timeout=300 --csv="results/$name.csv" "$@"
	} | tee "results/$name.txt" | grep -v -e '^BENCH' -e '^MACHINE'
	[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
exit $status
