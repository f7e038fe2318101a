# SPDX-License-Identifier: MIT
# Machines side by side: workloads from top to bottom, one mark per machine, three panels with one axis each.
width = 1160
load "style.gp"
shade(i) = word(shades, i + 1)
set yrange [groups - 0.5:-0.5]
set tmargin at screen 1 - (66.0 + 26 * count) / height
set bmargin at screen 66.0 / height
set key at screen 0.5, 1 - 48.0 / height center top vertical maxrows count
do for [i = 0:groups - 1:2] {
    set object i + 1 rectangle from graph 0, first i - 0.5 to graph 1, first i + 0.5 behind \
        fillcolor rgb band fillstyle solid noborder
}
left = (9.0 * label_width + 30) / width
span = (1 - left) / 3
edge(i) = sprintf("set lmargin at screen %.9g; set rmargin at screen %.9g", left + i * span, left + (i + 0.9) * span)
set multiplot

eval edge(0)
set logscale x
set xrange [low:high]
set xtics ()
do for [e = -7:12] { do for [m in marks] { set xtics add (sprintf("%g", m*10.0**e) m*10.0**e) } }
set xlabel "ns per lookup of the fastest kernel" textcolor rgb ink
plot lines using (low):1:ytic(2) with dots lc rgb grey notitle, \
     for [k = 0:count - 1] data index k every ::1 using 3:1:2:4 with xerrorbars pt -1 lw 1.4 \
         lc rgb shade(k) notitle, \
     for [k = 0:count - 1] data index k using 3:1 with points pt point(k) ps 1.1 lc rgb shade(k) \
         title columnheader(1)

# The first panel has already drawn what all panels share.
unset label 1; unset label 998; unset label 999; unset key
unset logscale x
set format y ""
eval edge(1)
set xrange [0:most_speed]
set xtics autofreq tick(most_speed)
set format x "%gx"
set arrow 1 from 1, graph 0 to 1, graph 1 nohead lw 1.6 lc rgb grey back
set xlabel "time of ".below." over ".kernel textcolor rgb ink
plot for [k = 0:count - 1] data index k every ::1 using 5:1 with points pt point(k) ps 1.1 lc rgb shade(k)

unset arrow 1
eval edge(2)
set xrange [0:most_roof]
set xtics autofreq tick(1.3 * most_roof) # its labels are wider
set format x "%g %%"
set xlabel "share of the roof, ".kernel textcolor rgb ink
plot for [k = 0:count - 1] data index k every ::1 using 6:1 with points pt point(k) ps 1.1 lc rgb shade(k)
unset multiplot
