#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A bound on time: no device of this kind can run the counted kernels faster. It is no estimate, and no
measurement: a kernel takes longer than every bound, by how much only a device can tell.

Reads what build/ptx/ARCH/counts wrote with --model=DEVICE. The bound on a function is the longest of four:

memory      bytes that the model of L2 moves from and to memory / the bandwidth of a copy
latency     loads that miss * latency of memory / (resident warps * loads in flight per warp), or
            chain * latency, where a chain of chunks and nodes waits for memory at each
issue       instructions of warps / what the SMs issue. Without --instructions these are the requests,
            collectives and fences that were counted: the least
atomics     the most on one address, one in a cycle

Functions run one after another, so the bound on a step is their sum. Launches, and gaps between them, are 0."""
import argparse
import json
import sys

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
FLIGHT = 8  # loads that a warp has in flight, by default: as many as the kernels plan
OTHERS = ("barriers", "syncs", "shuffles", "votes", "matches", "reduces", "fences", "others")
NAMES = ("memory", "latency", "issue", "atomics")


def issued(record):
    """Instructions of warps that were counted."""
    return record["requests"] + sum(record[name] for name in OTHERS)


def bounds(record, model, flight=FLIGHT, instructions=None):
    """Nanoseconds by name of the bound, on 1/part of the device, as the model. instructions: of all warps."""
    device, part = DEVICES[model["device"]], model["part"]
    load = record["load"]
    warps = max(1, min(record["warps"], model["resident"] * record["warps"] / record["blocks"]))
    waits = load["requests"] * min(1, model["misses"] / load["sectors"]) if load["sectors"] else 0
    slots = device["sms"] / part * ISSUED_PER_CYCLE * device["clock_ghz"]
    return {
        "memory": (model["read"] + model["written"]) * SECTOR * part / device["copy_gbs"],
        "latency": device["latency_ns"] * max(waits / (warps * flight), record["chain"] if waits else 0),
        "issue": (instructions if instructions is not None else issued(record)) / slots,
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


def lines_of(key, records, which, flight, instructions):
    total, lines = 0, []
    for r in records:
        by_name = bounds(r, r["models"][which], flight, instructions.get(r["function"]))
        name, ns = longest(by_name)
        total += ns
        lines.append(f"    {r['function'][:60]}: bound {ns / 1e3:.2f} us by {name} ("
                     + ", ".join(f"{n} bound {by_name[n] / 1e3:.2f} us" for n in NAMES) + ")")
    device, part = records[0]["models"][which]["device"], records[0]["models"][which]["part"]
    share = f"1/{part} of " if part > 1 else ""
    return [f"{'/'.join(key)} on {share}{device}: bound {total / 1e3:.2f} us", *lines]


def options(arguments):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("counts", help="what counts --model=h100 --model=h200 wrote")
    p.add_argument("--flight", type=float, default=FLIGHT, help="loads in flight per warp [%(default)s]")
    p.add_argument("--instructions", action="append", default=[], metavar="FUNCTION=N",
                   help="instructions that all warps of this function issue, from its SASS; may be repeated")
    return p.parse_args(arguments)


def main(arguments=None):
    o = options(arguments)
    try:
        records = [json.loads(line) for line in open(o.counts, encoding="utf-8")]
        instructions = {f: float(n) for f, n in (x.rsplit("=", 1) for x in o.instructions)}
    except (OSError, ValueError) as e:
        sys.exit(f"bound: {e}")
    if not records or any(m["device"] not in DEVICES for m in records[0].get("models", [{"device": ""}])):
        sys.exit(f"bound: {o.counts} has no counts with models of " + " and ".join(DEVICES) + " alone")
    print(f"bounds, not times: nothing here was measured; {o.flight:g} loads in flight per warp")
    for key, of_step in steps(records).items():
        for which in range(len(of_step[0]["models"])):
            print("\n".join(lines_of(key, of_step, which, o.flight, instructions)))


if __name__ == "__main__":
    main()
