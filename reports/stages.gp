# SPDX-License-Identifier: MIT
# Where the time goes: one panel per workload, one bar per kernel. A bar shows the stages from left to right,
# or the whole step if it has no stages. A bar that would dwarf the others is cut and marked.
below_axis = exists("axis_text") ? axis_text : "ns per lookup (median repetition)"
load "panels.gp"
end = parts + 4
set multiplot
do for [i = 0:groups - 1] {
    eval panel(i)
    plot data index i every ::1 using (0):1:(0):(0):($1 - half):($1 + half):ytic(2) \
             with boxxyerror notitle, \
         for [s = 1:parts] data index i every ::1 \
             using (zero(column(s + 2), column(s + 3))):1:(column(s + 2)):(column(s + 3)) \
             :($1 - half):($1 + half) with boxxyerror lc rgb word(shades, s) notitle, \
         data index i every ::1 using (break_mark(column(end), column(end + 2))):($1 + 0.5):(column(end) * gap):(-1.0) \
             with vectors nohead lw 4 lc rgb "white" notitle, \
         data index i every ::1 using end:1:(strcol(end + 1)) with labels left offset 0.5,0 font face.",11" \
             textcolor rgb ink notitle, \
         data index i every ::0::0 using (0):(-0.5 - lines_above / 2):2 with labels left \
             textcolor rgb ink notitle
}
unset multiplot
