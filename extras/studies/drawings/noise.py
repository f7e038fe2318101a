# SPDX-License-Identifier: MIT
"""The noise floor: how far medians of identical code differ in one run (make noise)."""
import math

import noise_floor
from paper import CAUTION_COLOUR, COLUMN, GREY, finish, log_axis, panels, range_of
from style import GUEST_COLOURS

DASHES = ("-", "--", ":")
SHARES = (0.5, noise_floor.SHARE)  # marked: the last one is the floor


def is_noise(result):
    return "emb_noise_samples" in result.context


def pick(result, _mode):
    return {"": noise_floor.of(result)} if is_noise(result) else {}


def percent(ratio):
    return 100 * math.expm1(abs(math.log(ratio)))


def noise(width, result, shown):
    """The share of pairs whose medians differ by at most x, with the floor marked."""
    figure, (ax,) = panels(width, 1, (1, 1), 2.0)
    modes = {}
    for pair in shown.pairs:
        modes.setdefault(pair.key[-1], []).append(percent(pair.ratio))
    marks = [(f"{100 * s:.0f} %", 100 * noise_floor.floor_of((p.ratio for p in shown.pairs), s)) for s in SHARES]
    low, high = range_of([v for own in modes.values() for v in own if v > 0] + [v for _, v in marks if v > 0])
    for (mode, own), shade, dash in zip(modes.items(), GUEST_COLOURS, DASHES):
        xs = sorted(own)
        ys = [100 * (i + 1) / len(xs) for i in range(len(xs))]
        ax.step([low, *(max(low, x) for x in xs), high], [0, *ys, 100], where="post", color=shade, ls=dash,
                label=f"{mode}, {len(own)} pairs")
    for name, v in marks:
        ax.axvline(v, color=CAUTION_COLOUR if name == marks[-1][0] else GREY, lw=0.8, label=f"{name} below {v:.2g} %")
    log_axis(ax.xaxis, low, high, room=5 if width == COLUMN else 9)
    ax.set(ylim=(0, 102))
    return finish(figure, [ax], result, [], "Noise floor: A against A', identical code in one run",
                  "difference of the two medians, %", "pairs, % (cumulative)", [], points="")
