# SPDX-License-Identifier: MIT
# The frame of a figure with one panel per workload: bars from top to bottom, one axis per panel. In
# multiplot, eval panel(i) comes before each plot.
row = 26.0; title_line = 20.0; top = strlen(heading) > 0 ? 104.0 : 58.0; foot = 45.0 + 15 * words(notes)
lines_above = 0.5 + panel_titles * title_line / row
body = row * (depth + lines_above)
below = body + 40
width = columns == 1 ? 820 : 1160
height = top + rows * below + foot
load "style.gp"
margin = (9.5 * label_width + 30) / width
half = 0.36
# A slanted gap marks the end of a bar that is cut.
gap = 0.016
break_mark(end, cut) = cut > 0 ? end * (1 - 2.5 * gap) : NaN
# For x of a box: NaN, since gnuplot would draw a stage without time as a hairline.
zero(from, to) = to > from ? 0 : NaN
unset key
level = 1 - (top - 26) / height
set yrange [depth - 0.5:-0.5 - lines_above]

left(i) = (i % columns) * 1.0 / columns
ceiling(i) = 1 - (top + (i / columns) * below) / height
panel(i) = sprintf("set lmargin at screen %.17g; set rmargin at screen %.17g; " \
                   ."set tmargin at screen %.17g; set bmargin at screen %.17g; ", \
                   left(i) + margin, left(i) + 1.0 / columns - 16.0 / width, \
                   ceiling(i), ceiling(i) - body / height) \
    .sprintf("set xrange [0:%s]; ", word(ends, i + 1)) \
    .sprintf("set xtics %g; ", tick(real(word(ends, i + 1)))) \
    .(i == 1 ? "unset object; unset label; " : "") \
    .(i + columns < groups ? "unset xlabel" : \
      "set xlabel '".below_axis."' offset 0,0.4 textcolor rgb ink")

# The legend, in the middle above the panels: names and keys, the colours of those.
entry(s) = 8.0 * strlen(word(names, s)) + 48
wide = 0.0
do for [s = 1:words(names)] { wide = wide + entry(s) }
place = 0.5 - 0.5 * wide / width
do for [s = 1:words(names)] {
    set object s rectangle at screen place + 18.0 / width, level size screen 22.0 / width, 12.0 / height \
        fillcolor rgb word(keys, s) fillstyle solid noborder
    set label s + 1 word(names, s) at screen place + 36.0 / width, level textcolor rgb ink
    place = place + entry(s) / width
}
