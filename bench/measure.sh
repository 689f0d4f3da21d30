#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# measure.sh "" or DIR, then arguments for the clients - measures 05 to 07, or a student's program
# in DIR, where the device is, one after the other: results/NAME.csv, and results/NAME.txt with all
# that the two sides print.
set -u
cd "$(dirname "$0")/.." || exit 1
programs=(05_gather_write/gather_write 06_scatter_read/scatter_read 07_gssr/gssr)
[ -z "$1" ] || programs=("$1/$(sed -n 's/^SAMPLE = //p' "$1/Makefile")")
shift
status=0
for program in "${programs[@]}"; do
	name=${program%/*}
	todo=$(grep -ohE '(is not written yet|尚未编写) \(TODO [0-9]+\)' "$name"/*.c | sort | head -n 1)
	if [ -n "$todo" ]; then
		echo "$name $todo"
		rm -f "results/$name.csv"
		continue
	fi
	{
		echo "MACHINE kernel=$(uname -r) cpus=$(nproc)"
		testenv/pair.sh "$program" --bench --timeout=300 --csv="results/$name.csv" "$@"
	} | tee "results/$name.txt" | grep -v -e '^BENCH' -e '^MACHINE'
	[ "${PIPESTATUS[0]}" -eq 0 ] || status=1
done
exit $status
