# SPDX-License-Identifier: MIT
"""Figures for a paper that look across rules, points and types: every rule against its roof, the winners over
alpha and dim, and what narrow types save. A result that lacks what a figure compares does not get it.

The fastest kernel is that of the lazy operation.
"""
from export import slug
from paper import GREY, legend, look, panels, title
from results import MANY_RULES, OVER_MARK, OVER_NOTE, TYPES, by_speed, by_state, by_workload, family
from style import colour, number, wrap

GOOD = 0.75  # share of the roof, a line in its figure
ROOF_KERNELS = 3  # the usually fastest ones
BAND = "#e8e8e8"
# Types of weights have colours that no kernel has; what else is narrow fills the mark.
TYPE_LOOKS = {"fp32": ("#555555", "o"), "bf16": ("#332288", "s"), "fp16": ("#882255", "D"),
              "fp8": ("#999933", "^")}
FILLS = ("full", "none", "left", "bottom", "right", "top")
TYPE_NAMES = {"momentum_type": "momenta", "grad_type": "gradients", "rounding": "rounding"}
AXES = ("alpha", "dim", *TYPES)


def by_key(groups, key):
    """{key of a group: groups}, in the order of the groups, but those of a rule together."""
    found = {}
    rules = list(dict.fromkeys(g.rule for g in groups))
    for g in sorted(groups, key=lambda g: rules.index(g.rule)):
        found.setdefault(key(g), []).append(g)
    return found


# --- every rule against its roof
def rule_panels(groups):
    """[(workload, its groups)] of uniform ids and many rules that have a roof; those of a workload are in the
    order of their states."""
    roofed = [g for g in groups if g.median("alpha") == 0 and g.best() and g.best().median("share_roof")]
    return [(w, by_state(own)) for w, own in by_workload(roofed).items() if len(own) >= MANY_RULES]


def rules_roof(result, shown):
    """Shares of the roof, a line per rule and a panel per workload; bars end at the fastest kernel."""
    rules = list(dict.fromkeys(g.rule for _, own in shown for g in own))
    figure, axes = panels(len(shown), 3, 0.5 + 0.15 * len(rules), sharex=True, sharey=True)
    groups = [g for _, own in shown for g in own]
    kernels = by_speed(groups)[:ROOF_KERNELS]
    most = max(s.median("share_roof") or 0 for g in groups for s in g.lazy())
    for ax, (workload, own) in zip(axes, shown):
        ys = [rules.index(g.rule) for g in own]
        ax.barh(ys, [100 * g.best().median("share_roof") for g in own], color=BAND, height=0.7,
                label="the fastest kernel")
        for kernel in reversed(kernels):
            points = [(y, s.quartiles("share_roof")) for y, g in zip(ys, own)
                      if (s := g.of(kernel.name)) in g.lazy() and s.median("share_roof")]
            low, mid, high = ([100 * q[i] for _, q in points] for i in range(3))
            ax.errorbar(mid, [y for y, _ in points], ls="none",
                        xerr=[[m - v for m, v in zip(mid, low)], [v - m for m, v in zip(mid, high)]],
                        **look(kernel, ""))
        ax.axvline(100 * GOOD, color=GREY, ls="--", lw=0.9, label=f"{100 * GOOD:g} % of the roof")
        states = [(y, g.median("state_bytes")) for y, g in zip(ys, own)]
        texts = [(y, f"{state:.0f}") for y, state in states if state is not None]
        for y, text in [*texts, *[(-1, "state, B")] * bool(texts)]:
            ax.text(1.02, y, text, va="center", fontsize=6, transform=ax.get_yaxis_transform())
        ax.set(xlim=(0, 105 * max(1, most)), ylim=(len(rules) - 0.5, -0.7), title=wrap(workload, 34))
        ax.set_yticks(range(len(rules)), rules, fontsize=6)
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
    figure.supxlabel("% of the roof (median, quartiles); rules by the bytes of a row's states", fontsize=7)
    legend(figure, axes)
    title(figure, result, groups, "distance from the roof at alpha 0",
          [OVER_NOTE.removeprefix(OVER_MARK).strip().capitalize()] * (most > 1))
    return figure


# --- which kernel wins where
def type_text(types):
    """'bf16, gradients bf16'; weights come first and are fp32 unless it is said."""
    more = [f"{TYPE_NAMES[k]} {v}" for k, v in types.items() if k in TYPE_NAMES]
    return ", ".join([types.get("weight_type", "fp32"), *more])


def grids(groups):
    """{what stays the same in a figure: {(rule, types): groups over several alphas and dims}}"""
    timed = [g for g in groups if g.best() and None not in (g.median("alpha"), g.median("dim"))]
    several = lambda own, axis: len({g.median(axis) for g in own}) > 1
    key = lambda g: (family(g.workload, AXES), g.rule, type_text(g.types))
    found = {}
    for (name, *panel), own in by_key(timed, key).items():
        if several(own, "alpha") and several(own, "dim"):
            found.setdefault(name, {})[tuple(panel)] = own
    return found


def lead_text(group):
    """By how much the fastest kernel leads: '1.25', or '≈' if another one cannot be told from it."""
    times = sorted(s.ns for s in group.lazy())
    if len(times) < 2:
        return "-"
    return "≈" * (len(group.fastest()) > 1) + number(times[1] / times[0])


def winners(result, kept):
    """A panel per rule and type: the winner over alpha and dim as colour, its lead as text."""
    from matplotlib.patches import Rectangle
    groups = [g for own in kept.values() for g in own]
    alphas, dims = (sorted({g.median(axis) for g in groups}) for axis in ("alpha", "dim"))
    figure, axes = panels(len(kept), len({types for _, types in kept}), 0.45 + 0.22 * len(dims))
    for ax, ((rule, types), own) in zip(axes, kept.items()):
        for g in own:
            x, y, best = alphas.index(g.median("alpha")), dims.index(g.median("dim")), g.best().kernel
            ax.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=colour(best), alpha=0.5, lw=0,
                                   label=best.title))
            ax.text(x, y, lead_text(g), ha="center", va="center", fontsize=6)
        ax.set(xlim=(-0.5, len(alphas) - 0.5), ylim=(-0.5, len(dims) - 0.5), title=f"{rule}\n{types}")
        ax.set_xticks(range(len(alphas)), [f"{a:g}" for a in alphas])
        ax.set_yticks(range(len(dims)), [f"{d:g}" for d in dims])
        ax.grid(False)
        ax.tick_params(length=0)
    figure.supxlabel("alpha of the ids (0: uniform)", fontsize=7)
    figure.supylabel("floats per row", fontsize=7)
    legend(figure, axes, title="fastest kernel, with\nthe second's time over\nits own; ≈: cannot be\ntold apart",
           title_fontsize=6.5)
    title(figure, result, groups, "which kernel wins", [])
    return figure


# --- bytes saved and time saved
def against_fp32(groups):
    """{(rule, workload without its types): (the group of fp32 alone, those of other types)}"""
    timed = [g for g in groups if g.best() and g.median("compulsory_mib") and g.median("dim")]
    found = {}
    for key, own in by_key(timed, lambda g: (g.rule, family(g.workload, TYPES))).items():
        plain = [g for g in own if not g.types]
        if plain and len(own) > 1:
            found[key] = plain[0], [g for g in own if g.types]
    return found


def other(group):
    """What is narrow beside the weights."""
    return tuple((k, v) for k, v in group.types.items() if k != "weight_type")


def savings(result, found):
    """A panel per rule and workload: time against bytes, both relative to fp32."""
    figure, axes = panels(len(found), min(4, len({name for _, name in found})), 1.75, sharex=True, sharey=True)
    others = sorted({other(g) for _, own in found.values() for g in own}, key=lambda o: (len(o), o))
    most = 1.0
    for ax, ((rule, name), (plain, own)) in zip(axes, found.items()):
        ax.plot([0, 2], [0, 2], color=GREY, lw=0.9, label="time falls as bytes do")
        ax.axhline(1, color=GREY, lw=0.9, ls="--", label="the time of fp32")
        for g in own:
            low, mid, high = (v / plain.best().ns for v in g.best().quartiles("ns_per_lookup"))
            shade, marker = TYPE_LOOKS[g.types.get("weight_type", "fp32")]
            ax.errorbar(g.median("compulsory_mib") / plain.median("compulsory_mib"), mid,
                        [[mid - low], [high - mid]], ls="none", color=shade, marker=marker, ms=4, elinewidth=0.8,
                        fillstyle=FILLS[others.index(other(g)) % len(FILLS)], label=type_text(g.types))
            most = max(most, mid)
        ax.set_title(f"{rule}\n{wrap(name, 24)}")
    for ax in axes:
        ax.set(xlim=(0, 1.1), ylim=(0, 1.1 * most))
    figure.supxlabel("compulsory bytes, relative to fp32", fontsize=7)
    figure.supylabel("time, relative to fp32", fontsize=7)
    legend(figure, axes, title="weights, other types", title_fontsize=6.5)
    title(figure, result, [plain for plain, _ in found.values()], "bytes and time of narrow types",
          ["Time: the fastest kernel of each type; median, quartiles."])
    return figure


def figures(result, mode):
    """(name, figure) of all that a result has."""
    groups = [g for g in result.groups(mode) if g.measured()]
    shown = rule_panels(groups)
    if shown:
        yield "rules-roof", rules_roof(result, shown)
    for name, kept in grids(groups).items():
        yield f"winners-{slug(name)}", winners(result, kept)
    found = against_fp32(groups)
    dims = by_key([plain for plain, _ in found.values()], lambda g: g.median("dim"))
    for dim in dims:
        name = "types" if len(dims) == 1 else f"types-dim-{dim:g}"
        yield name, savings(result, {k: v for k, v in found.items() if v[0] in dims[dim]})
