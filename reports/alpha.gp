# SPDX-License-Identifier: MIT
# Throughput against the skew of the ids, with the rates that the measured ceilings would allow.
width = 900; height = 560
load "style.gp"
set label 1 heading."\n".family."\n".machine
set tmargin strlen(heading) > 0 ? 5.5 : 2
set logscale y
set yrange [low:high]
set ytics ()
do for [e = -7:12] { do for [m in marks] { set ytics add (sprintf("%g", m*10.0**e) m*10.0**e) } }
set grid ytics lc rgb pale lt 1 lw 0.7
set xrange [first - 0.04 * (last - first):last + 0.04 * (last - first)]
set xtics tick(last - first)
set bmargin 3.6 + foot_lines
set xlabel "alpha of the ids (0: uniform)" textcolor rgb ink
set ylabel "million lookups per second (median, quartiles)" textcolor rgb ink
plot for [p = 0:places - 1] lines index p using 1:2 with lines lw 1.6 dt (9, 5) lc rgb grey \
         title "ceiling: copy, ".columnheader(1), \
     for [p = 0:places - 1] lines index p using 1:3 with lines lw 1.6 lc rgb grey \
         title "ceiling: random rows, ".columnheader(1), \
     for [k = 0:count - 1] data index k every ::1 using 1:3:2:4 with yerrorbars pt -1 lw 1.4 \
         lc rgb colour(k) notitle, \
     for [k = 0:count - 1] data index k using 1:3 with linespoints \
         pt point(k) ps 1.2 lw 1.6 lc rgb colour(k) title columnheader(1), \
     for [k = 0:count - 1] data index k every ::1 using 1:($5 > 0 ? low / 9 : $3):2:4 with yerrorbars \
         pt point(k) ps 1.2 lw 1.4 lc rgb unsure notitle
