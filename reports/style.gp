# SPDX-License-Identifier: MIT
# The look of all quick plots; style.py has the same for matplotlib. Reads kind (svg or png), width and
# height; the other variables come from export.py through plots.py, which saves the picture.
if (!exists("face")) { face = "DejaVu Sans" }
bold = kind eq "png" ? face.":Bold" : face # an SVG would name a font "DejaVu Sans:Bold"
if (kind eq "svg") {
    set terminal svg size width,height font face.",13" noenhanced background rgb "white"
} else {
    set terminal pngcairo size 2*width,2*height font face.",13" fontscale 2 noenhanced \
        linewidth 2 pointscale 2 background rgb "white"
}
set encoding utf8

ink = "#333333"; pale = "#dddddd"; band = "#f5f5f5"
colour(i) = word(colours, i + 1)
point(i) = int(word(points, i + 1))

set border 0
set tics nomirror scale 0 textcolor rgb ink
set key outside right top Left reverse samplen 1.5 spacing 1.25 textcolor rgb ink
set grid xtics lc rgb pale lt 1 lw 0.7
set style fill solid 1.0 noborder
if (!exists("caution")) { caution = "" }
if (!exists("notes")) { notes = "" }
# At the top: what cut the run short, and how well rows are known. A long line has smaller letters, a longer one is two.
fitting = 1.2 * width / (strlen(caution) + 1)
behind = int(0.4 * strlen(caution))
break = fitting < 9 ? strstrt(caution[behind + 1:*], "; ") : 0
if (break) {
    caution = caution[1:behind + break]."\n".caution[behind + break + 2:*]
    fitting = 9
}
set label 989 caution at screen 0.5, 1 - 10.0 / height center textcolor rgb "#c00000" \
    font bold.sprintf(",%d", fitting < 12 ? fitting : 12)
set label 1 heading."\n".machine at screen 0.5, 1 - (break ? 38.0 : 30.0) / height center textcolor rgb ink
# At the bottom, in small print: what failed, and what the marks mean.
foot_lines = words(notes)
do for [i = 1:foot_lines] {
    set label 989 + i word(notes, i) at screen 0.015, screen (8.0 + 15 * (foot_lines - i)) / height \
        font face.",10" textcolor rgb ink
}

# Log axes have ticks at 1, 2 and 5, or at powers of ten if they are long.
if (exists("low")) { marks = high / low > 2000 ? "1" : "1 2 5" }

# Ceilings are grey lines. tick(): a distance of 1, 2 or 5 times a power of ten for about four ticks.
grey = "#777777"
unsure = "#aaaaaa"
decade(x) = 10.0**floor(log10(x))
rounded(x) = x < 1.5 ? 1 : x < 3.5 ? 2 : x < 7.5 ? 5 : 10
tick(span) = decade(span / 4) * rounded(span / 4 / decade(span / 4))
