# SPDX-License-Identifier: MIT
# embfuse monitor --plot: touches of rows by rank; how old their last touch is; their largest gradient norms.
# monitor.c sets kind, out, heading, machine, p50, p99 and the blocks $ranks, $ages and $norms.
width = 1380; height = 420
load "reports/style.gp"
set output out
unset key
blue = "#0072b2"
set multiplot layout 1,3
set tmargin strlen(heading) > 0 ? 4.5 : 1.5; set bmargin 4; set lmargin 9; set rmargin 4
unset grid
set grid xtics ytics lc rgb pale lt 1 lw 0.7

set logscale xy
set format xy "%.0s%c"
set xrange [1:10<*]; set yrange [1:10<*]
set xlabel "rank of the row, most touched first" textcolor rgb ink
set ylabel "steps that touched the row" textcolor rgb ink
plot $ranks using 1:2 with linespoints pt 7 ps 0.4 lw 2.5 lc rgb blue

unset label 1
unset label 2
unset logscale
set format xy "%g"
set xrange [0:*]; set yrange [0:100]
set xlabel "steps since the last touch" textcolor rgb ink
set ylabel "share of touched rows, %" textcolor rgb ink
plot $ages using 1:2 with fillsteps fs solid 0.25 lc rgb blue, $ages using 1:2 with steps lw 2.5 lc rgb blue

set logscale xy
set format y "%.0s%c"
set xrange [*:*]; set yrange [0.7:*]
set xlabel "largest gradient norm (lines: p50, p99)" textcolor rgb ink
set ylabel "rows" textcolor rgb ink
set arrow 1 from first p50, graph 0 to first p50, graph 1 nohead lw 1.5 lc rgb ink
set arrow 2 from first p99, graph 0 to first p99, graph 1 nohead lw 1.5 dt 2 lc rgb ink
plot $norms using ($1*1.0625):2:($1):($1*1.125):(0.7):2 with boxxyerror fs solid lc rgb blue
unset multiplot
unset output
