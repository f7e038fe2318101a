# SPDX-License-Identifier: MIT
# Memory of each kernel: declared scratch (filled), observed peak of the process (open), and as a line the
# weights and states that every kernel needs. 0 is left of the log scale.
load "dots.gp"
zero = low / 3
edge(x) = x > 0 ? x : zero
if (has_zero) {
    set xrange [zero / 1.5:high]
    set xtics ("0" zero)
    do for [e = -7:12] { if (10.0**e > 0.99 * low) { set xtics add (sprintf("%g", 10.0**e) 10.0**e) } }
    set arrow 1 from first zero * 1.5, graph 0 to first zero * 1.5, graph 1 nohead dt (2, 4) lc rgb grey back
}
set xlabel "MiB (log scale): filled scratch, open observed peak" textcolor rgb ink
plot lines using 3:($1 - 0.42):(0):(0.84) with vectors nohead lw 1.6 lc rgb grey \
         title "weights and state", \
     lines using (has_zero ? zero : low):1:ytic(2) with dots lc rgb grey notitle, \
     for [k = 0:count - 1] data index k using (edge($2)):1:($3 - edge($2)):(0) with vectors nohead \
         lw 1.2 lc rgb colour(k) notitle, \
     for [k = 0:count - 1] data index k using 3:1 with points pt 6 ps 1.2 lw 1.4 lc rgb colour(k) \
         notitle, \
     for [k = 0:count - 1] data index k using (edge($2)):1 with points \
         pt point(k) ps 1.2 lc rgb colour(k) title columnheader(1)
