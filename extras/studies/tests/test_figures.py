#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the figures for a paper: what they show is worked out by hand on made-up results, and the whole list
is drawn from recorded ones."""
import glob
import itertools
import math
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOT
import figures
import made_results
import make_results
import paper
import program
import results
import style
from spoiled import contents, equal, full_disk, make, noise_file, one_line_error, rows_of, run, save

RECORDS = os.path.join(ROOT, "reports", "results")
WIDTHS = {"": 7.0, "-column": 3.33}


def need_matplotlib():
    made_results.need_matplotlib()
    paper.set_up()


def drawing_of(name):
    from drawings import DRAWINGS
    return next(d for d in DRAWINGS if d.name == name)


def figures_of(path, name, width=7.0):
    """{rest of the name: figure} that a result has for a drawing."""
    need_matplotlib()
    drawing, result = drawing_of(name), results.load(path)
    return {rest: drawing.draw(width, result, shown) for rest, shown in drawing.pick(result, "cold").items()}


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


def texts_of(ax):
    return [t.get_text() for t in ax.texts]


def test_every_point_of_a_roofline_has_a_name(folder):
    data = make_results.result(workloads={f"w{i}/long-name": (0, 0.9, 0.001) for i in range(4)})
    ax, = figures_of(save(data, folder, "r.json"), "roofline")["rowwise_adagrad"].axes
    equal(sorted(texts_of(ax)), [f"w{i}/long-name" for i in range(4)])
    equal(len({t.xy[0] for t in ax.texts}), 1)  # in one place, so that names push each other aside
    from matplotlib.text import Text
    boxes = sorted(map(Text.get_window_extent, ax.texts), key=lambda box: box.x0)  # without the lines to the points
    assert all(a.x1 < b.x0 + 1 for a, b in zip(boxes, boxes[1:])), boxes


def test_rows_without_a_time_say_so(folder):
    data = make_results.result(rules=("adam", "sgd", "adagrad"), workloads={"v": (0, 0.9, 0.001), "w": (0, 0.9, 0.001)})
    kept = lambda r: not re.search("workload=v rule=sgd|workload=w rule=adam kernel=cpu_sort", r["label"])
    data["context"]["emb_kernel_cpu_sort"] = "torch | host | none | a peer | -"
    data["benchmarks"] = list(filter(kept, data["benchmarks"]))
    figure = figures_of(save(data, folder, "p.json"), "peers")[""]
    equal({ax.get_title(): texts_of(ax) for ax in figure.axes}, {"adam": ["†", "†"], "adagrad": [], "sgd": ["not measured"]})
    assert "\nNot measured: cpu_sort in 1 of 5 rows." in figure.get_label(), figure.get_label()


def test_ticks_do_not_touch(_):
    need_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    for low, ratio, room in itertools.product((1e-3, 1, 1.3, 3.7, 9, 900), (1.1, 1.5, 3, 8, 15, 100, 1e3, 1e7), (3, 5, 7, 9)):
        width = 0.3 * room + 0.6
        figure = Figure((width, 1))
        FigureCanvasAgg(figure)
        ax = figure.add_axes([0.3 / width, 0.3, 1 - 0.6 / width, 0.6])
        paper.log_axis(ax.xaxis, low, low * ratio, room)
        boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
        assert len(boxes) > 1 and all(a.x1 < b.x0 for a, b in zip(boxes, boxes[1:])), (low, ratio, room)


def test_a_figure_of_a_run_that_was_cut_short_says_so(folder):
    data = make_results.result()
    data["context"]["emb_cut_short"] = "the run did not end: 180 of 360 samples"
    for figure in figures_of(save(data, folder, "cut.json"), "skew").values():
        equal(figure.texts[0].get_text(), "cut short: the run did not end: 180 of 360 samples")


def lab(colour):
    """CIE L*a*b* of a colour '#rrggbb'."""
    rgb = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    rgb = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055)**2.4 for v in rgb]
    of_white = [sum(a * b for a, b in zip(row, rgb)) for row in (
        (0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0178, 0.1095, 0.8728))]
    x, y, z = (t**(1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in of_white)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def test_no_two_kernels_of_a_picture_look_alike(_):
    """A difference of 12 is seen at a glance; on maps, where a mark has no shape, colours are paler."""
    from drawings.maps import pale
    one_of = lambda family, count: [results.Kernel(f"{family}{i}", family, index=i) for i in range(count)]
    far = lambda a, b, how=str: math.dist(lab(how(style.colour(a))), lab(how(style.colour(b))))
    shape = lambda k: (style.marker(k), paper.DASHES[k.index % len(paper.DASHES)])
    suite, guests = one_of("cpu", 17), one_of("torch", 6)
    for a, b in itertools.combinations(suite + guests, 2):
        assert far(a, b) >= 20 and far(a, b, pale) >= 12, (a.name, b.name, far(a, b), far(a, b, pale))
    for a, b in (*itertools.combinations(one_of("cpu", 60), 2), *itertools.combinations(one_of("torch", 12), 2)):
        assert far(a, b) >= 12 or all(x != y for x, y in zip(shape(a), shape(b))), (a.name, b.name)


def test_a_kernel_has_one_look_in_all_results(folder):
    """Results of two builds: the older one lacks a kernel, and has one that is gone."""
    files = {}
    for name, kernels, date in (("old", "cpu_a cpu_gone cpu_z", "2024-01-02"),
                                ("new", "cpu_a cpu_new cpu_z", "2024-05-06")):
        rows = [made_results.series("w", k) for k in kernels.split()]
        files[name] = results.load(made_results.made_up(folder, name, *rows, emb_date=date))
    before = {k.name: style.colour(k) for k in files["new"].kernels.values()}
    results.same_looks(list(files.values()))
    look = lambda kernel: (style.colour(kernel), style.marker(kernel))
    looks = {name: {s.kernel.name: look(s.kernel) for s in r.series} for name, r in files.items()}
    equal({k: c for k, (c, _) in looks["new"].items()}, before)  # as in figures of the new result alone
    equal([looks["old"][k] for k in ("cpu_a", "cpu_z")], [looks["new"][k] for k in ("cpu_a", "cpu_z")])
    equal(len(set((looks["old"] | looks["new"]).values())), 4)


def test_points_that_are_not_to_be_quoted_are_hollow(folder):
    """Marks of other operations stand beside them, in a figure of dots and in one of points."""
    rows = [made_results.series(w, k, ns, "adam", scratch_mib=1) for w, ns in (("v", [10, 20, 30, 40, 50]), ("w", 10.0))
            for k in ("cpu_a", "cpu_hash")]
    rows += [made_results.series(w, "torch", 50.0, "adam", "dense", scratch_mib=1) for w in "vw"]
    path = made_results.made_up(folder, "p", *rows, emb_kernel_torch="torch | host | none | torch | -")
    for name, rest in (("peers", ""), ("speed-memory", "adam")):
        figure, marks = figures_of(path, name)[rest], {}
        for line in (c[0] for ax in figure.axes for c in ax.containers if len(c[0].get_xdata())):
            marks.setdefault(line.get_color(), []).append(line.get_markerfacecolor() == "white")
        suite, torch = style.COLOURS[0], style.GUEST_COLOURS[2]
        equal((sorted(marks[suite]), sorted(marks[torch])), ([False, True], [False, True]))
        assert "\nHollow: not to be quoted." in figure.get_label() and "\n† updates all rows" in figure.get_label()
        if name == "peers":
            equal([text for ax in figure.axes for text in texts_of(ax)], ["†", "†"])


NOISE = {("w", "adam", f"k{i}", "cold"): math.exp(v) for i, v in enumerate((-0.02, 0.01, 0.0, 0.04))}


# --- all of them
def sources():
    """{result of a record: a path}, of the machine that has it first."""
    found = {}
    for path in sorted(glob.glob(os.path.join(RECORDS, "zen*", "*.json.gz"))):
        found.setdefault(os.path.basename(path), path)
    return found


def a_record(folder, *names):
    """A folder with those results of records, and the file of make noise."""
    record = os.path.join(folder, "zen")
    os.mkdir(record)
    for name, path in sources().items():
        if not names or name.removesuffix(".json.gz") in names:
            os.symlink(path, os.path.join(record, name))
    noise_file(record, NOISE, name="noise.json.gz", emb_cpu="AMD EPYC")
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
    equal(re.findall(r"!\[.*\]\((.*)\)", text), ["page/types.png", "page/noise.png"])
    assert "\n- scaling: zen has no scaling.json" in text


def test_bad_files_and_a_full_disk_are_one_line(folder):
    need_matplotlib()
    with open(GOLDEN, encoding="utf-8") as file:
        cut = save(file.read()[:5000], folder, "cut.json")
    one_line_error(run("figures.py", cut, folder), "figures.py", "not JSON")
    one_line_error(run("figures.py", os.path.join(folder, "none"), folder), "figures.py", "No such file")
    out, name = os.path.join(folder, "out"), "paper-skew-rowwise_adagrad-cold.pdf"
    one_line_error(full_disk("figures.py", GOLDEN, out, limit=8000), f"figures.py: {out}/{name}: File too large")
    equal(list(contents(out, (".svg", ".png", ".pdf", ".new", name))), [])


def test_bad_records_are_one_line(folder):
    need_matplotlib()
    made = make("figures", "RECORD=none", f"OUT={folder}")
    why = "none: no such folder; RECORD names folders of reports/results"
    assert made.returncode and why in made.stderr, made.stderr
    one_line_error(run("gallery.py", folder, os.path.join(folder, "out")), "holds no result; make record NAME=")
    for program_ in ("table.py", "plots.py", "figures.py"):
        one_line_error(run(program_, GOLDEN, *[folder] * (program_ != "table.py"), "--mode=none"),
                       "no rows in mode none (modes in the file: ")
    record = a_record(folder, "roof")
    text = program.read_text(sources()["standard.json.gz"])
    for changed, why in ((text.replace('"AMD EPYC"', '"Other"', 1), "several machines"), (text[:5000], "not JSON")):
        save(changed, record, "standard.json.gz")
        job = gallery_of(record, folder)
        said = job.communicate()[1]
        equal(job.returncode, 1)
        assert said.count("\n") == 1 and said.startswith("gallery.py: ") and why in said, said


def test_figures_of_a_result(folder):
    need_matplotlib()
    done = run("figures.py", GOLDEN, folder)
    equal((done.returncode, done.stderr), (0, ""))
    made = contents(folder, (".svg", ".pdf", ".png"))
    names = ("determinism", "roofline", "skew", "speed-memory", "stages", "unique")
    equal(sorted(made), sorted(f"paper-{n}-rowwise_adagrad-cold{end}.{kind}" for n in names for end in WIDTHS
                               for kind in ("pdf", "svg", "png")))
    for name, data in made.items():
        if name.endswith(".svg"):
            assert b"cpu_fused" in data and b"sort, fused" not in data and b"Synthetic CPU" in data, name


def test_titles_can_be_left_out(folder):
    need_matplotlib()
    how = {"TITLE": "0", "FONT": "DejaVu Sans Mono"}
    equal(run("figures.py", GOLDEN, folder, env=how).returncode, 0)
    titles = contents(folder, ".txt")
    equal(len(titles), 12)
    for name, text in titles.items():
        first, machine = text.decode().splitlines()[:2]
        svg = contents(folder, name.replace(".txt", ".svg"))[name.replace(".txt", ".svg")].decode()
        assert "rowwise_adagrad: " in first and machine.startswith("Synthetic CPU"), text
        assert "rowwise_adagrad" not in svg and machine not in svg and "Sans Mono" in svg, name
    one_line_error(run("figures.py", GOLDEN, folder, env={"FONT": "None Such"}), "FONT: there is no font 'None Such'")


def test_missing_matplotlib_is_one_line(folder):
    save("raise ImportError('hidden by the test')", folder, "matplotlib.py")
    one_line_error(run("figures.py", GOLDEN, folder, env={"PYTHONPATH": folder}), "python3-matplotlib")


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "figures"))
