# SPDX-License-Identifier: MIT
"""The wheel: libembfuse as `make library` builds it for any machine of this architecture, which chooses its instructions at
run time, and its operators for the PyTorch that is there. EMBFUSE_CUDA=1: with device kernels (nvcc)."""
import os
import re
import subprocess

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
CUDA = os.environ.get("EMBFUSE_CUDA", "0") == "1"
BUILD = os.path.join(ROOT, "build", "portable")
WORK = os.path.join(ROOT, "build", "pytorch")


class Build(BuildExtension):
    def build_extensions(self):
        command = ["make", "-C", ROOT, f"-j{os.cpu_count()}", "NATIVE=0", "library-cuda" if CUDA else "library"]
        subprocess.run(command if CUDA else [*command, "NVCC="], check=True)
        self.force = True  # setuptools does not see that the archive has changed
        super().build_extensions()


def version():
    with open(os.path.join(ROOT, "CITATION.cff"), encoding="utf-8") as file:
        return re.search(r"^version: (\S+)", file.read(), re.M)[1]


os.makedirs(WORK, exist_ok=True)
os.chdir(HERE)
archive = os.path.join(BUILD, *(["cuda"] if CUDA else []), "libembfuse.a")
setup(
    version=version(),
    package_dir={"": "src"},
    packages=["embfuse"],
    ext_modules=[CppExtension(
        "embfuse.ops", ["ops.cpp"], include_dirs=[os.path.join(ROOT, "extras", "library")], extra_objects=[archive],
        extra_compile_args=["-O2", "-g0"],
        extra_link_args=["-fopenmp", "-Wl,-s", "-lxxhash", "-ljansson", "-lm", "-Wl,--as-needed",
                         *(["-L/usr/local/cuda/lib64", "-lcudart_static", "-lrt", "-ldl"] if CUDA else [])])],
    cmdclass={"build_ext": Build.with_options(no_python_abi_suffix=True, use_ninja=False)},
    options={"build": {"build_base": WORK}, "egg_info": {"egg_base": WORK}, "bdist_wheel": {"bdist_dir": os.path.join(WORK, "wheel")}},
)
