# SPDX-License-Identifier: MIT
# Counts of what device kernels do, on the PTX lane: docs/cuda.md.

COUNTS_SPEC ?= extras/cuda/counts/counts.spec
COUNTS_ARCH ?= 90
counts_objects := $(patsubst %,$(B)/extras/cuda/counts/%.o,footprint function main observe one_kernel warps)
counts_program := $(X)/$(COUNTS_ARCH)/counts
counts_made_by  = nvcc $(shell $(NVCC) --version | sed -n 's/.*release \([^,]*\),.*/\1/p'), compute_$(COUNTS_ARCH)

$(counts_objects): CXXFLAGS += -Iemulation/include

$(counts_program): $(counts_objects) $(host) $(host_shared) $(updates) $(E)/harness/registry.o $(device:%.c=$(E)/%.o) \
                   $(ptx_host) $(call ptx_parts,$(COUNTS_ARCH)) $(ptx_run) $(emulation) $(B)/harness.a
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(whole)

.PHONY: counts-program counts counts-renew test-counts
counts-program:
	@$(if $(filter $(COUNTS_ARCH),$(CUDA_ARCHS)),:,echo 'counts are of sm_$(COUNTS_ARCH): CUDA_ARCHS has to have it' >&2; exit 1)
	@[ -n "$(NVCC)" ] || { echo 'counts: nvcc is missing, so there is no PTX' >&2; exit 1; }
	@$(MAKE) --no-print-directory $(call ptx_made,$(COUNTS_ARCH))
	@$(MAKE) --no-print-directory $(counts_program)

# The table, and a picture of it. COUNTS_LINES=1: also the lines of the source that move most.
counts: counts-program
	@mkdir -p $(call quoted,$(OUT)/counts)
	@$(counts_program) --spec=$(call quoted,$(COUNTS_SPEC)) --jobs=$(shell nproc) $(if $(COUNTS_LINES),--lines) \
	    $(KERNEL:%=--kernel=%) --out=$(call quoted,$(OUT)/counts/counts.json)
	@$(PYTHON) extras/cuda/counts/table.py show $(call quoted,$(OUT)/counts/counts.json)
	$(if $(COUNTS_LINES),@$(PYTHON) extras/cuda/counts/table.py lines $(call quoted,$(OUT)/counts/counts.json))
	@$(PYTHON) extras/cuda/counts/picture.py $(call quoted,$(OUT)/counts/counts.json) $(call quoted,$(OUT)/counts/counts.png)

# Writes extras/cuda/tests/golden/cuda_counts.txt again.
counts-renew: counts-program
	@mkdir -p $(call quoted,$(OUT)/counts)
	@$(counts_program) --spec=extras/cuda/counts/counts.spec --jobs=$(shell nproc) --out=$(call quoted,$(OUT)/counts/renew.json)
	@$(PYTHON) extras/cuda/counts/table.py compare $(call quoted,$(OUT)/counts/renew.json) || :
	@$(PYTHON) extras/cuda/counts/table.py write $(call quoted,$(OUT)/counts/renew.json) --made-by "$(counts_made_by)"

test-counts: counts-program
	@COUNTS=$(counts_program) COUNTS_MADE_BY="$(counts_made_by)" BUILD=$(B) PYTHON=$(PYTHON) tests/run.sh extras/cuda/tests/test_counts.py
