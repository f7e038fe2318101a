#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the page of extras/studies/report.py in a headless Chromium: sizes, themes, tables and the explorer."""
import atexit
import csv
import functools
import io
import json
import os
import shutil
import sys
import time

sys.dont_write_bytecode = True
import tap
from test_report_page import need, sweep, two_machines, written
from spoiled import equal, save


@functools.cache
def browser():
    """A headless Chromium."""
    need("selenium")
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        raise tap.Skip("no chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service(programs[1]), options=options)
    atexit.register(driver.quit)
    return driver


def look(width, height, dark=False):
    driver = browser()
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                           {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
        {"name": "prefers-reduced-motion", "value": "reduce"}]})


def opened(folder, *args):
    """A browser with the page of these results. Its log must be empty."""
    driver = browser()
    look(1280, 900)
    written(folder, *args)
    driver.get("file://" + os.path.join(folder, "out", "report.html"))
    equal(driver.get_log("browser"), [])
    return driver


def script(driver, text, *args):
    """What a script returns; in it all() and one() select elements."""
    select = "const one = (s) => document.querySelector(s), all = (s) => [...document.querySelectorAll(s)]; "
    return driver.execute_script(select + text, *args)


def column(driver, table, at):
    return script(driver, "return all(`#${arguments[0]} tbody tr:not([hidden])`)"
                          ".map(r => r.cells[arguments[1]].textContent.trim())", table, at)


def test_a_browser_shows_every_figure_and_no_overflow(folder):
    first, other = two_machines(folder)
    data = sweep()
    data["context"]["emb_kernel_cpu_sort"] += "x" * 100 + "@" * 50
    save(data, folder, "first.json")
    driver = opened(folder, first, other)
    for width in (1280, 390):
        look(width, 844)
        sizes = script(driver, "return all('figure img').map(s => s.getBoundingClientRect()).map(r => [r.width, r.height])")
        assert len(sizes) >= 12 and all(w > 100 and h > 40 for w, h in sizes), sizes
        wide = script(driver, "return document.documentElement.scrollWidth")
        assert wide <= width, (wide, width)
    anchors = script(driver, "return all('a[href]').map(a => a.hash)"
                             ".filter(h => !document.getElementById(decodeURIComponent(h.slice(1))))")
    equal(anchors, [])
    equal(driver.get_log("browser"), [])


def test_a_table_has_8_columns_and_a_phone_shows_four(folder):
    driver = opened(folder, *two_machines(folder))
    seen = lambda table: script(driver, "return all(`#${arguments[0]} thead th`).filter(h => h.getClientRects().length)"
                                        ".map(h => h.textContent)", table)
    every = script(driver, "return all('#headline thead th').map(h => h.textContent)")
    equal((seen("headline"), every[0], len(every)), (every[:8], "machine", 16))
    script(driver, "one('[data-table=headline] [type=checkbox]').click()")
    equal(seen("headline"), every)
    script(driver, "one('[data-table=headline] [type=checkbox]').click()")
    look(390, 844)
    equal(seen("headline"), ["workload", "fastest", "ns/lookup", "lead"])
    wide = script(driver, "return all('#headline, #points').map(t => t.scrollWidth - t.parentNode.clientWidth)")
    equal([w for w in wide if w > 0], [])
    lines = script(driver, "return all('label').map(l => l.firstChild).filter(n => n.data?.trim()).map(n => {"
                           "const r = document.createRange(); r.selectNode(n); return r.getClientRects().length; })")
    equal(set(lines), {1})  # a label is one line
    small = "getComputedStyle(one('#headline tbody th'), '::after').content"
    equal(script(driver, f"return {small}").replace("\xa0", " "), '"Synthetic CPU · rowwise_adagrad · cold · % roof 76.1"')


def choose(driver, name, value):
    script(driver, "const f = one(`#explore [name=${arguments[0]}]`); f.value = arguments[1];"
                   "f.dispatchEvent(new Event('input', {bubbles: true}))", name, value)


def test_the_explorer_shows_the_nearest_points_first(folder):
    driver = opened(folder, save(sweep(), folder, "s.json"))
    columns = lambda: {i: column(driver, "points", i) for i in (0, 8, 5, 6)}
    first = columns()
    equal((first[0], first[8], first[5]), (["0.00"], ["zipf/alpha:0"], ["cpu_fused"]))  # the others are too far
    choose(driver, "alpha", 0.1)
    equal([column(driver, "points", i)[0] for i in (0, 8, 6)], ["0.50", "zipf/alpha:0", first[6][0]])  # the time of a point
    choose(driver, "alpha", 0.85)
    choose(driver, "floats", 32)
    choose(driver, "rows", 3e7)
    equal(column(driver, "points", 8)[0], "zipf/alpha:0.6")  # its rows are nearer
    equal(driver.get_log("browser"), [])


def test_the_explorer_names_no_winner_far_from_all_points(folder):
    data = sweep()
    data["context"]["emb_cut_short"] = "it ended early"
    driver = opened(folder, save(data, folder, "s.json"))
    said = lambda: script(driver, "return one('#explore output').textContent")
    assert said().startswith("cpu_fused, ") and said().endswith("Caution: cut short: it ended early."), said()
    for far, there in ((0.39, 1), (0.41, 0)):
        choose(driver, "alpha", far)
        equal((len(column(driver, "points", 0)), "cpu_fused" in said()), (there, bool(there)))
    assert said().startswith("Too far to say: the nearest measured point is 2.0 units away (4M rows, 64 floats,"), said()
    # The address keeps the choice, and brings it back.
    address = driver.current_url
    assert address.endswith("&alpha=0.41&lookups=1048576&rule=rowwise_adagrad&types=fp32&threads=2"), address
    driver.get("about:blank")
    driver.get(address.replace("rule=rowwise_adagrad", "rule=none"))
    equal(script(driver, "return all('#explore [name]').map(f => f.value)"),
          ["4000000", "64", "0.41", "1048576", "rowwise_adagrad", "fp32", "2"])
    equal(driver.get_log("browser"), [])


def saved(driver, folder, table, kind):
    """What a button of a table saves."""
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": folder})
    script(driver, "one(`[data-table=${arguments[0]}] button[value=${arguments[1]}]`).click()", table, kind)
    path = os.path.join(folder, f"embfuse-{table}.{kind}")
    for _ in range(100):
        if os.path.exists(path):
            break
        time.sleep(0.1)
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def test_what_is_shown_can_be_saved(folder):
    data = sweep()
    data["context"]["emb_cut_short"] = 'by "x", early'
    driver = opened(folder, save(data, folder, "s.json"))
    script(driver, "const f = one('[data-table=headline] [type=search]'); f.value = 'alpha:0.6 cold';"
                   "f.dispatchEvent(new Event('input', {bubbles: true}))")
    row, = json.loads(saved(driver, folder, "headline", "json"))
    equal(list(row), ["workload", "rule", "mode", "fastest", "ns/lookup", "lead", "% roof", "second", "caution"])
    equal((row["workload"], row["mode"], row["fastest"], row["caution"]),
          ("zipf/alpha:0.6", "cold", "cpu_fused", 'cut short: by "x", early'))
    equal(f"{row['ns/lookup']:.3g}", column(driver, "headline", 4)[0])
    line, = csv.DictReader(io.StringIO(saved(driver, folder, "points", "csv")))
    equal((line["rows"], line["lookups"], line["caution"]), ("4000000", "1048576", 'cut short: by "x", early'))
    equal(driver.get_log("browser"), [])


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "the page in a browser"))
