# SPDX-License-Identifier: MIT
# Dense gradient or sparse? A panel per rule: time of the dense kernel / time of the sparse one, against the share
# of rows that a batch touches. Below the line at 1 the dense kernel is faster.
columns = panels < 3 ? panels : 2
rows = (panels + columns - 1) / columns
width = 60 + columns * 430; height = 150 + rows * 300
load "style.gp"
set label 1 heading."\n".machine
unset xtics; unset ytics; unset grid
set label 2 "dense time / time of ".kernel at screen 14.0 / width, 0.43 rotate center \
    textcolor rgb ink
set logscale xy
set multiplot
set key at screen 0.5, 1 - 64.0 / height center top horizontal
set lmargin at screen 0.02; set rmargin at screen 0.98
set tmargin at screen 0.98; set bmargin at screen 0.02
set xrange [1:2]; set yrange [1:2]
plot for [k = 0:widths - 1] data index 2 * k using (0.5):(0.5) with linespoints pt 7 ps 1.0 lw 1.6 \
         lc rgb colour(k) title columnheader(1), \
     NaN with points pt 6 ps 1.0 lw 1.6 lc rgb ink title "skewed ids"
unset key; unset label; unset object
set tics nomirror scale 0 textcolor rgb ink
set grid xtics ytics lc rgb pale lt 1 lw 0.7
set xrange [from:1.0]
set yrange [low:high]
set xtics ()
do for [m in "0.5 1 2 5 10 20 50 100"] { set xtics add (m real(m) / 100) }
set ytics ()
do for [m in (high / low > 20 ? "0.01 0.03 0.1 0.3 1 3 10 30 100" : "0.3 0.5 0.7 1 1.5 2 3 5 7 10")] { set ytics add (m real(m)) }
do for [i = 0:panels - 1] {
    set lmargin at screen (90.0 + (i % columns) * 430) / width
    set rmargin at screen (90.0 + (i % columns) * 430 + 370) / width
    set tmargin at screen 1 - (130.0 + (i / columns) * 300) / height
    set bmargin at screen 1 - (130.0 + (i / columns) * 300 + 225) / height
    set label 3 word(rules, i + 1).": dense ".word(thresholds, i + 1) at graph 0.5, graph 1.06 center \
        textcolor rgb ink
    set xlabel "% of the rows touched" offset 0,0.4 textcolor rgb ink
    plot [from:1] 1 with lines lw 1.6 lc rgb grey notitle, \
         for [k = 0:widths - 1] data index 2 * (i * widths + k) every ::1 using 1:2 with linespoints \
             pt 7 ps 0.8 lw 1.6 lc rgb colour(k) notitle, \
         for [k = 0:widths - 1] data index 2 * (i * widths + k) + 1 every ::1 using 1:2 with points \
             pt 6 ps 1.0 lw 1.6 lc rgb colour(k) notitle
}
unset multiplot
