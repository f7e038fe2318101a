# SPDX-License-Identifier: MIT
"""A small DLRM: embeddings by libembfuse, all else in NumPy, with gradients by hand. One id per field; the dots of all
pairs of embeddings and the embeddings themselves go into a layer of rectified units, and its outputs into a logit."""
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "examples"))
import libembfuse as embfuse
from libembfuse import constant

STORED = {constant.FP32: np.float32, constant.BF16: np.uint16}


def bfloat16(x):
    """The bits of the nearest bfloat16, ties to even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


class Embeddings:
    """A table of rows x dim for each field. Keywords: weight_type and rounding of a struct embfuse_table, kernel and
    threads of the options, and the rule's hyper-parameters."""

    def __init__(self, fields, rows, dim, rule, seed, weight_type=constant.FP32, rounding=constant.NEAREST, kernel="auto",
                 threads=0, **hyper):
        self.fields, self.dim = fields, dim
        table = {"rows": rows, "dim": dim, "rule": rule, "weight_type": weight_type, "rounding": rounding}
        feature = [{"table": f, "pooling": constant.SUM} for f in range(fields)]
        self.model = embfuse.Model([table] * fields, feature, kernel=kernel, threads=threads, rounding_seed=seed)
        random = np.random.default_rng(seed)
        for f in range(fields):
            for i, array in enumerate(self.model.arrays(f)):
                data = np.zeros((rows, array.width), STORED[array.type])
                if i == 0:
                    start = (0.1 * random.standard_normal(data.shape)).astype(np.float32)
                    data[:] = start if weight_type == constant.FP32 else bfloat16(start)
                self.model.bind(f, i, data)
            self.model.init_states(f)
        for name, value in hyper.items():
            self.model.set(name, value)

    def batch(self, ids):
        """ids: [bags, fields]."""
        return self.model.batch(np.ascontiguousarray(ids.T).reshape(-1), np.arange(ids.size + 1))

    def forward(self, batch):
        """[bags, fields, dim]"""
        output = np.empty((batch.bags, self.fields, self.dim), np.float32)
        self.model.forward(batch, output)
        return output

    def step(self, batch, grad):
        self.model.step(batch, np.ascontiguousarray(grad, np.float32))


class Adam:
    """Of NumPy arrays, for the dense part."""

    def __init__(self, arrays, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8):
        self.arrays, self.how, self.t = arrays, (lr, beta1, beta2, eps), 0
        self.m, self.v = ([np.zeros_like(a) for a in arrays] for _ in range(2))

    def step(self, grads):
        lr, beta1, beta2, eps = self.how
        self.t += 1
        for w, g, m, v in zip(self.arrays, grads, self.m, self.v):
            m += (1 - beta1) * (g - m)
            v += (1 - beta2) * (g * g - v)
            w -= lr / (1 - beta1**self.t) * m / (np.sqrt(v / (1 - beta2**self.t)) + eps)


class Model:
    def __init__(self, embeddings, units=64, seed=0):
        self.embeddings, random = embeddings, np.random.default_rng(seed)
        self.pairs = np.triu_indices(embeddings.fields, 1)
        inputs = embeddings.fields * embeddings.dim + len(self.pairs[0])
        layer = lambda a, b: (random.standard_normal((a, b)) * np.sqrt(2 / a)).astype(np.float32)
        self.dense = [layer(inputs, units), np.zeros(units, np.float32), layer(units, 1), np.zeros(1, np.float32)]
        self.optimizer = Adam(self.dense)

    def _forward(self, e):
        w1, b1, w2, b2 = self.dense
        dots = (e @ e.transpose(0, 2, 1))[:, self.pairs[0], self.pairs[1]]
        x = np.concatenate([e.reshape(len(e), -1), dots], axis=1)
        h = np.maximum(x @ w1 + b1, 0)
        return x, h, (h @ w2 + b2)[:, 0]

    def logits(self, ids, piece=4096):
        pieces = [ids[i:i + piece] for i in range(0, len(ids), piece)]
        return np.concatenate([self._forward(self.embeddings.forward(self.embeddings.batch(p)))[2] for p in pieces])

    def train(self, ids, labels, before_step=None):
        """One step of the mean log loss, of embeddings and dense part. before_step(ids, grad) may replace what the step of
        the embeddings gets: tests plant defects there."""
        batch = self.embeddings.batch(ids)
        e = self.embeddings.forward(batch)
        x, h, logits = self._forward(e)
        by_logit = ((1 / (1 + np.exp(-logits)) - labels) / len(labels)).astype(np.float32)[:, None]
        w1, _, w2, _ = self.dense
        by_h = by_logit * w2[:, 0] * (h > 0)
        by_x = by_h @ w1.T
        by_dots = np.zeros((len(e), e.shape[1], e.shape[1]), np.float32)
        by_dots[:, self.pairs[0], self.pairs[1]] = by_x[:, e[0].size:]
        by_e = by_x[:, :e[0].size].reshape(e.shape) + (by_dots + by_dots.transpose(0, 2, 1)) @ e
        if before_step:
            ids, by_e = before_step(ids, by_e)
            batch = self.embeddings.batch(ids)
        self.embeddings.step(batch, by_e)
        self.optimizer.step([x.T @ by_h, by_h.sum(0), h.T @ by_logit, by_logit.sum(0)])
