# SPDX-License-Identifier: MIT
"""Measures the kernels in an object file of nvcc. NVIDIA's cuobjdump extracts its cubins, and nvdisasm disassembles
them."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile

from cubin import Cubin
from flight import NoWait
from metrics import measure
from occupancy import warps_of_sm

TOOLS = "cuobjdump", "nvdisasm"
READERS = "cubin", "flight", "flow", "gather", "instruction", "metrics", "objects", "occupancy"
FUNCTION = re.compile(r"^\.text\.(\S+):$", re.M)
FOLDER = os.path.dirname(os.path.abspath(__file__))


def tools(venv):
    """{name: path} of both tools, found beside nvcc, in PATH, or in the virtual environment of `make sass-tools`; None if
    no folder has both."""
    nvcc = shutil.which(os.environ.get("NVCC") or "nvcc")
    folders = [os.path.dirname(os.path.realpath(nvcc))] if nvcc else []
    folders += os.environ.get("PATH", "").split(":")
    folders += [root for root, _, files in os.walk(venv) if set(TOOLS) <= set(files)]
    for folder in folders:
        paths = {name: os.path.abspath(os.path.join(folder, name)) for name in TOOLS}
        if all(os.access(path, os.X_OK) for path in paths.values()):
            return paths
    return None


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True,
                          **more).stdout


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


def demangle(names):
    names = sorted(names)
    text = run(["c++filt"], input="\n".join(names)) if names else ""
    return {mangled: short(name) for mangled, name in zip(names, text.splitlines())}


def kernels_of_cubin(path, arch, tool):
    """{name: metrics} of the project's own kernels: CUB's kernels are left out."""
    cubin, result = Cubin(path), {}
    registers, stacks = cubin.per_function()
    names = {m: n for m, n in demangle(set(cubin.functions()) & set(registers)).items()
             if not re.match(r"(\w+ )*cub::", n)}
    wanted = ",".join(str(k) for k, symbol in enumerate(cubin.symbols()) if symbol in names)
    parts = FUNCTION.split(run([tool["nvdisasm"], "-c", "-fun", wanted, path])) if names else [""]
    for mangled, text in zip(parts[1::2], parts[2::2]):
        if mangled not in names:
            continue
        try:
            m = measure(text, cubin.controls(mangled))
        except NoWait as e:
            raise NoWait(f"{names[mangled]} sm_{arch}: {e}") from e
        m.update(registers=registers[mangled], stack=stacks.get(mangled, 0), shared=cubin.shared(mangled, arch),
                 block=cubin.block(mangled) or 128)
        m["warps"] = warps_of_sm(arch, m["registers"], m["shared"], m["block"])
        result[names[mangled]] = m
    return result


def kernels_of_object(path, tool):
    """{(name, architecture): metrics}"""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        run([tool["cuobjdump"], "-xelf", "all", os.path.abspath(path)], cwd=folder)
        for name in sorted(os.listdir(folder)):
            arch = int(re.search(r"sm_(\d+)", name)[1])
            found = kernels_of_cubin(os.path.join(folder, name), arch, tool)
            result.update({(kernel, arch): m for kernel, m in found.items()})
    return result


def remembered(path, tool):
    """Remembers kernels_of_object() in a file beside the object, until the object or these readers change."""
    digest = hashlib.sha256()
    for part in [path, *(os.path.join(FOLDER, name + ".py") for name in READERS)]:
        with open(part, "rb") as file:
            digest.update(hashlib.sha256(file.read()).digest())
    memory = path[:-2] + ".sass"
    try:
        with open(memory, encoding="utf-8") as file:
            known = json.load(file)
        if known["digest"] == digest.hexdigest():
            return {(kernel, arch): m for kernel, arch, m in known["kernels"]}
    except (OSError, ValueError):
        pass
    found = kernels_of_object(path, tool)
    with open(memory, "w", encoding="utf-8") as file:
        json.dump({"digest": digest.hexdigest(), "kernels": [[*key, m] for key, m in found.items()]}, file)
    return found
