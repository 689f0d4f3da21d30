#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# plot.sh [DIR] - what measure.sh left, as tables (printed and added to results/NAME.txt) and as
# figures: results/NAME-message and NAME-block, .svg and .png. With DIR, a student's program: over block
# sizes beside the reference's figures, if they are of the same clock.
set -eu -o pipefail
cd "$(dirname "$0")/.."
shopt -s nullglob
plot=$(mktemp) reference=$(mktemp)
trap 'rm -f "$plot" "$reference"' EXIT

for csv in results/${1:-0[567]_*}.csv; do
	[ -e "$csv" ] || continue # not written yet
	name=$(basename "$csv" .csv)
	bench/model.py "$csv" "$plot" | tee -a "results/$name.txt"
	kernel=$(sed -n 's/^MACHINE kernel=\([^ ]*\).*/\1/p' "results/$name.txt")
	crossover=$(sed -n 's/^MODEL .*crossover_measured=\([0-9.]*\) .*/\1/p' "results/$name.txt" | tail -n 1)
	crossover=${crossover:-0..0} # none
	IFS=, read -r _ _ _ _ _ _ depth clock _ _ _ _ _ sample _ mtu _ < <(sed -n 2p "$csv")
	beside=
	if [ -n "${1:-}" ] && [ "$clock" = virtual ]; then # the same columns, as far as plot.gp reads them
		beside=$reference
		awk -v sample="$sample" '!/^BENCH/ { here = $1 == sample; next }
			here { for (i = 2; i <= NF; i++) { split($i, field, "="); of[field[1]] = field[2] } }
			here && of["bytes"] == 65536 {
				print of["method"] "," of["block_size"] ",,,,,,,,," of["bw_MBps"] ",,,,block" }' bench/reference.txt >"$reference"
	fi
	[ "$clock" != virtual ] || clock='virtual time, 4 ns an instruction'
	[ "$clock" != real ] || clock='real time'
	gnuplot -e "csv='$plot'; sample='$name'; from=${crossover%..*}; to=${crossover#*..}; reference='$beside'" \
		-e "note='$clock; Linux $kernel, path MTU $mtu, $depth in flight'" bench/plot.gp
	ls "results/$name"-*.svg "results/$name"-*.png
done
