# SPDX-License-Identifier: MIT
"""Stand-ins for the two processes of make peers: the suite's, and the peers'."""
import functools
import json
import os
import sys

import fake_bench
from fake_bench import row

install = functools.partial(fake_bench.install, of=__file__)


def say(**answer):
    print(json.dumps(answer), flush=True)


def session(refused):
    say(context={"emb_schema": "1", "emb_threads": "2", "emb_var_REPS": "3", "emb_var_FILTER": "cpu_|torch_sp|fb",
                 "emb_kernel_cpu_fused": "cpu | host | none | fused | An idea."})
    say(workload="w", rule="sgd", text="words", ring=3, seed=42, tables=[[10, 4]],
        cases=[{"kernel": "cpu_fused", "mode": "cold"}])
    for line in sys.stdin:
        if line.startswith("sample"):
            say(**row("w", "cpu_fused", 1500.0, copy_gbs=10.0, rmw_gbs=5.0, gather_gbs=20.0, bags=7, traffic_gbs=2.0,
                      repetition_index=int(line.split()[2]), line_mib=4e6 / 2**20, gather_mib=8e6 / 2**20))
        elif line.startswith("next"):
            say(refused=refused)
            break
        else:
            say()
    say(end=True)


def worker(reason="sgd: too large", crash=0, mark="aa"):
    """It is refused for a reason, may die with a status, and may have other ids."""
    inherited = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "TORCH_USE_RTLD_GLOBAL", "THP_MEM_ALLOC_ENABLE")
    say(context={"emb_torch": "0.0", "emb_fbgemm": "0.1", "emb_env": {k: os.environ.get(k) for k in inherited},
                 "emb_kernel_fbgemm": "fbgemm | host | none | FBGEMM | A peer.",
                 "emb_kernel_torch_sparse": "torch | host | none | PyTorch | A peer."})
    for order in map(json.loads, sys.stdin):
        if order["do"] == "check":
            say(peers={"fbgemm": {"note": "another formula"}}, refused={"torch_sparse": reason})
        elif order["do"] != "sample":
            say(weights=False)
        elif crash:
            sys.exit(crash)
        else:
            own = row("w", "fbgemm", 1000.0, distinct=10, traffic_gbs=2.0, repetition_index=order["round_"])
            say(**own | {"label": own["label"].replace("=aa", f"={mark}").replace(" placement=same", "")})
