#!/usr/bin/env bash
# Figures of what measure.sh left: results/SAMPLE-message and SAMPLE-block, .svg and .png.
set -eu
cd "$(dirname "$0")/.."
field() { sed -n "s/^$2 .*$3=\([^ ]*\).*/\1/p" "results/$1.txt" | tail -n 1; }

for csv in results/0[567]_*.csv; do
	name=$(basename "$csv" .csv)
	clock=$(field "$name" BENCH clock)
	[ "$clock" != virtual ] || clock="virtual time, 4 ns an instruction"
	[ "$clock" != real ] || clock="real time"
	mtu=$(sed -n 's/^.*path MTU \([0-9]*\),.*/\1/p' "results/$name.txt" | tail -n 1)
	gnuplot -e "csv='$csv'; sample='$name'" \
		-e "crossover=$(field "$name" MODEL crossover_measured)" \
		-e "note='$clock; Linux $(sed -n 's/^MACHINE kernel=\([^ ]*\).*/\1/p' "results/$name.txt"), path MTU $mtu, 16 in flight'" \
		bench/plot.gp
done
ls results/*.svg results/*.png
