#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures a GPU that is there for minutes, in steps of which each has a limit of its own. It continues where an earlier
call stopped: OUT/lease.json says which steps are done, of which commit.

extras/studies/gpu/README.md says how to pack and start it, and lists the parts. A step that fails or runs out of time does
not stop the others, and is tried again by the next call. Exit status: 0, 1 for wrong options, 3 if a step is not done."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "reports"))
import program  # noqa: E402
from program import Arguments, ResultError, fact, write_whole  # noqa: E402

LEAST = 5  # seconds: with less left no step begins
METRICS = ",".join((
    "gpu__time_duration.sum", "smsp__inst_executed.sum", "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__bytes_read.sum", "dram__bytes_write.sum",
    "lts__t_sectors.sum", "launch__registers_per_thread", "launch__occupancy_limit_registers"))
GROUPS = ("defects", "kernels", "onesweep", "properties", "max", "memory", "overflow", "device")
# (spec, workloads, rules, modes): those with published times first.
TIMES = (("gpu", "dynamicemb-one-table", "sgd adam", "cold warm"), ("dynamicemb", "dynamicemb", "sgd adam", "cold warm"),
         ("gpu", "zipf", "rowwise_adagrad", "cold warm"), ("gpu", "small-batches", "rowwise_adagrad", "cold warm"),
         ("gpu", "mixed-dims", "rowwise_adagrad", "cold"), ("gpu", "tbe-tiny", "rowwise_adagrad", "warm"),
         ("gpu", "tbe-default", "rowwise_adagrad", "cold"), ("gpu", "dims", "rowwise_adagrad", "cold"),
         ("gpu", "tbe-66-tables", "rowwise_adagrad", "cold"), ("gpu", "dlrm-2022", "rowwise_adagrad", "cold"),
         ("gpu", "cached", "rowwise_adagrad", "warm"), ("gpu", "single-hot", "rowwise_adagrad", "cold"),
         ("gpu", "batches", "rowwise_adagrad", "cold"), ("gpu", "dlrm-2021", "rowwise_adagrad", "cold"),
         ("gpu", "dlrm-v2", "rowwise_adagrad", "cold"), ("dynamicemb", "dynamicemb", "rowwise_adagrad", "cold"))
WHY = (("gpu", "zipf/alpha:1.05", "rowwise_adagrad"), ("gpu", "zipf/alpha:0", "rowwise_adagrad"),
       ("dynamicemb", "dynamicemb", "sgd"), ("dynamicemb", "dynamicemb", "adam"))
PEERS = (("dynamicemb", "dynamicemb", "sgd adam"), ("gpu", "zipf/alpha:1.05", "sgd rowwise_adagrad adagrad adam"))


def steps():
    """[(part, name, seconds at most, shell command)]; the command runs in ROOT, and $TO is a folder for what it writes."""
    found = []
    for group in GROUPS:
        found.append(("verify", group, 120, f"bin/tests {group}"))
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        found.append(("verify", tool, 120,
                      f"{'UNPOISONED=1 ' if tool == 'initcheck' else ''}compute-sanitizer --tool {tool} --error-exitcode 9 "
                      "bin/tests 00_example"))
    for spec, workload, rules, modes in TIMES:
        for rule in rules.split():
            found.append(("time", f"{workload}-{rule}", 60,
                          f"bin/bench --place=device --spec=datasets/{spec}.spec --filter='^{workload}/' --rule={rule} "
                          f"--modes='{modes}' --reps=10 --out=$TO"))
    for spec, workload, rule in WHY:
        name = workload.replace("/", "-").replace(":", "")
        found.append(("why", f"{name}-{rule}", 90,
                      f"bin/embfuse gen datasets/{spec}.spec --workload {workload} --initial-tables --out $TO/batch && "
                      f"ncu --csv --metrics {METRICS} bin/embfuse step --kernel cuda_fused --rule {rule} --batch $TO/batch "
                      "--out $TO/after >$TO/ncu.csv; status=$?; rm -f $TO/batch* $TO/after*; exit $status"))
    for spec, workload, rules in PEERS:
        name = workload.replace("/", "-").replace(":", "")
        found.append(("peers", name, 120,
                      f"for b in 0 1 2; do bin/embfuse gen datasets/{spec}.spec --workload {workload} --batch-number $b "
                      "--initial-tables --out $TO/batch$b; done && "
                      f"python3 extras/peers/torch_peer.py $TO/batch0 $TO/batch1 $TO/batch2 --rules '{rules}' --embfuse bin/embfuse "
                      "--out $TO/torch.json; status=$?; rm -f $TO/batch*; exit $status"))
    return found


def device():
    """What nvidia-smi says of the first device; None without one."""
    smi = shutil.which("nvidia-smi")
    if not smi:
        return None
    told = subprocess.run([smi, "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True,
                          check=False)
    return told.stdout.splitlines()[0].strip() if told.returncode == 0 and told.stdout.strip() else None


def run(command, to, seconds):
    """The status of a command, or "limit"; its output goes to TO/output.txt."""
    os.makedirs(to, exist_ok=True)
    libraries = os.path.join(ROOT, "lib")
    environment = os.environ | {"TO": to, "LD_LIBRARY_PATH": f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    with open(os.path.join(to, "output.txt"), "w", encoding="utf-8") as output:
        child = subprocess.Popen(["sh", "-c", command], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT,
                                 start_new_session=True)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return "limit"


def main():
    parser = Arguments(__doc__)
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--parts", default="time verify why peers")
    parser.add_argument("--list", action="store_true", help="print the steps and whether they are done")
    args = parser.parse_args()
    wanted = args.parts.split()
    unknown = set(wanted) - {part for part, *_ in steps()}
    if unknown:
        raise ResultError(f"--parts has no part {' '.join(sorted(unknown))}: verify, time, why, peers")
    path = os.path.join(args.out, "lease.json")
    record = json.load(open(path, encoding="utf-8")) if os.path.exists(path) else {"steps": {}}
    commit = fact(os.path.join(ROOT, "commit.txt"), "commit") or "unknown"
    todo = sorted((s for s in steps() if s[0] in wanted), key=lambda s: wanted.index(s[0]))
    begin, left_over = time.monotonic(), 0
    for part, name, limit, command in todo:
        key = f"{part}/{name}"
        before = record["steps"].get(key, {})
        done = before.get("status") == 0 and before.get("commit") == commit
        if args.list:
            print(f"{key:40} {limit:4} s  {'done' if done else before.get('status', 'not tried')}")
            continue
        if done:
            continue
        left = args.seconds - (time.monotonic() - begin)
        if left < LEAST:
            left_over += 1
            continue
        at = time.monotonic()
        status = run(command, os.path.abspath(os.path.join(args.out, part, name)), min(limit, left))
        record["steps"][key] = {"status": status, "seconds": round(time.monotonic() - at, 1), "commit": commit,
                                "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": device()}
        write_whole(path, json.dumps(record, indent=1) + "\n")
        print(f"{key}: {'done' if status == 0 else status}, {record['steps'][key]['seconds']} s", flush=True)
        left_over += status != 0
    if left_over:
        print(f"lease: {left_over} steps are not done", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    program.run(main)
