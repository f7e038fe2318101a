#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A bound on time: no device of this kind can run the counted kernels faster. It is no estimate, and no
measurement: a kernel takes longer than every bound, by how much only a device can tell.

Reads what build/ptx/90/counts wrote with --lines and --model=DEVICE, and the machine code of the same build. The
bound on a function is the longest of four:

memory      bytes that the model of L2 moves from and to memory / the bandwidth of a copy
latency     loads that miss * latency of memory / (resident warps * loads in flight per warp), or
            chain * latency, where a chain of chunks and nodes waits for memory at each
issue       instructions of warps / what the SMs issue: the requests, collectives and fences that were
            counted, each times the instructions of machine code that come with it at least
atomics     the most on one address, one in a cycle

Loads in flight are the most that the machine code allows while a load of that line is in flight. Of a function
without machine code each request is one instruction, and --flight loads are in flight.

Functions run one after another, so the bound on a step is their sum. Launches, and gaps between them, are 0."""
import argparse
import json
import subprocess
import sys

import machine
from names import brief

# GB/s of BabelStream's copy: github.com/Azure/AI-benchmarking-guide, Azure_Results/ND_H100_v5_results.md (H100 80GB
# HBM3: 2.90 TB/s) and ND_H200_v5_results.md (4.01 TB/s).
# Latency: a pointer chase on H100 PCIe, 650 cycles at 1755 MHz: github.com/te42kyfo/gpu-benches,
# gpu-latency/h100_pcie.txt. H200 has the same SMs and L2; its latency is taken to be the same.
# SMs and the highest clock are of the SXM5 module; an SM issues 4 instructions of warps in a cycle.
DEVICES = {
    "h100": {"copy_gbs": 2900, "latency_ns": 370, "sms": 132, "clock_ghz": 1.98},
    "h200": {"copy_gbs": 4010, "latency_ns": 370, "sms": 132, "clock_ghz": 1.98},
}
ISSUED_PER_CYCLE = 4
SECTOR = 32
FLIGHT = 8  # loads that a warp has in flight where no machine code says it: as many as the kernels plan
OTHERS = ("barriers", "syncs", "shuffles", "votes", "matches", "reduces", "fences", "others")
NAMES = ("memory", "latency", "issue", "atomics")


def issued(record):
    """Instructions of warps that were counted. ptxas joins accesses to shared memory: they count as none."""
    return record["requests"] - record["shared"]["requests"] + sum(record[name] for name in OTHERS)


def load_misses(record, model):
    """Sectors that loads missed: all but as many as atomics can have missed."""
    return max(0, model["misses"] - record["atomic"]["sectors"] - record["reduction"]["sectors"])


def waits(record, misses, code=None, flight=None):
    """Loads that miss, over the loads in flight of their warp."""
    if code and flight is None:
        return machine.waits(record, misses, code)
    load = record["load"]
    return load["requests"] * min(1, misses / load["sectors"]) / (flight or FLIGHT) if load["sectors"] else 0


def bounds(record, model, code=None, flight=None):
    """Nanoseconds by name of the bound, on 1/part of the device, as the model. code: machine code of the function."""
    device, part = DEVICES[model["device"]], model["part"]
    warps = max(1, min(record["warps"], model["resident"] * record["warps"] / record["blocks"]))
    misses = load_misses(record, model)
    slots = device["sms"] / part * ISSUED_PER_CYCLE * device["clock_ghz"]
    return {
        "memory": (model["read"] + model["written"]) * SECTOR * part / device["copy_gbs"],
        "latency": device["latency_ns"] * max(waits(record, misses, code, flight) / warps,
                                              record["chain"] if misses else 0),
        "issue": (machine.instructions(record, code) if code else issued(record)) / slots,
        "atomics": record["most_per_address"] / device["clock_ghz"],
    }


def longest(by_name):
    """(name, nanoseconds) of the bound that holds."""
    return max(by_name.items(), key=lambda item: item[1])


def steps(records):
    """{(workload, rule, kernel): its records}, in order."""
    result = {}
    for r in records:
        result.setdefault((r["workload"], r["rule"], r["kernel"]), []).append(r)
    return result


def said_of(record, code, flight):
    """Where the instructions and the loads in flight of a function are from."""
    if not code:
        return f"no machine code: 1 instruction per request, loads in flight: {flight or FLIGHT:g}"
    requests, flights = issued(record), code["flights"]
    each = f"{machine.instructions(record, code) / requests:.1f} instructions per request, " if requests else ""
    return "machine code: " + each + (f"loads in flight: {flight:g} by --flight" if flight else
                                      "asynchronous copies in flight" if flights is None else
                                      f"loads in flight: {max(flights.values(), default=0)} at most")


def lines_of(key, records, which, codes, flight):
    total, lines = 0, []
    for r in records:
        code = codes.get(r["function"])
        by_name = bounds(r, r["models"][which], code, flight)
        name, ns = longest(by_name)
        total += ns
        lines.append(f"    {brief(r['function'])}: bound {ns / 1e3:.2f} us by {name} ("
                     + ", ".join(f"{n} bound {by_name[n] / 1e3:.2f} us" for n in NAMES) + "; "
                     + said_of(r, code, flight) + ")")
    device, part = records[0]["models"][which]["device"], records[0]["models"][which]["part"]
    share = f"1/{part} of " if part > 1 else ""
    return [f"{'/'.join(key)} on {share}{device}: bound {total / 1e3:.2f} us", *lines]


def options(arguments):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("counts", help="what counts --lines --model=h100 --model=h200 wrote")
    p.add_argument("--build", help="folder of the build whose machine code the counted functions have")
    p.add_argument("--flight", type=float, help="loads in flight per warp, instead of those of the machine code; "
                   f"{FLIGHT} for functions without it")
    o = p.parse_args(arguments)
    if o.flight is not None and not o.flight > 0:
        sys.exit("bound: --flight is a number above 0")
    return o


def machine_code(build, records):
    """{function: its machine code}, as far as it is there."""
    if not build or any("lines" not in r for r in records):
        return {}
    try:
        return machine.functions_in(build, {r["function"] for r in records})
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"bound: no machine code: {e}", file=sys.stderr)
        return {}


def main(arguments=None):
    o = options(arguments)
    try:
        records = [json.loads(line) for line in open(o.counts, encoding="utf-8")]
    except (OSError, ValueError) as e:
        sys.exit(f"bound: {e}")
    if not records or any(m["device"] not in DEVICES for m in records[0].get("models", [{"device": ""}])):
        sys.exit(f"bound: {o.counts} has no counts with models of " + " and ".join(DEVICES) + " alone")
    codes = machine_code(o.build, records)
    print(f"bounds, not times: nothing here was measured; {len(codes)} functions with machine code of "
          f"sm_{machine.ARCH}")
    for key, of_step in steps(records).items():
        for which in range(len(of_step[0]["models"])):
            print("\n".join(lines_of(key, of_step, which, codes, o.flight)))


if __name__ == "__main__":
    main()
