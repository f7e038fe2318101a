#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Older GPUs and an older CUDA, without either: the GPUs of free notebooks are of compute capability 7.5, and their
CUDA is a 12.

nvcc compiles every .cu file for sm_75. `make cuda12` installs the headers of CUDA 12; then clang reads every file with
them, and gcc those files that call the runtime. Prints TAP."""
import glob
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import tap

NVCC = os.environ.get("NVCC") or "nvcc"
CUDA12 = os.path.join(tap.ROOT, "build", "cuda12", "nvidia")
SOURCES = [os.path.relpath(p, tap.ROOT) for p in sorted(glob.glob(os.path.join(tap.ROOT, "kernels", "*", "*.cu")) +
                                                        glob.glob(os.path.join(tap.ROOT, "harness", "*", "*.cu")))]
CALLERS = [f"harness/device/device_{name}.c" for name in ("cuda", "graph", "step")]
INCLUDE = ["-I.", f"-I{tap.BUILD}", "-DLEAN_RULE=rowwise_lamb"]  # the rule of kernels/device/lean.cu


def run_all(commands):
    """Runs them, two at a time; fails with the first lines of those that fail."""
    def one(command):
        done = subprocess.run(command, cwd=tap.ROOT, capture_output=True, text=True)
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr]
        return f"{command[-1]}: {errors[0]}" if done.returncode else ""
    with ThreadPoolExecutor(2) as pool:
        wrong = [text for text in pool.map(one, commands) if text]
    assert not wrong, "\n# ".join(wrong)


def test_sources_compile_for_the_oldest_gpu(folder):
    if not shutil.which(NVCC):
        raise tap.Skip("no nvcc")
    fast = ["-Ofc", "max"] if "--Ofast-compile" in subprocess.run([NVCC, "--help"], capture_output=True,
                                                                  text=True).stdout else []
    to = lambda source: os.path.join(folder, source.replace("/", "-") + ".cubin")
    run_all([[NVCC, "-arch=sm_75", "-cubin", "-std=c++20", "-fmad=false", *fast, "-Werror", "all-warnings", *INCLUDE,
              "-o", to(s), s] for s in SOURCES])


def cuda12(tool):
    """Options for the folders of CUDA 12's headers."""
    if not os.path.exists(os.path.join(CUDA12, "complete")) or not shutil.which(tool):
        raise tap.Skip(f"no {tool}, or no headers of CUDA 12; make cuda12 installs them")
    return [f"-isystem{os.path.join(CUDA12, package, 'include')}" for package in
            ("cuda_cccl", "cuda_runtime", "cuda_nvcc", "nvtx")]


def test_sources_compile_with_the_headers_of_cuda_12(folder):
    headers = cuda12("clang")
    resources = subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True).stdout.strip()
    # clang's own wrapper of CUDA must follow <memory>, whose attributes CUDA's macros would change; the textures that
    # it wants are gone from CUDA 12, and it lacks a load.
    lacking = os.path.join(folder, "lacking.h")
    with open(lacking, "w", encoding="utf-8") as file:
        file.write("template <class T> __device__ T __ldcv(const T *from);\n")
    clang = ["clang", "-x", "cuda", "-std=c++20", "--cuda-device-only", "--cuda-gpu-arch=sm_75", "-nocudalib",
             "-nocudainc", "-Wno-unknown-cuda-version", "-Wno-unknown-attributes", "-Xclang",
             "-target-sdk-version=11.5", "-Xclang", "-fcuda-allow-variadic-functions", "-D__CLANG_CUDA_TEXTURE_INTRINSICS_H__",
             f"-isystem{resources}/include/cuda_wrappers", *headers, "-include", "memory", "-include",
             "__clang_cuda_runtime_wrapper.h", "-include", lacking, *INCLUDE, "-fsyntax-only"]
    run_all([[*clang, s] for s in SOURCES])


def test_callers_of_the_runtime_compile_with_the_headers_of_cuda_12(folder):
    run_all([["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", *cuda12("gcc"),
              *INCLUDE, "-fsyntax-only", s] for s in CALLERS])


if __name__ == "__main__":
    raise SystemExit(tap.run(dict(globals()), "cuda_old"))
