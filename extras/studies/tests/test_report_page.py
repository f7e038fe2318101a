#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/studies/report.py, the page about results: what is in it, and what it refuses.
test_report_browser.py opens it."""
import base64
import html.parser
import importlib.util
import json
import os
import re
import sys

sys.dont_write_bytecode = True
import tap
import make_results
from spoiled import equal, golden, on_device, one_line_error, run, save

WORKLOADS = {f"zipf/alpha:{a:g}": (a, 0.9 - 0.6 * a, 0.02) for a in (0, 0.6, 1.05)}


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise tap.Skip(f"no {module} for Python")


def written(folder, *args, env=None):
    """(what report.py said, the text of its page)"""
    need("jinja2")
    path = os.path.join(folder, "out", "report.html")
    done = run("report.py", *args, "--out", path, env=env)
    equal((done.returncode, done.stdout.strip()), (0, path))
    with open(path, encoding="utf-8") as file:
        return done, file.read()


def sweep():
    """A result whose points differ in alpha, rows and floats."""
    data = make_results.result(workloads=WORKLOADS)
    for r in data["benchmarks"]:
        r["rows"], r["dim"] = r["rows"] * (1 + r["alpha"]) ** 4, 32 if r["alpha"] else 64
    return data


def two_machines(folder):
    first, other = sweep(), sweep()
    other["context"]["emb_cpu"] = "Other CPU"
    return [save(d, folder, n) for d, n in ((first, "first.json"), (other, "other.json"))]


class Elements(html.parser.HTMLParser):
    """The elements of a page, the scripts that run, and whether every element that was opened is closed."""
    VOID = {"meta", "br", "input", "img"}

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.text = [], [], ""
        self.feed(text)
        equal(self.open, [])

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        equal(self.open.pop(), tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data

    def of(self, tag):
        return [attrs for t, attrs in self.found if t == tag]


def test_the_page_is_whole_and_reads_nothing_else(folder):
    _, text = written(folder, *two_machines(folder))
    page = Elements(text)
    ids = [a["id"] for _, a in page.found if "id" in a]
    equal(len(ids), len(set(ids)))
    values = [(k, v) for _, attrs in page.found for k, v in attrs.items() if v]
    links = {v for k, v in values if k in ("href", "xlink:href")}
    equal({v for v in links if not v.startswith("#")}, set())
    equal({v[1:] for v in links} - set(ids), set())
    equal({i for _, v in values for i in re.findall(r"url\(#([^)]+)\)", v)} - set(ids), set())
    pictures = [v for k, v in values if k in ("src", "action", "data", "srcset", "poster")]
    head = "data:image/svg+xml;base64,"
    assert len(pictures) > 10 and all(v.startswith(head) for v in pictures)
    for svg in (base64.b64decode(v.removeprefix(head)).decode() for v in pictures):
        equal(re.findall(r'(?:href|src)="(?!#)[^"]*|url\((?!#)[^)]*', svg), [])
    equal(re.findall(r"@import|url\((?!#)", re.sub(r"<script>.*?</script>", "", text, flags=re.S)), [])
    policy = next(a["content"] for a in page.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "script-src 'sha256-" in policy, policy


def test_a_result_of_a_gpu_is_named_by_it(folder):
    """It has no threads of a CPU; its reference and its limit have their own names."""
    first, other = two_machines(folder)
    data = sweep()
    for kernel in make_results.KERNELS:
        on_device(data, kernel)
    for r in data["benchmarks"]:
        r["plan_ms"] = 0  # a kernel that is planned ahead never wins
    data["context"]["emb_var_PLACE"] = "device"
    _, text = written(folder, save(data, folder, os.path.basename(first)), other)
    equal([len(re.findall(rf'<td class="wide">{name}</td>', text)) for name in ("Synthetic GPU", "Other CPU")], [12, 12])
    for name, there in (("Synthetic GPU", False), ("Other CPU", True)):
        rows = re.findall(rf"<td [^>]*>{name}</td>(.*?)</tr>", text, re.S)
        cells = [re.sub(r"<[^>]*>", "", cell).strip() for row in rows for cell in row.split("</td>")]
        equal((name, "2" in cells), (name, there))
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text)
    assert {"over cuda_sort or cpu_sort", "of the roof (GPU: random-row ceiling)"} <= {*heads}, heads


def test_what_is_missing_is_named(folder):
    done, text = written(folder, tap.GOLDEN, env={"PATH": "/nowhere"})
    assert "gnuplot-nox" in done.stderr and "gnuplot-nox" in Elements(text).text and "<figure id=" not in text
    equal(len(done.stderr.splitlines()), 1)


def test_bad_input_is_one_line_and_no_page(folder):
    whole, out = json.dumps(golden()), os.path.join(folder, "bad.html")
    edited, nan = golden(), whole.replace('"real_time": ', '"real_time": NaN, "was": ')
    edited["context"]["caches"] = [{"size": "big"}]
    need("jinja2")
    for text, *words in ((whole[:5000], "not JSON"), (edited, "context", "edited")):
        one_line_error(run("report.py", save(text, folder, "bad.json"), "--out", out), "bad.json", *words)
    one_line_error(run("report.py", os.path.join(folder, "none.json"), "--out", out), "none.json", "make bench")
    one_line_error(run("report.py", tap.GOLDEN, tap.GOLDEN, "--out", out), "given twice")
    one_line_error(run("report.py", "--record", os.path.join(folder, "none"), "--out", out), "no such folder")
    one_line_error(run("report.py", tap.GOLDEN, "--mode=none", "--out", out), "--mode: invalid choice: 'none'")
    assert not os.path.exists(out)
    _, text = written(folder, save(nan, folder, "nan.json"))
    assert "no usable real_time: nan" in text and "nothing to draw" in text


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "the page"))
