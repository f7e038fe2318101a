# SPDX-License-Identifier: MIT
# What nvcc makes of device kernels, without a GPU: its PTX runs on the emulation (ptx/), what it asks of memory is counted
# (counts/), and its machine code is read and executed (sass/).
#
#| make test-ptx  run the tests of device kernels with nvcc's PTX, translated, without a GPU: PTX_ARCHS="80 90 100";
#|                make ptx-verify also writes the record reports/results/ptx-verified.txt
#| make cuda12    install the headers of CUDA 12 in build/ (24 MB, once); make test ONLY=cuda_old compiles with them
#| make resources  record what device kernels compile to in extras/cuda/tests/golden/cuda_sass.txt, with which make test compares.
#|                It needs a disassembler: make sass-tools installs one in build/ (7 MB, once) if CUDA has none
#| make counts    what device kernels do, counted on nvcc's PTX without a GPU: requests, sectors, atomics; not timed.
#|                make counts-renew accepts a change, make test-counts judges it; COUNTS_SPEC=file KERNEL=text;
#|                COUNTS_LINES=1: also the source lines that move most
#| make sass-counts  instructions that warps issue in the kernel of extras/cuda/sass/target.cu: nvcc's machine code, executed
#|                on the CPU, and every row of it checked. make sass-counts-renew accepts a change, make test-cuda judges it;
#|                SASS='--rule=adam --lines=20 --blocks=all --listing=file': some of it, lines, the whole launch, the code
include extras/cuda/ptx/ptx.mk extras/cuda/counts/counts.mk extras/cuda/sass/sass.mk # the last two use the first

# --- tests
packages_test-cuda := $(packages_test)
needs_cuda := $(B)/bench $(B)/embfuse $(emulated_programs) $(ptx_run) $(sass_library) $(sass_target) $(if $(NVCC),$(C)/bench $(C)/embfuse)
define before_cuda
@[ -z "$(NVCC)" ] || { $(MAKE) --no-print-directory $(jobs) ptx-programs ONLY= && $(MAKE) --no-print-directory sass-tools; }
@[ -z "$(NVCC)" ] || [ -z "$(filter $(COUNTS_ARCH),$(CUDA_ARCHS))" ] || $(MAKE) --no-print-directory $(jobs) counts-program ONLY=
endef
$(eval $(call suite_rule,cuda))
$(B)/extras/cuda/tests/tests: $(patsubst %,$(B)/extras/cuda/counts/%.o,warps)

# --- what nvcc makes of the kernels. If NVIDIA's disassembler is neither beside nvcc nor in PATH, it is installed once.
sass_venv    := build/sass/venv
.PHONY: resources sass-tools
sass-tools:
	@[ -e $(sass_venv)/complete ] || { [ -x '$(NVCC:%nvcc=%nvdisasm)' ] && [ -x '$(NVCC:%nvcc=%cuobjdump)' ]; } || \
	    { command -v nvdisasm && command -v cuobjdump; } >/dev/null || sh tests/support/venv.sh $(sass_venv) $(PYTHON) sass \
	    extras/cuda/tests/sass/requirements.txt 'a disassembler, 7 MB' 'import glob, sys; \
	    assert glob.glob(sys.prefix + "/lib/*/site-packages/nvidia/*/bin/nvdisasm")'
resources: $(cuda_objects)
	@$(MAKE) --no-print-directory sass-tools
	@BUILD=$(B) NVCC=$(NVCC) $(PYTHON) extras/cuda/tests/test_nvcc.py --renew

# The headers of CUDA 12, for extras/cuda/tests/test_cuda_old.py. CCCL is of 12.4: older packages of it are not whole.
cuda12_packages := nvidia-cuda-runtime-cu12==12.0.146 nvidia-cuda-nvcc-cu12==12.0.140 nvidia-nvtx-cu12==12.0.140 \
                   nvidia-cuda-cccl-cu12==12.4.127.post1
.PHONY: cuda12
cuda12: build/cuda12/nvidia/complete
build/cuda12/nvidia/complete:
	@rm -rf build/cuda12
	@$(PYTHON) -m pip install -q --no-deps --root-user-action=ignore --target build/cuda12 $(cuda12_packages)
	@touch $@
