#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the figures for a paper: what they show is worked out by hand on made-up results, and the whole list
is drawn from recorded ones."""
import glob
import math
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOT
import figures
import make_results
import paper
import results
from spoiled import (HAS_MATPLOTLIB, LINE, RULES, contents, disturbed, equal, make, many_rules, noise_file,
                     one_line_error, rows_of, run, save)

RECORDS = os.path.join(ROOT, "reports", "results")
WIDTHS = {"": 7.0, "-column": 3.33}


def need_matplotlib():
    if not HAS_MATPLOTLIB:
        raise tap.Skip("no matplotlib in this Python")
    paper.set_up()


def drawing_of(name):
    from drawings import DRAWINGS
    return next(d for d in DRAWINGS if d.name == name)


def figures_of(path, name, width=7.0):
    """{rest of the name: figure} that a result has for a drawing."""
    need_matplotlib()
    drawing, result = drawing_of(name), results.load(path)
    return {rest: drawing.draw(width, result, shown) for rest, shown in drawing.pick(result, "cold").items()}


def words_of(figure):
    return [t.get_text() for ax in figure.axes for t in ax.texts]


def head_of(figure):
    return "\n".join(t.get_text() for t in figure.texts)


def entries_of(figure):
    return [t.get_text() for t in figure.legends[0].get_texts()]


def points_of(ax):
    """{label: its points} of all that has error bars."""
    return {c.get_label(): list(zip(*c[0].get_data())) for c in ax.containers if hasattr(c, "has_yerr")}


# --- what single figures show
def with_axes(points, rules=("adam",)):
    """A result on these workloads, {name: (types, values of all rows, {kernel: ns per lookup})}."""
    data = make_results.result(rules=rules, workloads={name: (0, 0.9, 0.001) for name in points})
    for name, (types, values, times) in points.items():
        data["context"][f"emb_workload_{name}"] = "batch 9 dim 64 id_type int64" + types
        for r in rows_of(data, f"workload={name}"):
            ns = times.get(results.words(r)["kernel"], 50)
            r.update(values, ns_per_lookup=ns, real_time=ns * r["lookups"] / 1e6)
    return data


def test_skew_has_a_panel_for_each_dim(folder):
    points = {f"w{dim}-{alpha}": ("", {"alpha": alpha, "dim": dim}, {"cpu_fused": 10 * dim + alpha})
              for dim in (64, 16) for alpha in (1.2, 0, 0.8)}
    figure = figures_of(save(with_axes(points), folder, "skew.json"), "skew")["adam"]
    equal([ax.get_title() for ax in figure.axes], ["dim 16", "dim 64"])
    for ax, dim in zip(figure.axes, (16, 64)):
        equal(points_of(ax)["cpu_fused"], [(a, 10 * dim + a) for a in (0, 0.8, 1.2)])
    assert "ceiling: copy, host" in entries_of(figure) and "median, quartiles" in head_of(figure)
    equal(figures_of(save(with_axes({"one": points["w64-0"]}), folder, "one.json"), "skew"), {})


def test_every_rule_against_its_roof(folder):
    path = many_rules(folder, adam={"ns_per_lookup": 7, "share_roof": 0.5})
    figure = figures_of(path, "rules-roof")[""]
    ax = figure.axes[0]
    equal([t.get_text() for t in ax.get_yticklabels()], ["sgd", "rowwise_adagrad", "momentum", "adam"])
    equal(words_of(figure), ["0", "4", "256", "512", "state, B"])
    equal(ax.patches[3].get_width(), 50.0)
    assert 75.0 in [line.get_xdata()[0] for line in ax.lines]
    entries = entries_of(figure)
    assert "75 % of the roof" in entries and "cpu_fused" in entries and "cpu_dense" not in entries, entries
    assert "100 %" not in head_of(figure)
    over = figures_of(many_rules(folder, sgd={"ns_per_lookup": 7, "share_roof": 1.25}), "rules-roof")[""]
    assert "\nOver 100 %: at the roof" in head_of(over) and over.axes[0].get_xlim()[1] > 125
    equal(figures_of(many_rules(folder, RULES[:3]), "rules-roof"), {})
    with open(many_rules(folder), encoding="utf-8") as file:
        skewed = file.read().replace('"alpha": 0', '"alpha": 0.8')
    equal(figures_of(save(skewed, folder, "skewed.json"), "rules-roof"), {})


def test_the_roof_of_a_workload_by_hand(folder):
    """1 KiB of lines per lookup at 4 GB/s are 256 ns, gradients at 1 GB/s as many: 64 floats."""
    counters = {"line_mib": 1024, "lookups": 2**20, "rmw_gbs": 4, "copy_gbs": 8, "gather_gbs": 1, "gather_mib": 256}
    data = with_axes({"w": ("", counters, dict.fromkeys(make_results.KERNELS, 600) | {"cpu_fused": 512})})
    ax, = figures_of(save(data, folder, "roof.json"), "roofline")["adam"].axes
    at = {line.get_label(): line for line in ax.lines}
    equal([list(v) for v in at["roof of the workload"].get_data()], [[1.0], [1e3 / 256]])
    equal(points_of(ax)["cpu_fused"], [(1.0, 1e3 / 512)])
    x, y = at["copy ceiling"].get_data()
    equal([round(b / a, 6) for a, b in zip(x, y)], [7.8125, 7.8125])  # 8 GB/s over 1 KiB
    equal(round(at["gather ceiling (median)"].get_ydata()[0], 6), 3.90625)


GRID = {f"a/alpha:{alpha}/dim:{dim}/weight_type:{kind}": (
            f" weight_type {kind}" if kind != "fp32" else "", {"alpha": alpha, "dim": dim},
            {"cpu_fused": 10, "cpu_hash": 8 if alpha else 15} if kind == "fp32" else {"cpu_sort": 40})
        for alpha in (0, 1.2) for dim in (8, 64) for kind in ("fp32", "fp16")}


def test_which_kernel_wins_over_alpha_and_dim(folder):
    figure = figures_of(save(with_axes(GRID), folder, "grid.json"), "winners")["a"]
    equal([ax.get_title() for ax in figure.axes], ["adam\nfp32", "adam\nfp16"])
    for ax, kernels in zip(figure.axes, (["cpu_fused", "cpu_fused", "cpu_hash", "cpu_hash"], ["cpu_sort"] * 4)):
        equal([p.get_label() for p in ax.patches], kernels)
        equal([t.get_text() for t in ax.get_xticklabels()], ["0", "1.2"])
        equal([t.get_text() for t in ax.get_yticklabels()], ["8", "64"])
    equal(words_of(figure), ["1.50", "1.50", "1.25", "1.25"] + ["1.25"] * 4)
    same = {name: (types, values, {"cpu_fused": 10, "cpu_hash": 10}) for name, (types, values, _) in GRID.items()}
    figure = figures_of(save(with_axes(same), folder, "same.json"), "winners")["a"]
    equal(set(words_of(figure)), {"≈1.00"})
    one = {name: point for name, point in GRID.items() if "dim:8" in name}
    equal(figures_of(save(with_axes(one), folder, "one.json"), "winners"), {})


def test_a_speedup_names_its_base_and_the_base_has_its_time(folder):
    times = {"cpu_fused": 10, "cpu_hash": 20, "cpu_sort": 40, "cpu_owner": 80, "cpu_atomic": 100}
    points = {f"a/alpha:{alpha}/dim:{dim}": ("", {"alpha": alpha, "dim": dim}, times)
              for alpha in (0, 1) for dim in (8, 64)}
    figure = figures_of(save(with_axes(points), folder, "speed.json"), "speedup")["a-adam"]
    assert "speed-up over cpu_hash" in head_of(figure)
    equal([ax.get_title() for ax in figure.axes],
          ["cpu_hash: ns per lookup", "cpu_fused", "cpu_sort", "cpu_owner", "cpu_atomic"])
    equal([[t.get_text() for t in ax.texts] for ax in figure.axes],
          [[text] * 4 for text in ("20.0", "2.00", "0.500", "0.250", "0.200")])


def test_bytes_saved_and_time_saved(folder):
    points = {"t/weight_type:fp32": ("", {"compulsory_mib": 400}, {"cpu_fused": 10}),
              "t/weight_type:bf16": (" weight_type bf16", {"compulsory_mib": 200}, {"cpu_sort": 7.5}),
              "t/weight_type:fp8": (" weight_type fp8 grad_type bf16", {"compulsory_mib": 100}, {"cpu_fused": 12})}
    figures = figures_of(save(with_axes(points), folder, "types.json"), "types")
    equal(list(figures), [""])
    ax, = figures[""].axes
    equal(ax.get_title(), "adam\nt")
    equal(points_of(ax), {"bf16": [(0.5, 0.75)], "fp8, gradients bf16": [(0.25, 1.2)]})
    assert ax.get_ylim()[1] > 1.2
    del points["t/weight_type:fp32"]
    equal(figures_of(save(with_axes(points), folder, "no-fp32.json"), "types"), {})


def test_scaling_and_memory_follow_one_axis(folder):
    points = {f"n{n}": ("", {"lookups": n, "bags": n / 10, "threads": 2}, {"cpu_fused": 10}) for n in (1000, 2000, 4000)}
    points |= {f"r{n}": ("", {"rows": n, "lookups": 500, "threads": 2, "scratch_mib": n / 100}, {"cpu_fused": 20})
               for n in (10, 100, 1000)}
    points |= {f"t{n}": ("", {"threads": n, "dim": 32}, {"cpu_fused": 80 / n}) for n in (1, 2, 4)}
    path = save(with_axes(points), folder, "scaling.json")
    lookups, rows, threads = figures_of(path, "scaling")["adam"].axes
    equal(points_of(lookups)["cpu_fused"], [(n, 10) for n in (1000, 2000, 4000)])
    equal(points_of(rows)["cpu_fused"], [(n, 20) for n in (10, 100, 1000)])
    line = next(line for line in threads.lines if line.get_label() == "cpu_fused")
    equal([round(v, 6) for v in line.get_ydata()], [1, 2, 4])
    equal(threads.get_ylabel(), "speed-up over 1 thread")
    scratch = next(ax for ax in figures_of(path, "memory")["adam"].axes if ax.get_xlabel().startswith("rows"))
    equal(points_of(scratch)["cpu_fused"], [(10, 0.1), (100, 1), (1000, 10)])


NOISE = {("w", "adam", f"k{i}", "cold"): math.exp(v) for i, v in enumerate((-0.02, 0.01, 0.0, 0.04))}


def test_the_noise_floor(folder):
    figure = figures_of(noise_file(folder, NOISE), "noise")[""]
    steps, *floors = figure.axes[0].lines
    equal([round(100 * math.log1p(x / 100), 6) for x in steps.get_xdata()[2:5]], [1, 2, 4])
    equal(list(steps.get_ydata()[1:5]), [25, 50, 75, 100])
    equal([round(math.log1p(line.get_xdata()[0] / 100), 6) for line in floors], [0.01, 0.04])
    path = noise_file(folder, NOISE, emb_noise_samples="none")
    one_line_error(run("figures.py", path, folder), "noise.json", "make noise")


# --- all of them
def sources():
    """{result of a record: a path}, of the machine that has it first."""
    found = {}
    for path in sorted(glob.glob(os.path.join(RECORDS, "zen*", "*.json"))):
        found.setdefault(os.path.basename(path), path)
    return found


def a_record(folder, *names):
    """A folder with those results of records, and the file of make noise."""
    record = os.path.join(folder, "zen")
    os.mkdir(record)
    for name, path in sources().items():
        if not names or name.removesuffix(".json") in names:
            os.symlink(path, os.path.join(record, name))
    noise_file(record, NOISE, emb_cpu="AMD EPYC")
    return record


def gallery_of(record, out, *args):
    """A process that draws a record, with hashes of another seed than here."""
    return subprocess.Popen([sys.executable, tap.tool("gallery.py"), record, out, *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONHASHSEED": "1"})


def test_missing_data_is_named_with_its_step(folder):
    need_matplotlib()
    record, page = a_record(folder, "types"), os.path.join(folder, "page.md")
    job = gallery_of(record, folder)
    said = job.communicate()[1]
    equal((job.returncode, run("gallery.py", record, "--page", page).returncode), (0, 0))
    lines = said.strip().splitlines()
    assert "not drawn: scaling: zen has no scaling.json; make record NAME=zen STEPS=scaling would measure it" in lines
    assert all(line.startswith("not drawn: ") for line in lines) and not any("types:" in line for line in lines), said
    with open(page, encoding="utf-8") as file:
        text = file.read()
    pictures = re.findall(r"!\[.*\]\((.*)\)", text)
    equal(pictures, ["page/types.png", "page/noise.png"])
    assert all(os.path.getsize(os.path.join(folder, p)) < 60_000 for p in pictures)
    assert "\n- scaling: zen has no scaling.json" in text
    whole, own = os.path.join(RECORDS, "zen5-2core"), os.path.join(folder, "own.md")
    equal(run("gallery.py", record, "--page", own, f"--also={record}", f"--also={whole}").returncode, 0)
    with open(own, encoding="utf-8") as file:
        parts = dict(part.split("\n", 1) for part in file.read().split("\n## ")[1:])
    assert "\nMeasured on [zen5-2core](" in parts["scaling"] and "Measured on" not in parts["types"], parts


def test_bad_records_are_one_line(folder):
    need_matplotlib()
    made = make("figures", "RECORD=none", f"OUT={folder}")
    assert made.returncode and "none: holds no result; make record NAME=none" in made.stderr, made.stderr
    record = a_record(folder, "roof")
    with open(sources()["standard.json"], encoding="utf-8") as file:
        text = file.read()
    for changed, why in ((text.replace('"AMD EPYC"', '"Other"', 1), "several machines"), (text[:5000], "not JSON")):
        save(changed, record, "standard.json")
        job = gallery_of(record, folder)
        said = job.communicate()[1]
        equal(job.returncode, 1)
        assert said.count("\n") == 1 and said.startswith("gallery.py: ") and why in said, said


def test_figures_of_a_result_and_their_page(folder):
    need_matplotlib()
    done = run("figures.py", GOLDEN, folder)
    equal((done.returncode, done.stderr), (0, ""))
    made = contents(folder, (".svg", ".pdf", ".png", ".html"))
    names = ("determinism", "roofline", "skew", "speed-memory", "stages", "unique")
    equal(sorted(made), sorted(["index.html", *(f"paper-{n}-rowwise_adagrad-cold{end}.{kind}" for n in names
                                                for end in WIDTHS for kind in ("pdf", "svg", "png"))]))
    page = made["index.html"].decode()
    assert "Not drawn" in page and "peers: results.json has no data for it" in page
    for name, data in made.items():
        if name.endswith(".svg"):
            assert b"cpu_fused" in data and b"sort, fused" not in data and b"Synthetic CPU" in data, name


def test_figures_have_the_caution(folder):
    path = disturbed(folder, 90, emb_load_worst="5.2")
    for width in WIDTHS.values():
        for figure in figures_of(path, "determinism", width).values():
            equal(figure.texts[0].get_text().replace("\n", " "), LINE)
            equal(figure.texts[0].get_color(), "#c00000")


def test_figures_across_rules_for_the_pages_of_records(folder):
    need_matplotlib()
    points = {f"t/alpha:{alpha}/dim:{dim}/weight_type:{kind}": (
                  f" weight_type {kind}" * (kind != "fp32"), {"alpha": alpha, "dim": dim}, {})
              for alpha in (0, 1) for dim in (8, 64) for kind in ("fp32", "bf16")}
    result = results.load(save(with_axes(points, RULES), folder, "all.json"))
    for prefix, names in (("rules-", ["rules-roof"]), ("winners-", ["winners-t"]),
                          ("types", ["types-dim-8", "types-dim-64"])):
        made = list(figures.draw_across(result, folder, "cold", ["png"], prefix))
        equal([os.path.relpath(p, folder) for p in made], [f"paper-{n}-cold.png" for n in names])


def test_missing_matplotlib_is_one_line(folder):
    save("raise ImportError('hidden by the test')", folder, "matplotlib.py")
    one_line_error(run("figures.py", GOLDEN, folder, env={"PYTHONPATH": folder}), "python3-matplotlib")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "figures"))
