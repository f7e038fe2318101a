# SPDX-License-Identifier: MIT
# A parameter server: rates, distances in versions, loss, and drift, by mode. Blocks of data: loss by clock for each
# mode, versions for each mode, then a line per mode: number, rate, rate with a slow worker, predicted, drift, drift with
# a slow worker. The first `unlike` modes differ in their staleness, the others admit rows.
width = 1240; height = 860
load "style.gp"
unset label 1
set grid ytics xtics lc rgb pale lt 1 lw 0.7
set multiplot
set label 1 heading."\n".machine at screen 0.5, 1 - 20.0 / height center
wide = 500.0; tall = 290.0; left = 90.0; gap = 610.0; top = 95.0; down = 410.0
do for [i = 0:3] {
    set lmargin at screen (left + (i % 2) * gap) / width
    set rmargin at screen (left + (i % 2) * gap + wide) / width
    set tmargin at screen 1 - (top + (i / 2) * down) / height
    set bmargin at screen 1 - (top + (i / 2) * down + tall) / height
    set label 3 word('"clocks per second of all workers" "versions between a pull and its push" '. \
        '"loss over clocks" "drift of the weights from synchronous, %"', i + 1) \
        at graph 0.5, graph 1.06 center textcolor rgb ink
    unset logscale; set yrange [0:*]; set xrange [*:*]; set autoscale x; unset key; set xtics auto; set format x "%g"
    set xtics norotate left; set offsets 0, 0, 0, 0; set xtics norotate center
    if (i == 0 || i == 3) {
        set xrange [-0.6:modes - 0.4]
        set xtics () rotate by 18 right font face.",11"
        set offsets 0, 0, graph 0.25, 0
        do for [k = 0:modes - 1] { set xtics add (word(names, k + 1) k) }
        set boxwidth 0.36
    }
    if (i == 0) {
        set key inside right top vertical font face.",11"
        plot data index 2 * modes every ::1 using ($1 - 0.2):2 with boxes lc rgb colour(0) title "even workers", \
             data index 2 * modes every ::1 using ($1 + 0.2):3 with boxes lc rgb colour(1) title "one 10 times slower", \
             data index 2 * modes every ::1 using ($1 + 0.2):4 with points pt 2 ps 1.3 lw 2 lc rgb ink title "predicted"
        unset label 1
    }
    if (i == 1) {
        set format y "%g"
        set key inside right top vertical font face.",11"
        set xtics 1
        plot for [k = 0:unlike - 1] data index modes + k every ::1 using 1:2 with linespoints pt 7 ps 0.8 lw 1.8 \
             lc rgb colour(k) title word(names, k + 1)
    }
    if (i == 2) {
        set logscale y; set yrange [*:*]
        set key inside right top vertical font face.",11"
        plot for [k = 0:modes - 1] data index k every ::1 using 1:2 with lines lw 1.6 lc rgb colour(k) \
             title word(names, k + 1)
    }
    if (i == 3) {
        set key inside left top vertical font face.",11"
        plot data index 2 * modes every ::1 using ($1 - 0.2):5 with boxes lc rgb colour(0) title "even workers", \
             data index 2 * modes every ::1 using ($1 + 0.2):6 with boxes lc rgb colour(1) title "one 10 times slower", \
             data index 2 * modes every ::1 using ($1 - 0.2):5:(sprintf("%.1f", $5)) with labels offset 0,0.6 \
                 textcolor rgb ink font face.",11" notitle, \
             data index 2 * modes every ::1 using ($1 + 0.2):6:(sprintf("%.1f", $6)) with labels offset 0,0.6 \
                 textcolor rgb ink font face.",11" notitle
    }
}
unset multiplot
