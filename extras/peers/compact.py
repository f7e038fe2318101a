# SPDX-License-Identifier: MIT
"""Compares a peer's step with `embfuse step`, on compact tables: the touched rows and a few untouched
ones, with ids that number them. So a comparison takes the time of a step, for tables of any size on
any device.
"""
import os
import re
import subprocess
from pathlib import Path

from program import ResultError
from torch_batch import HYPER, MEASURED_STEP, ROW_STATES, STATES, Differs, agrees

IDLE = 64  # untouched rows of each table


def rows_of(table, keep):
    return table.detach()[keep].cpu().numpy()


class Compact:
    """weights [table] and states [array][table]: the peers' tensors, before the first step. folder
    is empty."""

    def __init__(self, np, batch, rule, weights, states, folder):
        self.np, self.rule, self.folder, self.batch = np, rule, folder, batch
        self.keep, self.hits = [], []
        for t, (rows, _) in enumerate(zip(batch.num_rows, batch.dims)):
            own = batch.rows[0] == t
            padding = [p for u, _, p in batch.features if u == t and p >= 0]
            idle = np.setdiff1d(np.arange(min(rows, 1 << 20)), batch.rows[1][own])[:IDLE]
            keep = np.union1d(np.union1d(batch.rows[1][own], idle), padding).astype(np.int64)
            hits = np.zeros(len(keep))
            hits[np.searchsorted(keep, batch.rows[1][own])] = batch.hits[own]
            self.keep.append(keep)
            self.hits.append(hits)
        names = ["weight", *(f"state.{k}" for k in range(STATES[rule])), *["row_state"] * ROW_STATES[rule]]
        self.arrays = list(zip(names, [weights, *states]))
        self.write_batch("batch", batch, lambda a: a)
        for name, tables in self.arrays:
            for t, keep in enumerate(self.keep):
                np.save(self.path("in", name, t), rows_of(tables[t], keep))

    def path(self, stem, name, table):
        if len(self.keep) > 1:
            name = re.sub(r"^(\w+)", rf"\1.{table}", name)
        return os.path.join(self.folder, f"{stem}.{name}.npy")

    def write_batch(self, name, batch, change):
        """change: a function of the gradients and the per-sample weights."""
        np, ids = self.np, batch.ids.astype("int64")
        lines = [f"bags {batch.bags}", *["weighted 1"] * batch.weighted]
        lines += [f"table rows {len(k)} dim {d} rule {self.rule}" for k, d in zip(self.keep, batch.dims)]
        for f, (table, pooling, padding) in enumerate(batch.features):
            span, keep = batch.span(f), self.keep[table]
            ids[span] = np.searchsorted(keep, ids[span])
            at = f" padding {np.searchsorted(keep, padding)}" if padding >= 0 else ""
            lines.append(f"feature table {table} pooling {pooling}{at}")
        stem = os.path.join(self.folder, name)
        Path(stem + ".batch").write_text("\n".join(lines) + "\n", encoding="utf-8")
        np.save(stem + ".ids.npy", ids)
        np.save(stem + ".offsets.npy", batch.offsets)
        sequence = batch.features[0][1] == "none"
        grad = batch.upstream if sequence else batch.upstream.reshape(batch.bags, -1)
        np.save(stem + ".grad.npy", change(grad))
        if batch.weighted:
            np.save(stem + ".lookup_weights.npy", change(batch.lookup_weights))

    def compare(self, peer, embfuse):
        """For use after the peer's step, before its rows are restored."""
        self.step(embfuse, peer.kernel, "batch", "in", "out", **peer.eps_of(HYPER[self.rule]))
        between = self.between(peer, embfuse)
        for name, tables in self.arrays:
            for t, keep in enumerate(self.keep):
                self.compare_one(name, t, rows_of(tables[t], keep), between[t] if name == "weight" else 0)

    def step(self, embfuse, kernel, batch, tables, out, **hyper):
        flags = [x for k, v in hyper.items() for x in (f"--{k}", repr(v))]
        self.run(embfuse, "step", kernel, batch, tables, out, "--rule", self.rule, "--first-step",
                 str(MEASURED_STEP), *flags)

    def run(self, embfuse, what, kernel, batch, tables, out, *flags):
        at = lambda stem: os.path.join(self.folder, stem)
        done = subprocess.run([embfuse, what, "--kernel", kernel, "--batch", at(batch), "--tables", at(tables),
                               "--out", at(out), *flags], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ResultError(f"embfuse {what}: {done.stderr.strip()}")

    def forward(self, embfuse, batch, tables, out):
        self.run(embfuse, "forward", "cpu_lookup", batch, tables, out)
        return self.np.load(os.path.join(self.folder, f"{out}.output.npy")).reshape(-1).astype("float64")

    def compare_output(self, got, embfuse):
        """Compares a peer's forward with `embfuse forward`: within the rounding of one sum of as many terms as
        the longest bag has, of the magnitudes of its terms."""
        np, tables = self.np, range(len(self.keep))
        want = self.forward(embfuse, "batch", "in", "out")
        self.write_batch("magnitudes", self.batch, abs)
        for t in tables:
            np.save(self.path("abs", "weight", t), abs(np.load(self.path("in", "weight", t))))
        bound = (self.batch.longest + 8) * 2.0**-24 * self.forward(embfuse, "magnitudes", "abs", "most")
        off = abs(got.astype("float64") - want)
        if not (off <= bound).all():
            raise Differs(f"forward: the output differs from the output of embfuse forward by up to {off.max():.3g}, in "
                          f"element {int((off - bound).argmax())}")

    def between(self, peer, embfuse):
        """How far intermediate weights may be from the first and last ones, by table: larger values round
        more. SGD per lookup moves up to lr times the sum of the gradients' magnitudes; a step from zero
        with these magnitudes computes it. Momentum adds a term that may cancel the gradient."""
        tables = range(len(self.keep))
        if self.rule == "momentum":
            return [HYPER[self.rule]["lr"] * abs(self.np.load(self.path("in", "state.0", t))) for t in tables]
        if not peer.per_lookup:
            return [0 for _ in tables]
        self.write_batch("magnitudes", self.batch, abs)
        for t in tables:
            zeros = self.np.zeros((len(self.keep[t]), self.batch.dims[t]), self.np.float32)
            self.np.save(self.path("zero", "weight", t), zeros)
        self.step(embfuse, "cpu_sort", "magnitudes", "zero", "moved", **HYPER[self.rule])
        return [abs(self.np.load(self.path("moved", "weight", t))) for t in tables]

    def compare_one(self, name, t, got, between):
        np = self.np
        want, before = (np.load(self.path(stem, name, t)) for stem in ("out", "in"))
        column = lambda a: a.reshape(len(a), -1)
        if agrees(column(got), column(want), column(before), self.hits[t], between):
            return
        off = np.abs(column(got).astype(np.float64) - column(want))
        row = int(off.max(axis=1).argmax())
        raise Differs(f"table {t}: {name} and embfuse step differ by up to {off.max():.3g}, in "
                      f"row {self.keep[t][row]} with {self.hits[t][row]:.0f} lookups")

