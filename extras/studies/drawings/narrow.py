# SPDX-License-Identifier: MIT
"""What narrow types of weights, momenta and gradients save: bytes, and time."""
from paper import GREY, finish, marks, panels
from style import wrap

from drawings.choose import against_fp32, by_key, type_text

# Types of weights have colours that no kernel has; what else is narrow fills the mark.
LOOKS = {"fp32": ("#555555", "o"), "bf16": ("#332288", "s"), "fp16": ("#882255", "D"), "fp8": ("#999933", "^")}
FILLS = ("full", "none", "left", "bottom", "right", "top")


def pick(result, mode):
    """{dim, if there are several: {(rule, workload without its types): (the group of fp32 alone, the others)}}"""
    found = against_fp32(result.groups(mode))
    dims = by_key([plain for plain, _ in found.values()], lambda g: g.median("dim"))
    of = lambda dim: {key: pair for key, pair in found.items() if pair[0] in dims[dim]}
    return {f"dim-{dim:g}" if len(dims) > 1 else "": of(dim) for dim in dims}


def other(group):
    """What is narrow beside the weights."""
    return tuple((k, v) for k, v in group.types.items() if k != "weight_type")


def savings(width, result, found):
    """A panel per rule and workload: time against bytes, both relative to fp32."""
    figure, axes = panels(width, len(found), (2, 4), 1.7, sharex=True, sharey=True)
    others = sorted({other(g) for _, own in found.values() for g in own}, key=lambda o: (len(o), o))
    most = 1.0
    for ax, ((rule, name), (plain, own)) in zip(axes, found.items()):
        ax.plot([0, 2], [0, 2], color=GREY, lw=0.9, label="time falls as bytes do")
        ax.axhline(1, color=GREY, lw=0.9, ls="--", label="the time of fp32")
        for g in own:
            times = [v / plain.best().ns for v in g.best().quartiles("ns_per_lookup")]
            shade, marker = LOOKS[g.types.get("weight_type", "fp32")]
            marks(ax, [(g.median("compulsory_mib") / plain.median("compulsory_mib"), times)], ls="none", color=shade,
                  marker=marker, ms=4, elinewidth=0.8, fillstyle=FILLS[others.index(other(g)) % len(FILLS)],
                  label=type_text(g.types))
            most = max(most, times[2])
        ax.set_title(f"{rule}\n{wrap(name, 24)}")
    for ax in axes:
        ax.set(xlim=(0, 1.1), ylim=(0, 1.1 * most))
    return finish(figure, axes, result, [plain for plain, _ in found.values()], "bytes and time of narrow types",
                  "compulsory bytes, relative to fp32", "time, relative to fp32",
                  ["Time: the fastest kernel of each type."], title="weights, other types")
