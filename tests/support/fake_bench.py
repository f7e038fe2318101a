# SPDX-License-Identifier: MIT
"""Stand-ins for programs that other programs run, for tests of these: they log their calls, and write made-up results
where the real ones would. install() makes one; what it is told is in its script."""
import json
import os
import sys

import tap


def install(folder, name, kind, of=__file__, **told):
    """An executable folder/name, which calls the function `kind` of a file, this one or another; returns its path."""
    module = os.path.basename(of).removesuffix(".py")
    return tap.script(folder, name, f"#!{sys.executable}\nimport sys\nsys.dont_write_bytecode = True\n"
                                    f"sys.path[:0] = {[os.path.dirname(of), os.path.dirname(__file__)]!r}\n"
                                    f"import {module}\n{module}.{kind}(**{told!r})\n")


def calls(log):
    """What the stand-ins logged."""
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def note(log, *what):
    with open(log, "a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def options():
    return dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:] if "=" in a)


def save(path, context, rows):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"context": {"emb_schema": "1", "num_cpus": 2} | context, "benchmarks": rows}, file)


def row(workload, kernel, ns, lookups=1000, rule="sgd", mode="cold", operation="lazy", **more):
    return {"name": f"{workload}/{rule}/{kernel}/{mode}/manual_time", "run_type": "iteration", "iterations": 1,
            "time_unit": "ms", "real_time": ns * lookups * 1e-6, "ns_per_lookup": ns, "lookups": lookups,
            "disturbed": 0, "scratch_mib": 1.0,
            "label": f"workload={workload} rule={rule} kernel={kernel} mode={mode} place=host operation={operation} "
                     "check=exact fingerprint=aa placement=same"} | more


# --- what make ci-metrics runs
def bench_numbers(numbers):
    """Bytes of the file of numbers."""
    with open(numbers, encoding="utf-8") as file:
        said = json.load(file)
    given = options()
    kernels, rule = ({"cpu_look": said["look"]}, "forward") if given["rule"] else (said["scratch"], "sgd")
    rows = [row("w", k, 1.0, rule=rule, mode="warm", persistent_mib=said["persistent"] / 2**20) |
            {"scratch_mib": n / 2**20} for k, n in kernels.items()]
    for own, kernel in zip(rows, kernels):
        if kernel == said["wrong"]:
            own |= {"error_occurred": True, "error_message": "WRONG RESULT: row 3"}
    save(os.path.join(given["out"], "bench.json"), {"emb_compiler": said["compiler"],
                                                    "emb_libraries": "glibc 2.36, zlib 1"}, rows)
    sys.exit(2 if said["wrong"] in kernels else 0)


def valgrind(numbers):
    """Instructions of the file of numbers."""
    with open(numbers, encoding="utf-8") as file:
        said = json.load(file)["instructions"]
    if "--version" in sys.argv:
        print("valgrind-3.19.0")
    else:
        print("==1== Collected :", said[sys.argv[sys.argv.index("--kernel") + 1]], file=sys.stderr)
