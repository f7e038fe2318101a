# SPDX-License-Identifier: MIT
# The frame of a dot plot: workloads from top to bottom, one row per kernel, a log axis.
width = 1040
load "style.gp"
set logscale x
set xrange [low:high]
set xtics ()
do for [e = -7:12] { do for [m in marks] { \
    if (m*10.0**e > 0.99 * low) { set xtics add (sprintf("%g", m*10.0**e) m*10.0**e) } } }
set yrange [groups - 0.5:-0.5]
set lmargin 3 + 0.9 * label_width
set bmargin 3.6 + foot_lines
set tmargin strlen(heading) > 0 ? 4.5 : 2
# Over the points, again and in grey, those that are not to be quoted: their last column is 0.
over_points(y, quotable) = quotable > 0 ? -9 : y
set errorbars 1.8 # taller than a point, to show even if quartiles are close
do for [i = 0:groups - 1:2] {
    set object i + 1 rectangle from graph 0, first i - 0.5 to graph 1, first i + 0.5 behind \
        fillcolor rgb band fillstyle solid noborder
}
