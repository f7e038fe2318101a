# SPDX-License-Identifier: MIT
"""What kernels promise of their machine code: extras/cuda/tests/golden/sass_promises.txt explains its format."""
import re

from metrics import count
from table import number

LINE = re.compile(r"(\S+)\s+(\S.*?)\s{2,}(\S+)\s+(>=|<=|==)\s+([\d.]+)((?:\s+sm_\d+)*)\s*$")
HOLDS = {">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b, "==": lambda a, b: a == b}


class Promise:
    def __init__(self, line):
        found = LINE.match(line)
        if not found:
            raise ValueError(f"not a promise: {line.strip()}")
        self.source, self.kernel, self.what, self.relation = found.group(1, 2, 3, 4)
        self.number = float(found[5])
        self.archs = {int(arch) for arch in re.findall(r"\d+", found[6])}
        self.text = re.sub(r"\s+", " ", line.strip())

    def value(self, metrics):
        if self.what in metrics:
            return metrics[self.what]
        return count(metrics["kinds"], self.what)

    def binds(self, archs):
        """True if it is of one of these architectures."""
        return not self.archs or not self.archs.isdisjoint(archs)

    def of(self, kernels):
        """The part of {(source, name, architecture): metrics} that it binds."""
        return {key: m for key, m in kernels.items() if key[0] == self.source and re.search(self.kernel, key[1])
                and self.binds({key[2]})}

    def broken(self, kernels):
        """Lines about kernels that break it."""
        mine = self.of(kernels)
        if not mine:
            return [f"{self.source} has no kernel like {self.kernel}"]
        return [f"{name} sm_{arch}: {self.what} is {number(self.value(m))}, promised {self.relation} "
                f"{number(self.number)}" for (_, name, arch), m in sorted(mine.items())
                if not HOLDS[self.relation](self.value(m), self.number)]


def read_promises(path):
    with open(path, encoding="utf-8") as file:
        return [Promise(line) for line in file if line.strip() and not line.startswith("#")]
