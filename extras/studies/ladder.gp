# SPDX-License-Identifier: MIT
# What each technique of a kernel is worth: bars from 1 to (time without it) / (time with it).
# Bars in the shaded area on the left are techniques that cost time.
load "dots.gp"
key_rows = (count + 1) / 2
set tmargin at screen 1 - (72.0 + 26 * key_rows) / height
set key at screen 0.5, 1 - 64.0 / height center top vertical maxrows key_rows
set xtics ()
do for [m in "0.1 0.2 0.3 0.5 0.7 0.8 0.9 1 1.2 1.5 2 3 4 5 7 10 20 50 100"] { \
    set xtics add (m."x" real(m)) }
set object 900 rectangle from graph 0, graph 0 to first 1, graph 1 behind \
    fillcolor rgb "#f6dcd4" fillstyle solid noborder
set arrow 1 from first 1, graph 0 to first 1, graph 1 nohead lw 1.6 lc rgb grey back
set xlabel "time without it / time with it (median and quartiles, log scale; left of 1x: it costs time)" \
    textcolor rgb ink
plot lines using (low):1:ytic(2) with dots lc rgb grey notitle, \
     for [k = 0:count - 1] data index k every ::1 using (1):1:($3 - 1):(0) with vectors nohead \
         lw 6 lc rgb colour(k) notitle, \
     for [k = 0:count - 1] data index k using 3:1:2:4 with xerrorbars \
         pt point(k) ps 1.0 lw 1.4 lc rgb colour(k) title columnheader(1)
