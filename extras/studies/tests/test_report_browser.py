#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of the page of extras/studies/report.py in a headless Chromium: sizes, themes, tables and the explorer."""
import atexit
import functools
import os
import shutil
import sys

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
    """A browser with the page of these results; nothing may complain."""
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


def test_the_explorer_shows_the_nearest_points_first(folder):
    driver = opened(folder, save(sweep(), folder, "s.json"))
    choose = lambda name, value: script(driver, "const f = one(`#explore [name=${arguments[0]}]`);"
                                                "f.value = arguments[1];"
                                                "f.dispatchEvent(new Event('input', {bubbles: true}))", name, value)
    columns = lambda: {i: column(driver, "points", i) for i in (0, 1, 11, 12)}
    first = columns()
    equal((first[0][0], first[1][0], first[11][0]), ("0.00", "zipf/alpha:0", "cpu_fused"))
    assert len(first[0]) == 3 and first[0] == sorted(first[0], key=float), first
    choose("alpha", 0.1)
    equal([column(driver, "points", i)[0] for i in (0, 1, 12)], ["0.50", "zipf/alpha:0", first[12][0]])  # the time of a point
    choose("alpha", 1.05)
    choose("floats", 32)
    choose("rows", 8e6)
    equal(column(driver, "points", 1)[0], "zipf/alpha:0.6")  # its rows are nearer
    equal(driver.get_log("browser"), [])


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "the page in a browser"))
