# SPDX-License-Identifier: MIT
# embfuse stats --plot: lookups of each row by rank on the left, share of lookups by segment length on
# the right. stats.c and plot.c set kind, out, heading, machine and the blocks $ranks and $runs.
width = 1040; height = 420
load "reports/style.gp"
set output out
unset key
blue = "#0072b2"
set multiplot layout 1,2
set tmargin strlen(heading) > 0 ? 4.5 : 1.5; set bmargin 4; set lmargin 9; set rmargin 3
unset grid
set grid ytics lc rgb pale lt 1 lw 0.7

set logscale xy
set format xy "%.0s%c"
set grid xtics
set xrange [1:10<*]; set yrange [1:10<*]
set xlabel "rank of the row, hottest first" textcolor rgb ink
set ylabel "lookups of the row" textcolor rgb ink
plot $ranks using 1:2 with lines lw 2.5 lc rgb blue

# Bins as in harness/workload/id_stats.h; every second bin has a label.
unset label 1
unset logscale
set format xy "%g"
set grid noxtics
set xtics ("1" 0, "4" 2, "16" 4, "64" 6, "256" 8, "1k" 10, "4k" 12, "16k" 14, "more" 16)
set xrange [-0.7:16.7]
set yrange [0:*]
set boxwidth 0.8
set xlabel "lookups of a row, up to" textcolor rgb ink
set ylabel "share of all lookups, %" textcolor rgb ink
plot $runs using 0:1 with boxes lc rgb blue
unset multiplot
unset output
