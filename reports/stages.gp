# SPDX-License-Identifier: MIT
# Where the time goes: a panel per workload, a bar per kernel, its stages from left to right. Panels
# have their own axes; a bar that would dwarf the others is cut and says so.
row = 26.0; title_line = 20.0; top = 104.0; foot = 60.0
lines_above = 0.5 + panel_titles * title_line / row
body = row * (depth + lines_above)
panel = body + 40
width = columns == 1 ? 820 : 1160
height = top + rows * panel + foot
load "style.gp"
margin = (9.0 * label_width + 30) / width
half = 0.36
unset key
level = 1 - 78.0 / height
do for [s = 1:4] {
    place = 0.5 + (s - 3) * 110.0 / width
    set object s rectangle at screen place, level size screen 22.0 / width, 12.0 / height \
        fillcolor rgb word(shades, s) fillstyle solid noborder
    set label s + 1 word(names, s) at screen place + 18.0 / width, level textcolor rgb ink
}
set yrange [depth - 0.5:-0.5 - lines_above]
set multiplot
do for [i = 0:groups - 1] {
    left = (i % columns) * 1.0 / columns
    ceiling = 1 - (top + (i / columns) * panel) / height
    set lmargin at screen left + margin
    set rmargin at screen left + 1.0 / columns - 16.0 / width
    set tmargin at screen ceiling
    set bmargin at screen ceiling - body / height
    set xrange [0:real(word(ends, i + 1))]
    set xtics tick(real(word(ends, i + 1)))
    if (i + columns < groups) { unset xlabel } else {
        set xlabel "ns per lookup (median repetition)" offset 0,0.4 textcolor rgb ink
    }
    if (i == 1) { unset object; unset label }
    plot data index i every ::1 using (0):1:(0):(0):($1 - half):($1 + half):ytic(2) \
             with boxxyerror notitle, \
         for [s = 1:4] data index i every ::1 \
             using (0):1:(column(s + 2)):(column(s + 3)):($1 - half):($1 + half) \
             with boxxyerror lc rgb word(shades, s) notitle, \
         data index i every ::1 using 8:1:(" ".strcol(9)) with labels left font face.",11" \
             textcolor rgb ink notitle, \
         data index i every ::0::0 using (0):(-0.5 - lines_above / 2):2 with labels left \
             textcolor rgb ink notitle
}
unset multiplot
