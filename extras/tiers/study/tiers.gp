# SPDX-License-Identifier: MIT
# Percentages over the share of the rows that is in memory: a panel for each source of ids, a line for each of `series`
# names. Blocks of data: panel by panel, line by line. least: the lower end of a logarithmic axis; 0: from 0 to 100.
columns = panels < 4 ? panels : 4
lines_of_panels = (panels + columns - 1) / columns
wide = 250.0; tall = 220.0; left = 70.0; gap = 50.0; top = 100.0; down = 105.0
width = left + columns * (wide + gap); width = width < 760 ? 760 : width
height = top + lines_of_panels * (tall + down) + 25
load "style.gp"
unset label 1
set logscale x
set xrange [4:120]
if (least > 0) { set logscale y; set yrange [least:140] } else { set yrange [0:103] }
set format y "%g"
set multiplot
set label 1 heading."\n".machine at screen 0.5, 1 - 20.0 / height center
# The key alone, over the whole width.
set lmargin at screen 0; set rmargin at screen 1; set tmargin at screen 1; set bmargin at screen 0
set key at screen 0.5, screen 12.0 / height center bottom horizontal maxrows 1 samplen 1.5 width 1
unset tics; unset grid
plot for [k = 0:series - 1] NaN with linespoints pt 7 ps 0.8 lw 1.8 lc rgb colour(k) title word(names, k + 1)
unset key; unset label 1
set xtics nomirror scale 0 ("5" 5, "10" 10, "20" 20, "50" 50, "100" 100) textcolor rgb ink
set ytics nomirror scale 0 textcolor rgb ink
set grid ytics xtics lc rgb pale lt 1 lw 0.7
do for [i = 0:panels - 1] {
    x = left + (i % columns) * (wide + gap); y = top + (i / columns) * (tall + down)
    set lmargin at screen x / width
    set rmargin at screen (x + wide) / width
    set tmargin at screen 1 - y / height
    set bmargin at screen 1 - (y + tall) / height
    set label 3 word(titles, i + 1) at graph 0.5, graph 1.06 center textcolor rgb ink
    set xlabel "% of the rows in memory" textcolor rgb ink
    plot for [k = 0:series - 1] data index i * series + k every ::1 using 1:2 with linespoints pt 7 ps 0.8 lw 1.8 \
         lc rgb colour(k) notitle
}
unset multiplot
