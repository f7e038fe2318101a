# SPDX-License-Identifier: MIT
# What share of the fast memory's bandwidth the slow one needs, over alpha: a line for each of `series` names. `lines`:
# what machines have, with their names at the right.
width = 860; height = 460
load "style.gp"
set lmargin at screen 80.0 / width; set rmargin at screen 1
set tmargin at screen 1 - 62.0 / height; set bmargin at screen 96.0 / height
set key at screen 0.36, screen 10.0 / height center bottom horizontal maxrows 1 samplen 1.5 width 1
set logscale y
# Names of machines stand in the plot, to the right of the lines.
span = to > from ? to - from : 0.2
set xrange [from - 0.03:to + 0.03 + 0.6 * span]; set yrange [least:most]
set xtics from, 0.2, to
set format y "%g"
set label 3 "alpha of the ids" at screen 0.36, 52.0 / height center textcolor rgb ink
set ylabel "% of the fast memory's bandwidth" textcolor rgb ink offset 1, 0
set datafile separator "\t"
plot for [k = 0:series - 1] data index k every ::1 using 1:2 with linespoints pt 7 ps 0.8 lw 1.8 lc rgb colour(k) \
         title word(names, k + 1), \
     lines using (from - 0.03):1:(to - from + 0.06):(0) with vectors nohead lw 1.4 lc rgb grey notitle, \
     lines using (to + 0.045):1:2 with labels left textcolor rgb ink font face.",11" notitle
