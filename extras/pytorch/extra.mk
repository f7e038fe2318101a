# SPDX-License-Identifier: MIT
# A drop-in EmbeddingBag for PyTorch, and checkpoints of PyTorch. Nothing is built.

packages_test-pytorch := $(packages_test)
needs_pytorch := library
