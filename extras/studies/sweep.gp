# SPDX-License-Identifier: MIT
# Is one kernel the fastest everywhere? One strip per value of an axis, one dot per point: time of the best
# other kernel / its own time. Left of the solid line it loses, in the shaded area by more than 10 %.
width = 1000; height = 225 + 20 * strips
load "style.gp"
set label 1 heading."\n".verdict."\n".machine
set tmargin at screen 1 - 145.0 / height
set lmargin at screen 0.175
set rmargin at screen 0.93
set bmargin 3.6 + foot_lines
set key at screen 0.55, 1 - 84.0 / height center top horizontal
set label 2 "best other:" at screen 0.13, 1 - 97.0 / height textcolor rgb ink
set label 3 "worst" at screen 0.94, 1 - 133.0 / height font face.",11" textcolor rgb ink
set logscale x
set xrange [low:high]
set xtics ()
do for [m in "0.1 0.2 0.3 0.5 0.7 0.9 1 1.2 1.5 2 3 5 7 10 20 30 50 100"] { set xtics add (m real(m)) }
set yrange [strips - 0.4:-0.6]
unset ytics
set object 1 rectangle from graph 0, graph 0 to first near, graph 1 behind \
    fillcolor rgb "#f6dcd4" fillstyle solid noborder
set arrow 1 from first 1, graph 0 to first 1, graph 1 nohead lw 1.6 lc rgb grey back
set arrow 2 from first near, graph 0 to first near, graph 1 nohead lw 1.2 dt (6, 4) lc rgb grey back
set xlabel "time of the best other kernel / time of ".kernel \
    ." (log scale; right of 1: ".kernel." is faster)" textcolor rgb ink
plot lines using (low):($1 - 0.5):($5 > 0 ? high - low : NaN):(0) with vectors nohead lc rgb pale notitle, \
     lines using (low):1:2 with labels right offset -1,0 font face.":Bold,12" textcolor rgb ink notitle, \
     lines using (low):1:3 with labels right offset -1,0 font face.",11" textcolor rgb ink notitle, \
     lines using (high):1:4 with labels left offset 1,0 font face.",11" textcolor rgb ink notitle, \
     for [k = 0:count - 1] data index k every ::1 using 1:2 with points pt 7 ps 0.75 lc rgb colour(k) \
         notitle, \
     for [k = 0:count - 1] data index k using 1:(-9) with points pt 7 ps 1.2 lc rgb colour(k) \
         title columnheader(1)
