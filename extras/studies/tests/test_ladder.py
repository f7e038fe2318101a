#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/ladder.py on made-up times."""
import os
import sys

sys.dont_write_bytecode = True
import tap
from spoiled import equal, made_up, need_gnuplot, one_line_error, run, series

KERNELS = ("--kernel=cpu_fused", "--below=cpu_sort")
FAMILIES = {"cpu_fused": "cpu", "cpu_sort": "cpu", "without_a": "ladder", "without_b": "ladder"}
# Samples: the medians are 10, 20, 12.5 and 9.8; a helps clearly, b may help or cost time.
TIMES = {"zipf/alpha:1": {"cpu_fused": (9, 10, 10, 10, 11), "cpu_sort": (19, 20, 20, 21, 90),
                          "without_a": (12, 12.2, 12.5, 13, 40), "without_b": (8, 9.5, 9.8, 10.2, 12)},
         "cached": {"cpu_fused": (4,) * 5, "cpu_sort": (6,) * 5, "without_a": (3,) * 5,
                    "without_b": (5,) * 5}}


def ladder_of(folder, times, **context):
    """A result with these samples, in ns per lookup."""
    kernels = {f"emb_kernel_{k}": f"{f} | host | none | label of {k} | idea" for k, f in FAMILIES.items()}
    rows = (series(w, k, ns) for w, own in times.items() for k, ns in own.items())
    return made_up(folder, "made", *rows, **kernels | context)


def lacking(kernel, *workloads):
    return {w: {k: v for k, v in own.items() if k != kernel or w not in workloads}
            for w, own in TIMES.items()}


def test_the_ratios(folder):
    need_gnuplot()
    done = run("ladder.py", ladder_of(folder, TIMES), folder, *KERNELS)
    equal((done.returncode, done.stderr), (0, ""))
    equal([x for x in done.stdout.splitlines() if x.startswith("| ")], [
        "|  | zipf/alpha:1 | cached |", "| --- | ---: | ---: |",
        "| cpu_fused, ns per lookup | 10.0 | 4.00 |",
        "| label of without_a | 1.25x | 0.75x |",
        "| label of without_b | 0.98x ? | 1.25x |",
        "| cpu_sort: neither fused nor in two levels | 2.00x | 1.50x |"])
    assert "quote" not in done.stdout and "‡" not in done.stdout, done.stdout
    assert "no time" not in done.stdout and "not run" not in done.stdout, done.stdout


def test_missing_and_wrong_kernels_are_named(folder):
    need_gnuplot()
    times = {"zipf/alpha:1": lacking("without_a", "zipf/alpha:1")["zipf/alpha:1"],
             "cached": lacking("without_b", "cached")["cached"]}
    path = ladder_of(folder, times, emb_disturbed_samples="20",
                     emb_not_run_0="zipf/alpha:1 | without_a | WRONG RESULT: row 7")
    done = run("ladder.py", path, folder, *KERNELS)
    equal(done.returncode, 0)
    for text in ("ladder.md\n\n**20 of 30 samples disturbed: do not quote**\n\n|  | zipf",
                 "| label of without_b | 0.98x ? | - |", "- FAILED without_a on zipf/alpha:1: WRONG RESULT: row 7"):
        assert text in done.stdout, done.stdout
    equal([x for x in done.stdout.splitlines() if "no time" in x], ["- no time: without_b on cached"])


def test_bad_input_is_one_line(folder):
    one_line_error(run("ladder.py", os.path.join(folder, "none.json"), folder, *KERNELS), "none.json")
    for kernel in ("cpu_fused", "cpu_sort"):
        path = ladder_of(folder, lacking(kernel, *TIMES))
        one_line_error(run("ladder.py", path, folder, *KERNELS), f"no samples of {kernel}")
    plain = {f"emb_kernel_{k}": "cpu | host | none | label | idea" for k in FAMILIES}
    one_line_error(run("ladder.py", ladder_of(folder, TIMES, **plain), folder, *KERNELS), "folder ladder")
    apart = {"zipf/alpha:1": {"cpu_fused": (1,)}, "cached": {"cpu_sort": (1,)}}
    one_line_error(run("ladder.py", ladder_of(folder, apart), folder, *KERNELS), "no workload together")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "ladder"))
