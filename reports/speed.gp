# SPDX-License-Identifier: MIT
# The speed of each kernel on each workload, in the unit of the tables or in GB/s of compulsory traffic,
# beside the ceilings measured in the same run.
load "dots.gp"
set xlabel unit." (median and quartiles, log scale)" textcolor rgb ink
plot lines using 3:($1 - 0.42):(0):(0.84) with vectors nohead lw 1.6 dt (9, 5) lc rgb grey \
         title "ceiling: copy", \
     lines using 4:($1 - 0.42):(0):(0.84) with vectors nohead lw 1.6 lc rgb grey \
         title "ceiling: random rows", \
     lines using (low):1:ytic(2) with dots lc rgb grey notitle, \
     for [k = 0:count - 1] data index k using 3:1:2:4 with xerrorbars \
         pt point(k) ps 0.9 lw 1.4 lc rgb colour(k) title columnheader(1), \
     for [k = 0:count - 1] data index k using 3:(over_points($1, $5)):2:4 with xerrorbars \
         pt point(k) ps 0.9 lw 1.4 lc rgb unsure notitle
