#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""TAP tests of extras/peers/: the driver with stand-ins for its two processes, the process of the suite itself,
and, if PyTorch and FBGEMM are installed, a tiny run with them."""
import copy
import json
import os
import re
import subprocess
import sys

BUILD = os.environ.get("BUILD", "build")
SESSION, EMBFUSE = os.path.join(BUILD, "extras", "peers", "session"), os.path.join(BUILD, "embfuse")
VENV = os.path.join("build", "peers", "venv")
sys.dont_write_bytecode = True
import tap
from tap import GOLDEN, ROOMS, ROOT, script, tool
import fake_peers
import results
from spoiled import equal, one_line_error

TINY = """workload tiny
    tables 3
    rows 2000
    dim 32
    batch 200
    length uniform 0 9
    alpha 1.05
"""
def run(name, *args, env=None):
    return subprocess.run([sys.executable, tool(name), *args], text=True, cwd=ROOT,
                          capture_output=True, check=False, encoding="utf-8", errors="replace",
                          env=dict(os.environ, PYTHONIOENCODING="utf-8",
                                   PYTHONDONTWRITEBYTECODE="1", **(env or {})))


def stand_ins(folder, refused=None, **told):
    """Runs the driver with stand-ins for both processes."""
    session = fake_peers.install(folder, "session", "session", refused=refused or {})
    worker = fake_peers.install(folder, "worker", "worker", **told)
    out = os.path.join(folder, "out")
    return out, run("peers.py", "--session", session, "--python", worker, "--out", out)


def built():
    if not os.path.exists(os.path.join(ROOT, SESSION)):
        raise tap.Skip(f"there is no {SESSION}: make builds it")


def test_the_result_is_one_that_reports_read(folder):
    out, done = stand_ins(folder)
    equal(done.returncode, 0)
    result = results.load(os.path.join(out, "bench.json"))
    equal([(s.kernel.name, len(s.samples)) for s in result.series], [("cpu_fused", 3), ("fbgemm", 3)])
    equal(result.not_run, [("w", "torch_sparse", "sgd: too large")])
    equal(result.context["emb_workload_w"], "words")
    equal(result.context["emb_peer_fbgemm_sgd"], "another formula")
    peer = result.series[1]
    equal([round(peer.median(k), 9) for k in ("gather_gbs", "roof_ms", "share_roof")], [20.0, 0.8, 0.8])
    equal(peer.samples[0].placement, "same")
    equal(result.context["emb_env"], {"OMP_NUM_THREADS": "2", "OMP_PROC_BIND": "true",
                                      "TORCH_USE_RTLD_GLOBAL": "1", "THP_MEM_ALLOC_ENABLE": "1"})
    assert not os.path.exists(os.path.join(out, "work")), "files of the run are left behind"


def test_wrong_results_are_left_out_and_change_the_status(folder):
    out, done = stand_ins(folder, reason="WRONG RESULT: sgd: table 0 differs")
    equal(done.returncode, 2)
    out, done = stand_ins(folder, refused={"cpu_fused": "WRONG RESULT: row 3"})
    equal(done.returncode, 2)
    result = results.load(os.path.join(out, "bench.json"))
    equal(([s.kernel.name for s in result.series], result.failures()[0][2]), (["fbgemm"], "WRONG RESULT: row 3"))


def test_what_ends_a_run_is_one_line(folder):
    for told, words in (({"mark": "bb"}, ("other ids",)), ({"crash": 7}, ("worker ended early", "status 7"))):
        out, done = stand_ins(folder, **told)
        one_line_error(done, *words)
        assert not os.path.exists(os.path.join(out, "bench.json"))
    one_line_error(run("peers.py", "--python", os.path.join(folder, "python"), "--out", folder), "python is missing",
                   "make peers")
    one_line_error(run("peers.py", "--session", os.path.join(ROOT, SESSION), "--python", sys.executable, "--out", folder,
                       "--reps=many"), "REPS", "many")


def with_fbgemm(folder, faster=2.0, rule="rowwise_adagrad"):
    """The golden result and a peer that takes 1/faster of the dense baseline's time."""
    with open(GOLDEN, encoding="utf-8") as file:
        data = json.load(file)
    rows = [r for r in data["benchmarks"] if "kernel=cpu_dense" in r["label"]]
    for r in copy.deepcopy(rows):
        r["label"] = r["label"].replace("cpu_dense", "fbgemm")
        r["ns_per_lookup"] /= faster
        data["benchmarks"].append(r)
    data["context"] |= {"emb_kernel_fbgemm": "fbgemm | host | none | FBGEMM | A peer.",
                        "emb_fbgemm_openmp": "no", "emb_threads": "2",
                        f"emb_peer_fbgemm_{rule}": "another formula"}
    return script(folder, "r.json", json.dumps(data))


def test_ratios_name_the_peers_that_are_faster(folder):
    path = with_fbgemm(folder)
    out = run("ratios.py", path).stdout
    assert re.search(r"^fbgemm is faster than cpu_dense: rowwise_adagrad on zipf/alpha:0\.6 2\.00x, ", out,
                     re.M), out
    equal(out.splitlines()[0].split(), ["rule", "workload", "cpu_fused", "fbgemm"])
    assert "fbgemm, rowwise_adagrad: another formula." in out and "without OpenMP" in out, out
    one_line_error(run("ratios.py", GOLDEN), "no peers")
    one_line_error(run("ratios.py", os.path.join(folder, "none.json")), "No such file")


def test_batches_that_no_peer_can_measure_are_one_line(folder):
    import torch_batch
    table, facts = "table rows 9 dim 4 rule sgd weight_type ", "# w: words\n# fingerprint aa\nbags 2\n"
    for text, line in ((f"{facts}{table}fp32\n{table}bf16\n", "peers need tables and gradients of fp32"),
                       (f"{facts}grad_type bf16\n{table}fp32\n", "peers need tables and gradients of fp32"),
                       (f"{facts}{table}fp32\nfeature table 0 pooling max padding -1\n", "leave pooling max out"),
                       (f"{facts.replace('# w', 'w')}{table}fp32\n", "lacks the workload")):
        script(folder, "b.batch", text)
        try:
            torch_batch.Batch(os.path.join(folder, "b"), None, None, "cpu")
        except results.ResultError as e:
            assert line in str(e) and "b.batch: " in str(e), e
        else:
            raise AssertionError(f"it reads {text!r}")


def lines_of(folder, *lines, options=()):
    """The answers of the suite's process to these lines."""
    built()
    spec = script(folder, "tiny.spec", TINY)
    done = subprocess.run([os.path.join(ROOT, SESSION), "--spec=" + spec, "--rule=sgd", "--modes=cold",
                           "--filter=/cpu_(sort|fused)/", "--threads=2", *options], cwd=ROOT, text=True,
                          input="".join(x + "\n" for x in lines), capture_output=True, check=False)
    return done, [json.loads(x) for x in done.stdout.splitlines()]


def test_the_suites_side_writes_what_gen_writes(folder):
    at = lambda name: os.path.join(folder, name)
    done, out = lines_of(folder, "batches " + at("b"), "weights " + at("t"), "sample 0 4", "sample 9 0",
                         "next")
    equal(done.returncode, 0)
    equal([x["kernel"] for x in out[1]["cases"]], ["cpu_fused", "cpu_sort"])
    subprocess.run([os.path.join(ROOT, EMBFUSE), "gen", at("tiny.spec"), "--batch-number", "1",
                    "--initial-tables", "--out", at("g")], check=True, capture_output=True)
    read = lambda name: open(at(name), "rb").read()
    same = [("b1.ids.npy", "g.ids.npy"), ("b1.offsets.npy", "g.offsets.npy"),
            ("t.weight.2.npy", "g.weight.2.npy")]
    for ours, gens in same:
        assert read(ours) == read(gens), f"{ours} is not {gens}"
    assert read("b1.grad.npy")[-9600:] == read("g.grad.npy")[-9600:]
    sample = out[4]
    fingerprint = re.search(r"fingerprint (\w+)", read("g.batch").decode()).group(1)
    assert f"fingerprint={fingerprint} " in sample["label"] + " ", sample["label"]
    equal(sample["repetition_index"], 4)
    assert "unknown command" in out[5]["error"]
    equal(out[6:], [{"refused": {}}, {"end": True}])


def installed():
    built()
    python = os.path.join(ROOT, VENV, "bin", "python")
    if BUILD != "build" or not os.path.exists(os.path.join(ROOT, VENV, "complete")):
        raise tap.Skip("PyTorch and FBGEMM are not installed: make peers does that")
    return python


def generate(folder, name, *options):
    """Generates a batch and its tables; returns the prefix of the files."""
    prefix = os.path.join(folder, name)
    subprocess.run([os.path.join(ROOT, EMBFUSE), "gen", script(folder, "tiny.spec", TINY),
                    "--initial-tables", "--out", prefix, *options], check=True, capture_output=True)
    return prefix


def test_pytorch_and_fbgemm_compute_the_same_update(folder):
    installed()
    spec = script(folder, "tiny.spec", TINY + TINY.replace("tiny", "mean").replace(
        "tables 3", "features 2\n    pooling mean"))
    done = run("peers.py", "--spec=" + spec, "--rule=all", "--modes=cold warm iteration",
               "--reps=1", "--filter=/(cpu_fused|torch.*|fbgemm)/", "--out", folder)
    equal(done.returncode, 0)
    result = results.load(os.path.join(folder, "bench.json"))
    equal(result.failures(), [])
    every = len([n for n in os.listdir(os.path.join(ROOT, "rules")) if n.endswith(".h")])
    want = {"cpu_fused": every, "torch_sparse": 3, "torch_dense": 4, "fbgemm": 3}  # rules
    for kernel, rules in want.items():
        found = {(s.workload, s.rule, s.mode) for s in result.series if s.kernel.name == kernel}
        equal((kernel, len(found)), (kernel, 2 * 3 * rules))
    wholes = [s for s in result.series if s.mode == results.ITERATION]
    assert all(0 < s.median("forward_ms") < s.samples[0].ms and s.median("share_roof") for s in wholes)
    for g in result.groups(results.ITERATION):
        own = g.of("cpu_fused").median("compulsory_mib")
        assert all(abs(s.median("compulsory_mib") / own - 1) < 1e-6 for s in g.measured()), g.workload
    equal({s.operation for s in result.series if s.key[1:3] == ("momentum", "torch_dense")}, {"dense"})
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if " avx2 " in file.read():
            assert "avx" in result.context["emb_fbgemm_instructions"], "FBGEMM runs its reference code"


# Wrong steps: each changes one number of a touched row (t, r) or of an untouched row.
SPOILT = {"nothing": "", "forward": "", "weight": "self.weights[t][r, 3] *= 1.0001",
          "state": "self.arrays[1][t][r, 3] *= 1.0001",
          "idle": "self.weights[2][idle, 0] += 1e-6",
          "far": "self.weights[2][far, 0] += 1e-6",
          "swapped": "self.weights[2][far, :2] = self.weights[2][far, :2].flip(0)"}
SPOIL = '''
import json, sys
sys.path[:0] = {paths!r}
import worker
honest, answers, output = worker.Peer.step, {{}}, worker.Peer.output
def looked_up(self, batch, outputs):
    out = output(self, batch, outputs)
    out[-1] *= 1.0001 if name == "forward" else 1
    return out
worker.Peer.output = looked_up
def spoilt(self, batch, outputs):
    honest(self, batch, outputs)
    t, r = (int(x[0]) for x in batch.rows)
    untouched = set(range(2000)) - set(batch.rows[1][batch.rows[0] == 2])
    idle, far = min(untouched), max(untouched)  # only the first ones are compared with embfuse step
    with self.torch.no_grad():
        exec(what)
worker.Peer.step = spoilt
w = worker.Worker(1, {embfuse!r})
for name, what in {spoilt!r}.items():
    w.open([{prefix!r}], "adagrad", name)
    w.weights([{prefix!r} + f".weight.{{t}}.npy" for t in range(3)])
    answers[name] = w.check(["torch_sparse"])["refused"].get("torch_sparse")
    w.close()
print(json.dumps(answers))
'''


def test_a_wrong_update_is_not_timed(folder):
    python = installed()
    code = SPOIL.format(paths=ROOMS, embfuse=os.path.join(ROOT, EMBFUSE), spoilt=SPOILT,
                        prefix=generate(folder, "b"))
    done = subprocess.run([python, "-W", "ignore", "-c", code], capture_output=True, text=True,
                          check=False)
    equal((done.returncode, done.stderr), (0, ""))
    answers = json.loads(done.stdout)
    equal(answers.pop("nothing"), None)
    for name, answer in answers.items():
        assert answer and answer.startswith("WRONG RESULT: adagrad: "), f"{name}: {answer}"


def test_pytorch_alone_and_triton(folder):
    """Each is compared with `embfuse step` before it is timed. Triton's own interpreter runs its kernels. A hot row has
    lookups in several chunks."""
    python, spec, out = installed(), os.path.join(folder, "hot.spec"), os.path.join(folder, "torch.json")
    with open(spec, "w", encoding="utf-8") as file:
        file.write("workload hot\n tables 2\n rows 60\n dim 12\n batch 30\n length uniform 0 9\n alpha 1.5\n")
    prefix = os.path.join(folder, "b")
    subprocess.run([os.path.join(ROOT, EMBFUSE), "gen", spec, "--initial-tables", "--out", prefix], check=True,
                   capture_output=True)
    done = subprocess.run([python, "-W", "ignore", tool("torch_peer.py"), prefix, "--out", out, "--device", "cpu", "--reps", "1",
                           "--modes", "warm", "--rules", "sgd rowwise_adagrad adam", "--embfuse", os.path.join(ROOT, EMBFUSE)],
                          capture_output=True, text=True, check=False, env=os.environ | {"TRITON_INTERPRET": "1"})
    equal(done.returncode, 0)
    result = results.load(out)
    found = sorted((s.rule, s.kernel.name) for s in result.series)
    dense, sparse, triton = "torch_dense", "torch_sparse", "triton"
    equal(found, [("adam", dense), ("adam", sparse), ("adam", triton), ("rowwise_adagrad", triton), ("sgd", dense),
                  ("sgd", sparse), ("sgd", triton)])


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "peers"))
