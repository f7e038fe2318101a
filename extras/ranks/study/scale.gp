# SPDX-License-Identifier: MIT
# The best sharding on a cluster, modelled: above, a map over ranks and rows of a table for each number of lookups;
# below it, the time of every sharding over the ranks.
width = 60 + panels * 485; height = 830
load "style.gp"
count = words(ranks)
name(i) = word(names, i + 1)
unset xtics; unset ytics; unset grid
set multiplot
set key at screen 0.5, 1 - 58.0 / height center top horizontal Left reverse samplen 1.5
set lmargin at screen 0.02; set rmargin at screen 0.98
set tmargin at screen 0.98; set bmargin at screen 0.02
set xrange [1:2]; set yrange [1:2]
plot for [k = 0:ways - 1] NaN with points pt 5 ps 1.6 lc rgb colour(k) title name(k), \
     NaN with points pt 5 ps 1.6 lc rgb pale title "nothing fits"
unset key; unset label; unset object
set tics nomirror scale 0 textcolor rgb ink
do for [i = 0:panels - 1] {
    set lmargin at screen (75.0 + i * 485) / width
    set rmargin at screen (75.0 + i * 485 + 425) / width
    unset logscale; unset grid
    set tmargin at screen 1 - 150.0 / height; set bmargin at screen 1 - 425.0 / height
    set xrange [-0.5:count - 0.5]; set yrange [-0.5:words(rows) - 0.5]
    set xtics () rotate by 45 right font face.",10"; set ytics ()
    do for [k = 1:count] { set xtics add (word(ranks, k) k - 1) }
    do for [k = 1:words(rows)] { set ytics add (word(rows, k) k - 1) }
    set label 3 "lookups a bag: ".word(lookups, i + 1) at graph 0.5, graph 1.06 center textcolor rgb ink
    set xlabel "ranks" offset 0,0.3 textcolor rgb ink
    if (i == 0) { set ylabel "rows of a table" offset 0.5,0 textcolor rgb ink } else { unset ylabel }
    plot for [k = -1:ways - 1] data index i every ::1 \
             using (column(3) == k ? column(1) : NaN):2:(0.48):(0.47) \
             with boxxyerror fs solid 1.0 noborder lc rgb (k < 0 ? pale : colour(k)) notitle, \
         data index i every ::1 using 1:2:(strcol(4)) with labels font face.":Bold,8" textcolor rgb "white" notitle
    set tmargin at screen 1 - 530.0 / height; set bmargin at screen 1 - 770.0 / height
    set logscale xy
    set grid xtics ytics lc rgb pale lt 1 lw 0.7
    set xrange [real(word(ranks, 1)) / 1.2:real(word(ranks, count)) * 1.2]; set yrange [0.1:1000]
    set xtics (); set ytics ()
    do for [k = 1:count] { set xtics add (word(ranks, k) real(word(ranks, k))) }
    do for [m in "0.1 0.3 1 3 10 30 100 300 1000"] { set ytics add (m real(m)) }
    set label 3 "ms, tables of ".drawn." rows" at graph 0.5, graph 1.06 center textcolor rgb ink
    if (i == 0) { set ylabel "ms" offset 0.5,0 textcolor rgb ink } else { unset ylabel }
    plot for [k = 0:ways - 1] data index panels + i * ways + k every ::1 using 1:2 with linespoints \
             pt 7 ps 0.7 lw 1.6 lc rgb colour(k) notitle
}
unset multiplot
