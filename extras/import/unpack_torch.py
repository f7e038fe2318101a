#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tensors of a file of PyTorch as FOLDER/0.npy, FOLDER/1.npy, ... and prints their names as JSON.
Runs in an interpreter that has PyTorch. Usage: unpack_torch.py FILE FOLDER"""
import json
import re
import sys
import zipfile

try:
    import numpy
    import torch
except ImportError as e:
    sys.exit(f"{e}: PyTorch reads .pt; TORCH_PYTHON names an interpreter that has it; or import what numpy.savez wrote")


def named(data):
    """The tensors of the file by their names."""
    if isinstance(data, (tuple, list)):
        names = [str(i) for i in range(len(data))]
        if len(data) == 3 and data[1].numel() == data[2].numel() + 1:  # the files of dlrm_datasets
            names = ["indices", "offsets", "lengths"]
        data = dict(zip(names, data))
    data = {"ids": data} if isinstance(data, torch.Tensor) else data
    if not isinstance(data, dict) or not all(isinstance(v, torch.Tensor) for v in data.values()):
        raise TypeError("takes a tensor, or a list, tuple or dict of tensors")
    return data


def main(path, folder):
    try:
        # A file of before PyTorch 1.6 cannot be mapped.
        tensors = named(torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)))
        for i, tensor in enumerate(tensors.values()):
            numpy.save(f"{folder}/{i}.npy", tensor.numpy())
    except Exception as e:  # an unpickler raises what it likes
        sys.exit(re.split(r"\n|\. ", str(e))[0] or type(e).__name__)
    print(json.dumps([str(name) for name in tensors]))


if __name__ == "__main__":
    main(*sys.argv[1:])
