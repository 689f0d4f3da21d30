#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause
# growth.sh [HOSTS…] - what OpenSM's start costs for fat trees of so many hosts, as a table and, beside
# the 48,000 of the slides, as a picture: results/fabric-growth.txt and .svg
set -eu -o pipefail
cd "$(dirname "$0")/.."
table=results/fabric-growth.txt
# shellcheck disable=SC2016 # for the shell in the fabric
cost='sm=$(pgrep -f "opensm -F.*$FABRIC/") sim=$(pgrep -xf "ibsim -s .* $FABRIC/net")
cpu() { awk -v hz="$(getconf CLK_TCK)" "{ printf \"%.2f \", (\$14 + \$15) / hz }" "/proc/$1/stat"; }
cpu $sm && cpu $sim && awk "/VmHWM/ { printf \"%d \", \$2 / 1000 }" /proc/$sm/status
perfquery | sed -n "s/^PortXmitPkts:\.*//p"'
echo '# hosts switches seconds cpu-opensm cpu-ibsim opensm-MB packets' | tee $table
[ $# -gt 0 ] || set -- 8 72 648 2000 5000 10000
for hosts; do
	HOSTS=$hosts fabric/fabric.sh start "$cost" |
		sed -n 's/^\([0-9]*\) hosts, \([0-9]*\) switches.*after \([0-9.]*\) s.*/\1 \2 \3/p; t; /^[0-9. ]*$/p' |
		paste -sd ' ' | tee -a $table
done
gnuplot <<END
set terminal svg background 'white'
set output 'results/fabric-growth.svg'
set logscale xy
set key left top
set xlabel 'hosts'
set arrow from 48000, graph 0 to 48000, graph 1 nohead dashtype 2
set label 'slides: 48,000' at 48000, graph 0.05 right offset -1, 0
stats '$table' using (last = \$1, packets = \$7) nooutput
plot [5:60000] '$table' using 1:7 with linespoints lw 2 title 'packets that OpenSM sent', \
	packets / last * x with lines lc 1 dashtype 2 title 'as many a host as the last', \
	'$table' using 1:4 with linespoints lc 2 lw 2 title 'CPU seconds of OpenSM', \
	'$table' using 1:6 with linespoints lc 3 lw 2 title 'memory of OpenSM (MB)'
END
echo "results/fabric-growth.svg"
