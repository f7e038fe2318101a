#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The bounds of emulation/counts/bound.py on cases worked by hand."""
import io
import json
import os
import sys
from contextlib import redirect_stdout

import tap

sys.path.insert(0, os.path.join(tap.ROOT, "emulation", "counts"))
import bound  # noqa: E402
import machine  # noqa: E402

NOTHING = {"requests": 0, "sectors": 0, "used": 0}
MEMORY = "load", "store", "atomic", "reduction", "prefetch"


def record(**more):
    r = {"workload": "w", "rule": "adam", "kernel": "k", "function": "f", "blocks": 1, "warps": 4, "requests": 0,
         "chain": 1, "most_per_address": 0, "shared": {"requests": 0}, **{name: dict(NOTHING) for name in MEMORY},
         **{name: 0 for name in bound.OTHERS}}
    r["models"] = [{"device": "h100", "part": 1, "resident": 528, "read": 0, "written": 0, "misses": 0}]
    r.update(more)
    return r


def line(number, **more):
    """Counts of a line of f.cu; load=(requests, sectors)."""
    r = {"source": "/x/./f.cu", "line": number, **{name: dict(NOTHING) for name in MEMORY},
         **{name: 0 for name in bound.OTHERS}}
    for name, value in more.items():
        r[name] = {"requests": value[0], "sectors": value[1]} if name in MEMORY else value
    return r


def code(shares, flights=None):
    """Machine code of f.cu: {(line, kind): share} and {line: loads in flight}."""
    return {"shares": {("f.cu", *key): share for key, share in shares.items()},
            "flights": flights and {("f.cu", number): most for number, most in flights.items()}}


def bounds(r, **options):
    return bound.bounds(r, r["models"][0], **options)


def near(a, b):
    assert abs(a - b) <= 1e-9 * max(1, abs(b)), f"{a} is not {b}"


def test_memory(_):
    # 2.9 MB at 2900 GB/s take 1000 ns; on an eighth of the device 8 times as long.
    r = record()
    r["models"][0].update(read=60000, written=30625)
    near(bounds(r)["memory"], 1000)
    r["models"][0]["part"] = 8
    near(bounds(r)["memory"], 8000)


def test_latency_of_loads_in_flight(_):
    # 528 blocks at once have 2112 warps with 8 loads each in flight: 16896 loads take 370 ns, 33792 twice that.
    r = record(blocks=1000, warps=4000, load={"requests": 33792, "sectors": 33792 * 16, "used": 0})
    r["models"][0]["misses"] = 33792 * 16
    near(bounds(r)["latency"], 740)
    near(bounds(r, flight=1)["latency"], 8 * 740)
    r["models"][0]["misses"] //= 2  # half of the loads hit
    near(bounds(r)["latency"], 370)


def test_chain(_):
    # Four levels wait for memory one after another.
    r = record(chain=4, load={"requests": 1, "sectors": 16, "used": 0})
    r["models"][0]["misses"] = 16
    near(bounds(r)["latency"], 4 * 370)
    r["models"][0]["misses"] = 0  # all hits
    near(bounds(r)["latency"], 0)


def test_issue(_):
    # 132 SMs issue 4 in each of 1.98 cycles per ns: 1045.44 per ns. ptxas joins accesses to shared memory.
    near(bounds(record(requests=104544 - 44, shuffles=40, fences=4, shared={"requests": 104544 // 2}))["issue"], 50)


def test_issue_of_machine_code(_):
    """Each request is its share of instructions; what the machine code of its line does not have is none."""
    r = record(requests=10000, lines=[line(7, load=(10000, 10000), shuffles=600), line(8, load=(20000, 20000), syncs=5),
                                      line(9, atomic=(1000, 1000))])
    shares = {(7, "load"): 6.5, (7, "shuffles"): 2, (8, "load"): 1.5}
    near(machine.instructions(r, code(shares)), 65000 + 1200 + 30000)
    near(bounds(r, code=code(shares))["issue"], 96200 / 1045.44)


def test_loads_in_flight_of_machine_code(_):
    """Missed are the loads that take the least for a sector: of 3000 sectors the 2000 of line 8, in 500 requests, and
    half of line 7."""
    r = record(load={"requests": 700, "sectors": 4000},
               lines=[line(7, load=(200, 2000)), line(8, load=(500, 2000))])
    waits = 500 / 8 + 100 / 2
    near(machine.waits(r, 3000, code({}, {7: 2, 8: 8})), waits)
    r["models"][0]["misses"] = 3000
    near(bounds(r, code=code({}, {7: 2, 8: 8}))["latency"], 370 * waits / 4)
    # How many asynchronous copies are in flight is not known.
    near(bounds(r, code=code({}))["latency"], 370)


def test_a_step_is_the_sum_of_the_longest_of_its_functions(folder):
    path, out = os.path.join(folder, "counts.json"), io.StringIO()
    with open(path, "w", encoding="utf-8") as file:
        for r in record(most_per_address=1980), record(function="g", most_per_address=3960):
            file.write(json.dumps(r) + "\n")
    with redirect_stdout(out):
        bound.main([path])
    assert "w/adam/k on h100: bound 3.00 us" in out.getvalue(), out.getvalue()


sys.exit(tap.run(globals(), "counts_bound"))
