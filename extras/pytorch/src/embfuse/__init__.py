# SPDX-License-Identifier: MIT
"""Embedding tables whose backward pass is fused with the optimizer, by libembfuse."""
import os

import torch

torch.ops.load_library(os.path.join(os.path.dirname(__file__), "ops.so"))

from .modules import EmbeddingBag, EmbeddingBagCollection, KeyedJaggedTensor, KeyedTensor, Table
from .optimizer import Optimizer

__all__ = ["EmbeddingBag", "EmbeddingBagCollection", "KeyedJaggedTensor", "KeyedTensor", "Optimizer", "Table"]
