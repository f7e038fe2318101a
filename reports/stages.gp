# SPDX-License-Identifier: MIT
# Where the time goes: one panel per workload, one bar per kernel. A bar shows the stages from left to right,
# or the whole step if it has no stages. A bar that would dwarf the others is cut and marked.
below_axis = "ns per lookup (median repetition)"
load "panels.gp"
do for [s = 1:words(names)] {
    place = 0.5 + (s - 1 - words(names) / 2.0) * 110.0 / width
    set object s rectangle at screen place, level size screen 22.0 / width, 12.0 / height \
        fillcolor rgb word(shades, s) fillstyle solid noborder
    set label s + 1 word(names, s) at screen place + 18.0 / width, level textcolor rgb ink
}
set multiplot
do for [i = 0:groups - 1] {
    eval panel(i)
    plot data index i every ::1 using (0):1:(0):(0):($1 - half):($1 + half):ytic(2) \
             with boxxyerror notitle, \
         for [s = 1:5] data index i every ::1 \
             using (zero(column(s + 2), column(s + 3))):1:(column(s + 2)):(column(s + 3)) \
             :($1 - half):($1 + half) with boxxyerror lc rgb word(shades, s) notitle, \
         data index i every ::1 using (break_mark($9, $11)):($1 + 0.5):($9 * gap):(-1.0) \
             with vectors nohead lw 4 lc rgb "white" notitle, \
         data index i every ::1 using 9:1:(" ".strcol(10)) with labels left font face.",11" \
             textcolor rgb ink notitle, \
         data index i every ::0::0 using (0):(-0.5 - lines_above / 2):2 with labels left \
             textcolor rgb ink notitle
}
unset multiplot
