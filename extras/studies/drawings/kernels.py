# SPDX-License-Identifier: MIT
"""Figures that compare kernels on the workloads of a result: speed and memory, stages, peers, rules, and what
determinism costs."""
import math

from export import by_rule, kernels_of, stage_key, stage_panel
from paper import (PAGE, SMALL, dots, empty_rows, finish, log_axis, look, panels, point_notes, range_of, row_marks,
                   striped, unmeasured)
from results import FORWARD, PEERS, STAGES, WEIGHT_GRAD, by_state, by_workload
from style import nice_range, number, wrap

from drawings.choose import by_key, in_parts

FEWEST = 3  # rules of a workload that are a panel


def speeds(series):
    """Quartiles of the speed, in million lookups per second."""
    return [1e3 / ns for ns in reversed(series.quartiles("ns_per_lookup"))]


def pick_scatter(result, mode):
    """Of workloads whose memory is known."""
    found = {rule: [g for g in groups if g.median("scratch_mib") is not None and g.best()]
             for rule, groups in by_rule(result, mode).items()}
    return in_parts(found)


def scatter(width, result, groups):
    """Speed against scratch, a panel per workload; up and to the left is better."""
    figure, axes = panels(width, len(groups), (3, 5), 1.35, sharex=True, sharey=True)
    measured = [s for g in groups for s in g.measured()]
    low, high = nice_range([s.median("scratch_mib") for s in measured], 1.4)
    zero = low / 3 if any(not s.median("scratch_mib") for s in measured) else None
    rates = nice_range([1e3 / (s.ns or math.inf) for s in measured], 1.25)
    for ax, group in zip(axes, groups):
        for kernel, mark in kernels_of(groups):
            s = group.of(kernel.name)
            if s and s.ns:
                row_marks(ax, [(s.median("scratch_mib") or zero, speeds(s), group.quotable(s))], clip_on=False,
                          **look(kernel, mark, line=False))
        ax.set_title(wrap(group.workload, 18))
    log_axis(axes[0].xaxis, low, high, room=3, zero=zero)
    log_axis(axes[0].yaxis, *rates)
    return finish(figure, axes, result, groups, "speed and memory", "scratch, MiB (up and to the left is better)",
                  "million lookups per second", point_notes(groups))


def pick_stages(result, mode):
    """Of workloads with stages."""
    staged = lambda g: any(g.median(f"{stage}_ms") for stage in STAGES)
    return in_parts({rule: list(filter(staged, groups)) for rule, groups in by_rule(result, mode).items()
                     if rule not in (FORWARD, WEIGHT_GRAD)})


def stages(width, result, groups):
    """One bar of stages per kernel, one panel per workload; see export.stage_panel."""
    deep, mode = max(len(g.measured()) for g in groups), groups[0].mode
    drawn, ends = zip(*(stage_panel(g) for g in groups))
    same = len({tuple(row[1] for row in rows) for _, *rows in drawn}) == 1  # the kernels, so their names stand left
    figure, axes = panels(width, len(groups), (1 + same, 3 + same), 0.42 + 0.15 * deep, sharey=same)
    for ax, group, (_, *rows), end in zip(axes, groups, drawn, ends):
        for i, (name, shade) in enumerate(stage_key(drawn, mode)):
            ax.barh([r[0] for r in rows], [r[3 + i] - r[2 + i] for r in rows],
                    left=[r[2 + i] for r in rows], color=shade, label=name, height=0.7)
        for row in rows:
            *_, stop, text, cut = row
            ax.text(stop + end * 0.015, row[0], text, va="center", fontsize=SMALL)
            if cut:  # a break mark
                ax.plot([stop - end * 0.035, stop - end * 0.015], [row[0] + 0.45, row[0] - 0.45],
                        color="white", lw=2.5)
        ax.set_yticks([r[0] for r in rows], [r[1] for r in rows])
        ax.set(xlim=(0, end), ylim=(deep - 0.5, -0.5), title=wrap(group.workload, 22))
        ax.locator_params(axis="x", nbins=4)
        ax.grid(False, axis="y")
        ax.tick_params(axis="y", length=0)
    return finish(figure, axes, result, groups, "time by stage", "ns per lookup", points="median sample")


# --- rows of dots
def rows_figure(width, result, shown, labels, row_of, subject, notes=()):
    """A panel of dots for each title in shown, {title: groups}; row_of() gives the label of a group's row."""
    groups = [g for own in shown.values() for g in own]
    kernels, drawn = [k for k, _ in kernels_of(groups)], []
    height = 0.45 + len(labels) * max(0.16, 0.047 * len(kernels))
    figure, axes = panels(width, len(shown), (2, 4), height, sharex=True, sharey=True)
    for ax, (title, own) in zip(axes, shown.items()):
        rows = [labels.index(row_of(g)) for g in own]
        striped(ax, [wrap(label, 16) for label in labels])
        empty_rows(ax, len(labels), rows)
        drawn += dots(ax, rows, own, kernels)
        ax.set_title(wrap(title, 24))
    log_axis(axes[0].xaxis, *range_of(drawn), room=5 if width == PAGE else 4)
    return finish(figure, axes, result, groups, subject, "ns per lookup",
                  notes=[*notes, *unmeasured(groups, kernels), *point_notes(groups)])


def pick_peers(result, mode):
    """{rule: groups} of all workloads that a peer ran."""
    every = [g for own in by_rule(result, mode).values() for g in own]
    ran = {g.workload for g in every if any(s.kernel.family in PEERS for s in g.measured())}
    groups = [g for g in every if g.workload in ran]
    return {"": by_key(groups, lambda g: g.rule)} if groups else {}


def peers(width, result, shown):
    """Kernels beside PyTorch and FBGEMM: a panel per rule, and a row per workload."""
    labels = list(dict.fromkeys(g.workload for own in shown.values() for g in own))
    return rows_figure(width, result, shown, labels, lambda g: g.workload, "beside PyTorch and FBGEMM")


def pick_rules(result, mode):
    """{workload: its groups by the bytes of a row's states} of workloads with several rules."""
    groups = [g for own in by_rule(result, mode).values() for g in own if g.best() and not g.types]
    shown = {w: by_state(own) for w, own in by_workload(groups).items() if len(own) >= FEWEST}
    return in_parts({"": shown})


def rules(width, result, shown):
    """What each rule costs: a panel per workload, and a row per rule."""
    labels = list(dict.fromkeys(state_text(g) for g in by_state([g for own in shown.values() for g in own])))
    notes = ["In brackets: bytes of a row's states."] * any("(" in label for label in labels)
    return rows_figure(width, result, shown, labels, state_text, "time of each rule", notes)


def state_text(group):
    state = group.median("state_bytes")
    return group.rule if state is None else f"{group.rule} ({state:.0f})"


# --- determinism
def fastest(group):
    """(the fastest deterministic series, the fastest other one) of the suite's kernels, or Nones."""
    own = [s for s in group.lazy() if not s.kernel.guest]
    sure = lambda s: "deterministic" in s.kernel.traits
    return tuple(min((s for s in own if sure(s) == kind), key=lambda s: s.ns, default=None) for kind in (True, False))


def pick_determinism(result, mode):
    found = {rule: [g for g in groups if all(fastest(g))] for rule, groups in by_rule(result, mode).items()}
    return {rule: own for rule, own in found.items() if own}


def determinism(width, result, groups):
    """The fastest deterministic kernel and the fastest other one in a row per workload, joined by a line, with the
    ratio of their times."""
    figure, (ax,) = panels(width, 1, (1, 1), 0.45 + 0.18 * len(groups))
    drawn = []
    striped(ax, [wrap(g.workload, 30) for g in groups])
    for y, group in enumerate(groups):
        pair = fastest(group)
        ax.plot([s.ns for s in pair], [y, y], color="#bbbbbb", lw=1.5, zorder=1)
        for s, kind in zip(pair, ("deterministic", "not deterministic")):
            drawn += row_marks(ax, [(y, s.quartiles("ns_per_lookup"), group.quotable(s))], True,
                               **look(s.kernel, line=False) | {"label": f"{s.kernel.title}, {kind}"})
        ax.text(1.01, y, number(pair[0].ns / pair[1].ns), va="center", fontsize=6.5,
                transform=ax.get_yaxis_transform())
    log_axis(ax.xaxis, *range_of(drawn, 1.2), room=7 if width == PAGE else 4)
    note = "Right: time of the fastest deterministic kernel / time of the fastest other one; below 1, none is lost."
    return finish(figure, [ax], result, groups, "what determinism costs", "ns per lookup",
                  notes=[note, *point_notes(groups, fastest)])
