# SPDX-License-Identifier: MIT
"""The installed module for the tests: in an interpreter with PyTorch, from build/pytorch/site. Tests skip without them."""
import os
import sys

import tap

SITE = os.path.join(tap.BUILD, "pytorch", "site")


def use(file, group):
    """Goes on in an interpreter that has PyTorch, and makes `import embfuse` the installed module."""
    tap.use_torch(file)
    sys.dont_write_bytecode = True
    sys.path.insert(0, SITE)
    try:
        import torch
    except ImportError as e:
        tap.skip_all(group, f"{e}: make peers installs it, or set TORCH_PYTHON")
    try:
        import embfuse
    except ImportError as e:
        tap.skip_all(group, f"{e}: make pytorch builds it")
    torch.manual_seed(5)


def fails(kind, text, function, *args, **how):
    try:
        function(*args, **how)
    except kind as e:
        assert text in str(e), f"{text!r} is not in {e!s:.300}"
    else:
        raise AssertionError(f"no {kind}: {text}")
