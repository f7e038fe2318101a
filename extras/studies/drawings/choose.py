# SPDX-License-Identifier: MIT
"""What of a result a figure compares: curves along one axis, and grids over two. Groups belong together if they
are equal in everything else, by their counters: names of workloads do not matter."""
from paper import short
from results import TYPES, family

AXES = ("alpha", "dim", "rows", "tables", "lookups", "pooling", "load", "threads")
TITLES = {"alpha": "alpha of the ids (0: uniform)", "dim": "floats per row", "rows": "rows of the table",
          "tables": "tables", "lookups": "lookups of a batch", "load": "lookups of a batch per row of the table",
          "threads": "threads"}
RATIOS = {"pooling": ("lookups", "bags"), "load": ("lookups", "rows")}
NEARLY = ("lookups", *RATIOS)  # random lengths of bags make these differ a little
FULL = 0.8  # least share of the places of a grid
PANELS, WIDTHS = 12, 6  # most panels of a figure, of workloads and of dims
TYPE_NAMES = {"momentum_type": "momenta", "grad_type": "gradients", "rounding": "rounding"}


def value(group, axis):
    """Where a group is on an axis, or None."""
    if axis not in RATIOS:
        return group.median(axis)
    whole, parts = map(group.median, RATIOS[axis])
    return whole / parts if whole and parts else None


def values(groups, axis):
    """All places on an axis, ascending."""
    return sorted({placed(g, axis) for g in groups} - {None})


def placed(group, axis):
    """The same, equal for nearly equal workloads."""
    v = value(group, axis)
    return float(f"{v:.3g}") if v and axis in NEARLY else v


def rest(group, *free):
    """What else a group is: its rule, types, and its places on all other axes."""
    return (group.rule, type_text(group.types), *(placed(group, axis) for axis in AXES if axis not in free))


def by_key(groups, key):
    """{key of a group: groups}, in the order of the groups, with the groups of a rule together."""
    found = {}
    rules = list(dict.fromkeys(g.rule for g in groups))
    for g in sorted(groups, key=lambda g: rules.index(g.rule)):
        found.setdefault(key(g), []).append(g)
    return found


def type_text(types):
    """'bf16, gradients bf16'; weights come first and are fp32 unless it is said."""
    more = [f"{TYPE_NAMES[k]} {v}" for k, v in types.items() if k in TYPE_NAMES]
    return ", ".join([types.get("weight_type", "fp32"), *more])


def against_fp32(groups):
    """{(rule, workload without its types): (the group of fp32 alone, the groups of other types)}"""
    timed = [g for g in groups if g.best() and g.median("compulsory_mib") and g.median("dim")]
    found = {}
    for key, own in by_key(timed, lambda g: (g.rule, family(g.workload, TYPES))).items():
        plain = [g for g in own if not g.types]
        if plain and len(own) > 1:
            found[key] = plain[0], [g for g in own if g.types]
    return found


def curves(groups, axis, free=()):
    """Lists of groups that differ in an axis alone, and in what is free with it; each by rising value."""
    timed = [g for g in groups if g.best() and value(g, axis) is not None]
    found = []
    for own in by_key(timed, lambda g: rest(g, axis, *free)).values():
        once = len(values(own, axis)) == len(own)  # else they differ in what no counter tells, but their names do
        found += [own] if once else by_key(own, lambda g: family(g.workload, AXES)).values()
    return [sorted(own, key=lambda g: value(g, axis)) for own in found if len(values(own, axis)) > 1]


def fullest(dims):
    """Of {dim: groups} those with the most groups, by rising dim."""
    kept = sorted(dims, key=lambda dim: -len(dims[dim]))[:WIDTHS]
    return {dim: dims[dim] for dim in sorted(kept)}


def in_parts(found):
    """{name: list or dictionary of panels} with so many each as a figure can show; further parts have a number."""
    parts = {}
    for name, shown in found.items():
        every = list(shown.items() if isinstance(shown, dict) else shown)
        for i in range(0, len(every), PANELS):
            parts["-".join(filter(None, (name, i and str(i // PANELS + 1))))] = type(shown)(every[i:i + PANELS])
    return parts


def longest(found, axis):
    """The curve with the most values; of several, that with the most rows."""
    return max(found, key=lambda own: (len(values(own, axis)), own[0].median("rows") or 0), default=None)


def grids(groups, across, up, free=()):
    """{name of the grid: {(rule, types, what else): groups}} of groups that differ in two axes alone and have most
    places of the grid."""
    timed = [g for g in groups if g.best() and None not in (value(g, across), value(g, up))]
    found = {}
    for key, own in by_key(timed, lambda g: rest(g, across, up, *free)).items():
        xs, ys = values(own, across), values(own, up)
        if len(xs) > 1 and len(ys) > 1 and FULL * len(xs) * len(ys) <= len(own) <= len(xs) * len(ys):
            names = {family(g.workload, (*AXES, *TYPES)) for g in own}
            name = names.pop() if len(names) == 1 else f"{across}-{up}"
            found.setdefault(name, {})[key] = own
    return found


def titles_of(kept, across, up, free=()):
    """{key of a panel: (its rule, what else differs between the panels)}"""
    names = ["rule", "", *(axis for axis in AXES if axis not in (across, up, *free))]
    differs = [i for i in range(1, len(names)) if len({key[i] for key in kept}) > 1]
    text = lambda i, v: v if i == 1 else f"{names[i]} {short(v)}"
    return {key: (key[0], ", ".join(text(i, key[i]) for i in differs if key[i] is not None)) for key in kept}
