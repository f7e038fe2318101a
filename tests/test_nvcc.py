#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the output of nvcc for the kernels; needs no GPU. Prints TAP.

Registers, shared memory, stack and spills of every kernel come from the ptxas logs beside the objects
(build/.../NAME.ptxas). This test compares them with tests/golden/cuda_resources.txt, which `make
resources` writes again. It also searches the PTX beside them for the instructions that kernels promise
(tests/golden/ptx_instructions.txt).

Registers may grow by REGISTER_MARGIN, the unit of their allocation; shared memory and stack may not grow.
Another release of nvcc may allocate differently: then only spills and instructions are judged.
"""
import os
import re
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build")
NVCC = os.environ.get("NVCC") or "nvcc"
TABLE = "tests/golden/cuda_resources.txt"
PTX_TABLE = "tests/golden/ptx_instructions.txt"
REGISTER_MARGIN = 8

HEAD = """\
# Every kernel: registers by architecture, bytes of shared memory and of stack (the largest of all
# architectures), file, function. From ptxas; tests/test_nvcc.py compares the build with this file,
# and `make resources` writes it.
"""

count = 0


def tell(fine, name, why=(), skip=None):
    global count
    count += 1
    print(f"{'ok' if fine else 'not ok'} {count} - {name}" + (f" # SKIP {skip}" if skip else ""))
    for line in why:
        print(f"# {line}")


def release():
    """The release of nvcc, or None without nvcc."""
    try:
        text = subprocess.run([NVCC, "--version"], capture_output=True, text=True).stdout
    except OSError:
        return None
    found = re.search(r"release (\S+),", text)
    return found.group(1) if found else None


def logs():
    """(log, source) of every .cu file that was compiled."""
    for folder, _, files in os.walk(BUILD):
        for name in sorted(files):
            source = os.path.join(os.path.relpath(folder, BUILD), name[:-6] + ".cu")
            if name.endswith(".ptxas") and os.path.exists(source):
                yield os.path.join(folder, name), source


def demangle(names):
    if not names:
        return {}
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                          check=True).stdout
    return dict(zip(names, text.splitlines()))


def short(name):
    """The name without parameters, and without the prefix that nvcc gives to file-local names."""
    name = re.sub(r"_INTERNAL_[0-9a-f]{8}_\w+?::|\(anonymous namespace\)::", "", name)
    depth = 0
    for i, c in enumerate(name):  # the parenthesis that is not inside template arguments
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            name = name[:i]
            break
    return name.removeprefix("void ").removeprefix("static ").strip()


def read_logs():
    """{(source, function): {"registers": {arch: n}, "shared": n, "stack": n, "spills": n}}"""
    result = {}
    for log, source in logs():
        entries, current = [], None
        for line in open(log):
            if found := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)\w*'", line):
                current = {"name": found.group(1), "arch": found.group(2), "stack": 0, "spills": 0}
                entries.append(current)
            elif found := re.match(r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
                                   r"(\d+) bytes spill loads", line):
                if current and "registers" not in current:
                    current["stack"] = int(found.group(1))
                    current["spills"] = int(found.group(2)) + int(found.group(3))
            elif current and (found := re.search(r"Used (\d+) registers", line)):
                shared = re.search(r"(\d+) bytes smem", line)
                current["registers"] = int(found.group(1))
                current["shared"] = int(shared.group(1)) if shared else 0
        names = demangle(sorted({e["name"] for e in entries}))
        for e in entries:
            # Template overloads differ only in their parameters: the worst one counts.
            key = source, short(names[e["name"]])
            r = result.setdefault(key, {"registers": {}, "shared": 0, "stack": 0, "spills": 0})
            old = r["registers"].get(e["arch"], 0)
            r["registers"][e["arch"]] = max(old, e["registers"])
            for what in "shared", "stack", "spills":
                r[what] = max(r[what], e.get(what, 0))
    return result


def ours(key):
    """False for CUB's kernels: they are NVIDIA's code."""
    return not re.match(r"(\w+ )*cub::", key[1])


def read_table():
    """(release, {key: as in read_logs()})"""
    table, made_by, archs = {}, None, []
    for line in open(TABLE):
        if found := re.match(r"# nvcc (\S+), sm_(.*)$", line):
            made_by, archs = found.group(1), found.group(2).split(" sm_")
        elif line.strip() and not line.startswith("#"):
            n = len(archs)
            fields = line.split(None, n + 3)
            table[fields[n + 2], fields[n + 3].strip()] = {
                "registers": dict(zip(archs, map(int, fields[:n]))),
                "shared": int(fields[n]), "stack": int(fields[n + 1])}
    return made_by, table


def renew(built, made_by):
    archs = sorted({a for r in built.values() for a in r["registers"]}, key=int)
    with open(TABLE, "w") as f:
        f.write(HEAD + f"# nvcc {made_by}, " + " ".join("sm_" + a for a in archs) + "\n")
        for key in sorted(filter(ours, built)):
            r = built[key]
            f.write(" ".join(f"{r['registers'][a]:4}" for a in archs) +
                    f" {r['shared']:6} {r['stack']:4} {key[0]} {key[1]}\n")


def check_resources(built, table):
    wrong = []
    for key in sorted(filter(ours, built)):
        r, name = built[key], f"{key[0]} {key[1]}"
        if key not in table:
            wrong.append(f"{name} is not in {TABLE}; make resources writes it")
            continue
        t = table[key]
        for arch, n in r["registers"].items():
            if n > t["registers"].get(arch, n) + REGISTER_MARGIN:
                wrong.append(f"{name}: {n} registers on sm_{arch}, {t['registers'][arch]} before")
        for what in "shared", "stack":
            if r[what] > t[what]:
                wrong.append(f"{name}: {r[what]} bytes of {what}, {t[what]} before")
    wrong += [f"{key[0]} {key[1]} is in {TABLE}, but not in the build" for key in
              sorted(set(table) - set(built))]
    tell(not wrong, "registers, shared memory and stack as recorded", wrong)


def ptx_functions(path):
    """{demangled name of a kernel: its text, with the functions it calls directly}"""
    parts = re.split(r"\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)\s*\(", open(path).read())
    kinds, text = dict(zip(parts[2::3], parts[1::3])), {}
    for name, body in zip(parts[2::3], parts[3::3]):
        text[name] = text.get(name, "") + body
    kernels = [n for n, kind in kinds.items() if kind == "entry"]
    names = demangle(kernels)
    return {names[n]: text[n] + "".join(text[f] for f, kind in kinds.items() if kind == "func" and f in text[n])
            for n in kernels}


def check_instructions():
    for line in open(PTX_TABLE):
        if line.startswith("#") or not line.strip():
            continue
        source, function, least, instruction = line.split(None, 3)
        path = os.path.join(BUILD, source[:-3] + ".90.ptx")
        functions = {n: t for n, t in ptx_functions(path).items() if re.search(function, n)}
        why = [] if functions else [f"{source} has no function like {function}"]
        for name, text in sorted(functions.items()):
            found = len(re.findall(instruction.strip(), text))
            if found < int(least):
                why.append(f"{short(name)}: {found}, at least {least} expected")
        tell(not why, f"PTX of {source} {function}: {instruction.strip()}".replace("#", ""), why)


def main():
    made_by = release()
    built = read_logs() if made_by else {}
    if "--renew" in sys.argv:
        renew(built, made_by)
        return
    if not built:
        tell(True, "nvcc's output", skip="no nvcc, or none for this flavour of the build")
        print(f"1..{count}")
        return
    spilled = [f"{k[0]} {k[1]}: {r['spills']} bytes" for k, r in sorted(built.items())
               if r["spills"] and ours(k)]
    tell(not spilled, "no kernel spills registers", spilled)
    recorded_by, table = read_table()
    if recorded_by == made_by:
        check_resources(built, table)
    else:
        tell(True, "registers, shared memory and stack as recorded",
             skip=f"recorded with nvcc {recorded_by}, this is {made_by}")
    check_instructions()
    print(f"1..{count}")


main()
