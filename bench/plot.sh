#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# What measure.sh left, as tables (printed and added to results/SAMPLE.txt) and as figures:
# results/SAMPLE-message and SAMPLE-block, .svg and .png.
set -eu -o pipefail
cd "$(dirname "$0")/.."
plot=$(mktemp)
trap 'rm -f "$plot"' EXIT

for csv in results/0[567]_*.csv; do
	name=$(basename "$csv" .csv)
	bench/model.py "$csv" "$plot" | tee -a "results/$name.txt"
	kernel=$(sed -n 's/^MACHINE kernel=\([^ ]*\).*/\1/p' "results/$name.txt")
	crossover=$(sed -n 's/^MODEL .*crossover_measured=\([0-9]*\).*/\1/p' "results/$name.txt")
	IFS=, read -r _ _ _ _ _ _ depth clock _ _ _ _ _ _ _ mtu _ < <(sed -n 2p "$csv")
	[ "$clock" != virtual ] || clock='virtual time, 4 ns an instruction'
	[ "$clock" != real ] || clock='real time'
	gnuplot -e "csv='$plot'; sample='$name'; crossover=${crossover##*$'\n'}" \
		-e "note='$clock; Linux $kernel, path MTU $mtu, $depth in flight'" bench/plot.gp
done
ls results/*.svg results/*.png
