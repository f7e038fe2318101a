# SPDX-License-Identifier: MIT
"""Names of device functions for tables."""
import re


def brief(function, most=60):
    """Without namespaces, and cut. Kernels of CUB have so many of them that only what follows tells them apart."""
    prefix = "cub::" if function.startswith("cub::") else ""
    return (prefix + re.sub(r"\b\w+::", "", function))[:most]
