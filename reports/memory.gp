# SPDX-License-Identifier: MIT
# What each kernel asks for and what the process took: declared scratch (filled), observed peak
# (open), and as a line the weights and state that every kernel needs. No scratch: at the edge.
load "dots.gp"
edge(x) = x > low ? x : low
set xlabel "MiB (log scale): filled scratch, open observed peak, no scratch at the left edge" \
    textcolor rgb ink
plot lines using 3:($1 - 0.42):(0):(0.84) with vectors nohead lw 1.6 lc rgb grey \
         title "weights and state", \
     lines using (low):1:ytic(2) with dots lc rgb grey notitle, \
     for [k = 0:count - 1] data index k using (edge($2)):1:($3 - edge($2)):(0) with vectors nohead \
         lw 1.2 lc colour(k) notitle, \
     for [k = 0:count - 1] data index k using 3:1 with points pt 6 ps 1.2 lw 1.4 lc colour(k) \
         notitle, \
     for [k = 0:count - 1] data index k using (edge($2)):1 with points \
         pt point(k) ps 1.2 lc colour(k) title columnheader(1)
