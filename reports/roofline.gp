# SPDX-License-Identifier: MIT
# The distance from the roof, one panel per workload. On top are the two terms of the roof; the longer one
# binds. Below them are the fastest kernels; a mark shows the roof measured beside their own samples.
below_axis = "ns per lookup (median), % = roof / time"
load "panels.gp"
set multiplot
do for [i = 0:groups - 1] {
    eval panel(i)
    plot for [s = 1:2] data index i using (0):1:(s == 1 ? 0 : $3):(column(s + 2)) \
             :($1 - half):($1 + half):ytic(2) with boxxyerror lc rgb word(shades, s) notitle, \
         data index i using (zero($4, $5)):1:4:5:($1 - half):($1 + half) \
             with boxxyerror lc rgb word(shades, 5) notitle, \
         for [s = 0:1] lines index i every ::1 using (0):1:(0):($4 == s ? $3 : 0) \
             :($1 - half):($1 + half):ytic(2) with boxxyerror lc rgb word(shades, s + 3) notitle, \
         data index i using 6:($1 - half - 0.1):(0):(2 * half + 0.2) with vectors nohead lw 3.5 \
             lc rgb word(shades, 3) notitle, \
         data index i using (break_mark($5, $8)):($1 + 0.5):($5 * gap):(-1.0) \
             with vectors nohead lw 4 lc rgb "white" notitle, \
         data index i using ($6 > $5 ? $6 : $5):1:(strcol(7)) with labels left offset 0.5,0 font face.",11" \
             textcolor rgb ink notitle, \
         lines index i every ::1 using 3:1:(strcol(5)) with labels left offset 0.5,0 font face.",11" \
             textcolor rgb ink notitle, \
         lines index i every ::0::0 using (0):(-0.5 - lines_above / 2):2 with labels left \
             textcolor rgb ink notitle
}
unset multiplot
