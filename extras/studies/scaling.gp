# SPDX-License-Identifier: MIT
# Three panels: the time per lookup against the lookups of a batch and against the rows of the table, and
# the speed-up with more threads.
width = 1240; height = 480
load "style.gp"
set label 1 heading."\n".machine
set tmargin at screen 1 - 110.0 / height
set bmargin at screen 90.0 / height
place(i) = (70.0 + i * 405 + (i == 2) * 15) / width
level = (90 + height - 110.0) / 2 / height
unset grid
set label 2 "ns per lookup (median, quartiles)" at screen 12.0 / width, level rotate center textcolor rgb ink
set label 3 "times as fast as with ".least." thread".(least > 1 ? "s" : "") \
    at screen place(2) - 54.0 / width, level rotate center textcolor rgb ink
set logscale xy
unset xtics; unset ytics
set multiplot
# The legend across all panels is an empty plot.
set key at screen 0.5, 1 - 66.0 / height center top horizontal
set lmargin at screen 0.02; set rmargin at screen 0.98
set xrange [1:2]; set yrange [1:2]
plot for [k = 0:count - 1] data index k using (0.5):(0.5) with linespoints \
         pt point(k) ps 1.0 lw 1.6 lc rgb colour(k) title columnheader(1)
unset key; unset label
set tics nomirror scale 0 textcolor rgb ink
set xtics ()
do for [e = 0:9] { set xtics add (word("1 10 100 1k 10k 100k 1M 10M 100M 1G", e + 1) 10.0**e) }
set grid xtics ytics lc rgb pale lt 1 lw 0.7
do for [i = 0:1] {
    axis = word("lookups rows", i + 1)
    low = value(axis."_low"); high = value(axis."_high")
    set lmargin at screen place(i)
    set rmargin at screen place(i) + 325.0 / width
    set xrange [value(axis."_from") / 1.5:value(axis."_to") * 1.5]
    set yrange [low:high]
    set ytics ()
    marks = high / low > 2000 ? "1" : "1 2 5"
    do for [e = -1:6] { do for [m in marks] { set ytics add (sprintf("%g", m*10.0**e) m*10.0**e) } }
    set xlabel value(axis."_title")."\n".value(axis."_note") textcolor rgb ink
    plot for [k = 0:count - 1] data index i * count + k every ::1 using 1:3:2:4 with yerrorbars pt -1 lw 1.4 \
             lc rgb colour(k) notitle, \
         for [k = 0:count - 1] data index i * count + k using 1:3 with linespoints \
             pt point(k) ps 1.0 lw 1.6 lc rgb colour(k) notitle
}
set lmargin at screen place(2)
set rmargin at screen place(2) + 325.0 / width
set xrange [least / 1.3:most * 1.3]
set yrange [0.8:most / least * 1.3]
set xtics (); set ytics ()
do for [n in counts] { set xtics add (n real(n)) }
do for [m in "0.8 1 1.2 1.5 2 3 4 6 8 12 16 24 32 48 64 96 128"] { set ytics add (m real(m)) }
set xlabel threads_title."\n".threads_note textcolor rgb ink
plot [least / 1.15:most * 1.15] x / least with lines lw 1.6 dt (9, 5) lc rgb grey notitle, \
     for [k = 0:count - 1] data index 2 * count + k every ::1 using 1:2 with points \
         pt point(k) ps 1.0 lc rgb colour(k) notitle
unset multiplot
