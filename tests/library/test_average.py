#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares averages of the library with torch.optim.swa_utils.AveragedModel, on one array of weights that both read."""
import sys

import tap

tap.use_torch(__file__)
try:
    import torch
    from torch.optim.swa_utils import AveragedModel
except ImportError as e:
    tap.skip_all("averages as PyTorch", f"{e}: make peers installs it, or set TORCH_PYTHON")
import embfuse

ROWS, DIM, UPDATES, LOOKUPS = 200, 16, 60, 30
SWA, EMA = embfuse.constant.SWA, embfuse.constant.EMA


class Module(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)


def compare(kind, lazy, decay=0.9):
    """Every update changes a few rows. Before it, a lazy average hears of them."""
    torch.manual_seed(3)
    weight, data = torch.randn(ROWS, DIM), torch.full((ROWS, DIM), float("nan"))
    counts = torch.zeros(ROWS, dtype=torch.int64)
    module = Module(weight)
    assert module.weight.data_ptr() == weight.data_ptr()
    ema = lambda average, new, _: decay * average + (1 - decay) * new
    theirs = AveragedModel(module, avg_fn=ema) if kind == EMA else AveragedModel(module)
    model = embfuse.Model([{"rows": ROWS, "dim": DIM, "rule": "sgd"}], [{"padding_id": -1}])
    model.bind(0, 0, weight)
    ours = embfuse.new("average", kind=kind, decay=decay, data=embfuse.address(data),
                       row_updates=embfuse.address(counts if lazy else None))
    offsets = torch.tensor([0, LOOKUPS])
    for _ in range(UPDATES):
        ids = torch.randint(0, ROWS * 9 // 10, (LOOKUPS,))
        model.call("average_before_step", ours, 1, model.batch(ids, offsets))
        weight[ids] += torch.randn(LOOKUPS, DIM)
        theirs.update_parameters(module)
        model.call("average_update", ours, 1)
    model.call("average_finish", ours, 1)
    assert ours.updates == int(theirs.n_averaged) == UPDATES
    # Both round at most three times in an update, in values up to `largest`; see tests/library/test_averages.c.
    want, largest = theirs.module.weight.detach(), float(weight.abs().max()) + 10
    kept = (UPDATES + 1) / 2 if kind == SWA else min(UPDATES, 1 / (1 - decay))
    worst = float((data.double() - want.double()).abs().max())
    assert worst <= 4 * kept * 2.0**-24 * largest, worst
    assert float((weight - want).abs().max()) > 0.5


def test_swa_and_ema(_):
    for kind in (SWA, EMA):
        for lazy in (False, True):
            compare(kind, lazy)


if __name__ == "__main__":
    sys.exit(tap.run(globals(), "averages as PyTorch"))
