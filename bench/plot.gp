# SPDX-License-Identifier: BSD-2-Clause
# Two panels that share the axis: bandwidth above, speed-up of zero-copy below. plot.sh
# sets csv (columns: model.py), sample, note, and between which block sizes the crossover is: from, to; reference: a file of such rows, or ''.
set datafile separator ','
set grid
set logscale x 2
set format x '%.0b%B'
set lmargin 11
set rmargin reference eq '' ? 17 : 24
set key outside right top
rows_of(file, sweep, method) = "< awk -F, '$15 == \"".sweep."\" && $1 == \"".method."\"' ".file
rows(sweep, method) = rows_of(csv, sweep, method)
methods = 'contig sgl copy auto each'

do for [kind in 'svg png'] {
    do for [sweep in 'message block'] {
        if (kind eq 'svg') { set terminal svg size 900,800 font 'sans,13' background 'white' }
        if (kind eq 'png') { set terminal pngcairo size 900,800 font 'sans,11' }
        set output 'results/'.sample.'-'.sweep.'.'.kind
        x = sweep eq 'message' ? 5 : 2
        set multiplot layout 2,1 title sample.' ('.note.')' noenhanced
        unset xlabel
        set ylabel 'bandwidth (MB/s)'
        set yrange [0:*]
        plot for [k=1:5] rows(sweep, word(methods, k)) \
                 using x:11 with linespoints lc k lw 2 ps 0.8 title word(methods, k), \
             for [k=1:(reference ne '' && sweep eq 'block' ? 5 : 0)] rows_of(reference, sweep, word(methods, k)) \
                 using x:11 with points lc k pt 6 ps 1.6 title 'reference '.word(methods, k)
        set xlabel sweep eq 'message' ? 'message size (bytes), blocks of 4 KiB' \
                                      : 'block size (bytes), messages of 64 KiB'
        set ylabel 'speed-up of sgl over copy'
        set yrange [*:*]
        if (sweep eq 'block' && from > 0) {
            set label 1 sprintf('crossover between %.0f and %.0f', from, to) at sqrt(from * to), 1 \
                point pt 7 offset 1, -1
        }
        plot rows(sweep, 'sgl') using x:18 with linespoints lw 2 title 'measured', \
             rows(sweep, 'sgl') using x:19 with lines dashtype 2 lw 2 title 'model', \
             1 with lines lc 'black' notitle
        unset label 1
        unset multiplot
        unset output
    }
}
