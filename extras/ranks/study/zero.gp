# SPDX-License-Identifier: MIT
# Bytes that a rank sends, bytes that it holds, and seconds of an iteration, against the rows of the table.
width = 1240; height = 460
load "style.gp"
unset label 1
set logscale xy
set grid ytics xtics lc rgb pale lt 1 lw 0.7
set key inside left top vertical
set xtics 1000,10
set xrange [500:1e6]
set ytics 10
set multiplot
set label 1 heading."\n".machine at screen 0.5, 1 - 20.0 / height center
do for [i = 1:3] {
    set lmargin at screen (80.0 + (i - 1) * 395) / width
    set rmargin at screen (80.0 + (i - 1) * 395 + 330) / width
    set tmargin at screen 1 - 125.0 / height
    set bmargin at screen 65.0 / height
    set format x "%.0e"
    set format y "%.0e"
    set label 3 i == 1 ? "bytes that a rank sends" : \
        i == 2 ? "bytes that a rank holds at the peak" : "seconds of an iteration" \
        at graph 0.5, graph 1.06 center textcolor rgb ink
    set xlabel "rows of the table" textcolor rgb ink
    plot for [k = 0:ways - 1] data index k every ::1 using 1:(column(i + 1)) with linespoints pt 7 \
         ps 0.9 lw 1.8 lc rgb colour(k) title word(names, k + 1)
    unset key; unset label 1
}
unset multiplot
