# SPDX-License-Identifier: MIT
"""All figures for a paper. A figure is a pair of functions: one picks what a result has for it, and gives
{rest of the name: what to draw}; the other draws that, as wide as it is told."""
from collections import namedtuple

from drawings import kernels, maps, narrow, noise, roofs, size, skew, studies

# files: the results of a record that it is drawn from; joint: from all of them in one figure
Drawing = namedtuple("Drawing", "name pick draw files caption joint", defaults=(False,))

DRAWINGS = (
    Drawing("skew", skew.pick_skew, skew.skew, ("standard", "winners"),
            "Time per lookup against the skew of the ids, for each row width, above the time that the compulsory "
            "traffic takes at the ceilings of the machine."),
    Drawing("unique", skew.pick_distinct, skew.unique, ("standard", "traces"),
            "Time per lookup against the share of distinct rows in a batch: synthetic workloads and recorded traces on "
            "one axis.", joint=True),
    Drawing("speed-memory", kernels.pick_scatter, kernels.scatter, ("standard",),
            "Speed against scratch memory, a panel for each workload; a kernel is better further up and to the left."),
    Drawing("memory", size.pick_memory, size.memory, ("scaling",),
            "Scratch memory and the peak of the process against the rows of the table and the lookups of a batch."),
    Drawing("stages", kernels.pick_stages, kernels.stages, ("standard", "iteration"),
            "Where the time of a step goes: the stages of each kernel's median sample, a panel for each workload."),
    Drawing("roofline", roofs.pick_roofline, roofs.roofline, ("standard",),
            "Speed against lookups per byte of compulsory memory traffic, below the ceilings of the machine; a dash is "
            "the roof of a workload."),
    Drawing("rules-roof", roofs.pick_rules_roof, roofs.rules_roof, ("roof",),
            "Every update rule as a share of its roof on uniform ids, in the order of the bytes of a row's states."),
    Drawing("rules-time", kernels.pick_rules, kernels.rules, ("roof", "peers"),
            "Time per lookup of each update rule, a panel for each workload."),
    Drawing("types", narrow.pick, narrow.savings, ("types",),
            "What narrow types save: time and compulsory bytes, both relative to fp32."),
    Drawing("speedup", maps.pick_speedup, maps.speedup, ("winners", "crossover"),
            "Speed-ups over a named kernel, whose own time is shown, over two axes of the workload."),
    Drawing("winners", maps.pick, maps.winners, ("winners", "crossover"),
            "Which kernel is fastest over two axes of the workload, and by how much it leads the second."),
    Drawing("scaling", size.pick_scaling, size.scaling, ("scaling",),
            "Time per lookup against the lookups of a batch and the rows of the table, and the speed-up by threads."),
    Drawing("ladder", *studies.OF_LADDER, ("ladder",),
            "What each technique is worth: time without it over time with all."),
    Drawing("sweep", *studies.OF_SWEEP, ("sweep",),
            "Is one kernel the fastest everywhere? The best other's time over its own."),
    Drawing("crossover", *studies.OF_CROSSOVER, ("crossover",),
            "Dense or sparse gradient: ratio of times against the share of rows touched."),
    Drawing("determinism", kernels.pick_determinism, kernels.determinism, ("standard", "traces"),
            "The fastest deterministic kernel beside the fastest one that is not, on each workload, with the ratio of "
            "their times."),
    Drawing("peers", kernels.pick_peers, kernels.peers, ("peers",),
            "Time per lookup of kernels, PyTorch and FBGEMM on the same batches, a panel for each rule."),
    Drawing("noise", noise.pick, noise.noise, ("noise",),
            "How far medians of identical code differ in one run: no smaller difference of two kernels means "
            "anything."))
