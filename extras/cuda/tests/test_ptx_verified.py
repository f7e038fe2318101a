#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""No kernel is called PTX-verified after a change of its PTX. Prints TAP."""
import json
import os
import subprocess
import sys

import ptx_record
import tap


def test_the_record_is_of_this_ptx(_):
    release, record = ptx_record.release(), ptx_record.read()
    if not release or not record:
        raise tap.Skip("no nvcc" if not release else "no kernel is recorded")
    if record[0][1] != f"nvcc {release}":
        raise tap.Skip(f"recorded with {record[0][1]}, this is nvcc {release}")
    built = {a: ptx_record.digest(a) for a in sorted({a for line in record for a in line[2]}, key=int)}
    if not any(built.values()):
        raise tap.Skip(f"not built: any of sm_{' sm_'.join(built)}")
    for kernel, _, archs, _, _, digests in record:
        for arch, digest in zip(archs, digests, strict=True):
            assert built[arch] in (None, digest), \
                f"{kernel}: its PTX for sm_{arch} is not what was verified; make ptx-verify renews the record"


def test_a_digest_is_of_instructions_alone(folder):
    def digest(text):
        path = os.path.join(folder, "x.ptx")
        with open(path, "w") as file:
            file.write(text)
        return list(ptx_record.instructions(path))

    first = digest("add.rn.f32 %f1, %f2, %f3;\n.loc 1 10 5\n_INTERNAL_0123abcd_4_x_cu_89abcdef\n")
    assert first == digest("add.rn.f32 %f1, %f2, %f3; // a\n.loc 1 11 5\n_INTERNAL_ffffffff_4_x_cu_ffffffff\n")
    assert first != digest("add.rn.f32 %f1, %f2, %f4;\n_INTERNAL_0123abcd_4_x_cu_89abcdef\n")
    three = digest("_ZN3cub26CUB_300001_SM_800_900_10006detail4scanE _ZN32THRUST_300001_SM_800_900_1000_NS3seqE\n")
    assert three == digest("_ZN3cub17CUB_300001_SM_9006detail4scanE _ZN23THRUST_300001_SM_900_NS3seqE\n")


def test_only_kernels_that_passed_are_recorded(folder):
    def passed(**taps):
        for arch, tap_of in taps.items():
            with open(os.path.join(folder, f"{arch[2:]}-kernels.tap"), "w") as file:
                file.write(tap_of)
        return ptx_record.passed(folder, ["cuda_a", "cuda_b", "cuda_c"])

    assert passed(sm90="1..2\nok 1 - cuda_a: x\nok 2 - cuda_b: x # SKIP\n") == {"cuda_a": ["90"]}
    assert passed(sm90="1..3\nok 1 - cuda_a: x\nok 2 - cuda_b: x\nnot ok 3 - cuda_b: y\n") == {"cuda_a": ["90"]}
    assert passed(sm90="1..2\nok 1 - cuda_a: x\nnot ok 2 - all of them\n") == {}
    assert passed(sm90="1..2\nok 1 - cuda_a: x\n") == {}, "it died"
    # A kernel that one architecture skips counts on the others. A kernel that fails on one counts on none.
    assert passed(sm90="1..2\nok 1 - cuda_a: x\nok 2 - cuda_b: x\n",
                  sm100="1..3\nok 1 - cuda_a: x # SKIP\nok 2 - cuda_b: x\nok 3 - cuda_c: x\n") == {
                      "cuda_a": ["90"], "cuda_b": ["90", "100"], "cuda_c": ["100"]}


def test_the_list_has_the_word(_):
    lines = subprocess.run([os.path.join(tap.BUILD, "emulated", "embfuse"), "list", "--json"], capture_output=True,
                           text=True, check=True).stdout
    verified = {k["name"]: k["verified"] for k in json.loads(lines)["kernels"] if k["place"] == "device"}
    recorded = {r[0]: r for r in ptx_record.read()}
    assert set(recorded) <= set(verified), "a kernel of the record is not in the list"
    for name, word in verified.items():
        if word.startswith("GPU-verified"):
            continue
        r = recorded.get(name)
        expected = f"PTX-verified ({r[1]}, {' '.join('sm_' + a for a in r[2])}, {r[3]})" if r else "emulation-verified"
        assert word == expected, f"{name}: {word}, not {expected}"


if __name__ == "__main__":
    sys.exit(tap.run(dict(globals()), "PTX-verified"))
