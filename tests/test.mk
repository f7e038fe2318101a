# SPDX-License-Identifier: MIT
# Tests: a folder of tests/ is a suite. Its test_*.c are one program, a group for each file; its test_*.sh and
# test_*.py are scripts. All print TAP, and tests/run.sh adds up the results.
#
#   make check      the suite unit: harness and oracle, no kernel
#   make test       unit, kernels, programs: what make and make bench build
#   make test-NAME  another suite: library ranks server tiers serving peers studies report portable cuda
#   make test-all   every suite
#
# ONLY="zipf bench" builds and runs tests/*/test_zipf.c and tests/*/test_bench.sh alone.
#
#| make test      unit tests, kernels on drawn shapes, and the programs; ends with "N passed, N failed, N skipped".
#|                ONLY="zipf bench" builds and runs tests/*/test_zipf.c and tests/*/test_bench.sh; TESTS='cpu_*: dim*'
#|                selects in C programs; SEED=4711 repeats a drawn shape; DRAWS=5000: so many, from SEED on, instead of 60
#| make test-NAME of an optional part: library ranks server tiers serving peers studies report portable cuda
#|                (what nvcc makes of kernels). make test-all: all of these
#| make test-nightly  all of it by clang, portable, with sanitizers, 5,000 shapes, fuzzing, mutants, all architectures
#| make ci-metrics  bytes and instructions of host kernels against tests/golden/ci_metrics.txt: what can gate a change on
#|                any machine, in a minute. KERNEL=text: of some. make ci-metrics-renew accepts a change. Status 3: something
#|                is worse, 4: not worse, but not as recorded
#| make fuzz      fuzz the readers of untrusted files: FUZZ_SECONDS=60
#| make mutants   change one line at a time of the kernels, the check and the oracle, and list the changes
#|                that no test notices: MINUTES=20 FILES='kernels/cpu/*.h' SEED=1; OUT/mutants.txt

core_suites  := unit kernels programs
other_suites := library ranks server tiers serving peers studies report portable cuda
ONLY ?=

.PHONY: check test test-all test-nightly $(other_suites:%=test-%)

# --- C programs. The folder is the registry: main.c calls the groups of this list.
groups_of     = $(patsubst tests/$1/test_%.c,%,$(sort $(wildcard tests/$1/test_*.c)))
c_suites     := $(foreach s,$(core_suites) $(other_suites),$(if $(call groups_of,$s),$s))
# Unit tests are compiled alone if ONLY names them.
groups_built  = $(or $(if $(filter unit,$1),$(filter $(ONLY),$(call groups_of,$1))),$(call groups_of,$1))
suite_objects = $(patsubst %.c,$(B)/%.o,$(filter-out tests/$1/test_%.c,$(wildcard tests/$1/*.c))) \
                $(patsubst %,$(B)/tests/$1/test_%.o,$(call groups_built,$1)) $(B)/tests/$1/main.o
$(B)/support.a: $(patsubst %.c,$(B)/%.o,$(filter-out %/main.c,$(wildcard tests/support/*.c)))
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

# Kernels, and emulated ones; after them archives, of which a program takes what it calls.
with_kernels := $(host) $(host_shared) $(updates) $(emulated) $(emulation)
archives     := $(B)/support.a $(guests) $(B)/harness.a
# Unit tests take seconds to build: they have no update of a rule, and the oracle, which takes longest, for its test only.
unit_parts   := $(filter-out harness/registry.c,$(wildcard harness/*.c harness/workload/*.c)) \
                $(patsubst %,harness/measure/%.c,ceiling disturbance traffic) \
                $(if $(filter oracle dtype,$(call groups_built,unit)),harness/check/oracle.c)
$(B)/unit.a: $(unit_parts:%.c=$(B)/%.o) $(B)/tests/unit/groups.inc
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $(filter %.o,$^)
archives_of   = $(if $(filter cuda,$1),,$(if $(filter unit,$1),$(B)/unit.a,$(archives)))

define suite_rule
$(B)/tests/$1/groups.inc: FORCE
	@mkdir -p $$(@D)
	@printf 'GROUP(%s)\n' $(call groups_built,$1) $$(renewed)
$(B)/tests/$1/main.o: tests/support/main.c $(B)/tests/$1/groups.inc
	$$(call quiet,CC)$$(CC) $$(CFLAGS) -I$(B)/tests/$1 -c $$< $$(object)
$(B)/tests/$1/tests: $(call suite_objects,$1)
	$$(call quiet,LD)$$(CXX) $$(CXXFLAGS) $$(filter-out %.a,$$^) $(call archives_of,$1) -lcmocka $$(LDLIBS) $$(whole)
$(B)/tests/$1/tests: $(call archives_of,$1)
endef
$(foreach s,$(c_suites),$(eval $(call suite_rule,$s)))
$(B)/tests/unit/%.o: CFLAGS += -O1
$(patsubst %,$(B)/tests/%/tests,$(filter-out unit cuda,$(c_suites))): $(with_kernels)
$(patsubst %,$(B)/tests/%/tests,ranks server): $(ranks_objects)
$(B)/tests/tiers/tests: $(tiers_objects)
$(patsubst %,$(B)/tests/%/tests,ranks tiers): $(B)/tests/library/state_case.o
$(B)/tests/tiers/tests: LDLIBS += $(tiers_libs)
$(B)/tests/cuda/tests: $(patsubst %,$(B)/emulation/counts/%.o,devices l2 replay warps)

# Calls that a test of the suite counts, or lets fail. All others pass through.
wrapped_unit    := $(if $(filter trace,$(call groups_built,unit)),memory_available)
wrapped_kernels := malloc calloc realloc aligned_alloc posix_memalign mmap cudaMalloc cudaMallocHost cudaHostAlloc
wrapped_library := pread pwrite fsync renameat
wrapped_tiers   := openat mkdir pwrite pread io_uring_queue_init io_uring_submit_and_wait
wrapped_ranks   := pwrite fsync renameat
wraps         = $(patsubst %,-Wl$(comma)--wrap=%,$(wrapped_$1))
$(foreach s,$(c_suites),$(eval $(B)/tests/$s/tests: LDLIBS += $(call wraps,$s)))

# The only test that calls CUDA itself; and what other files are told.
$(B)/tests/kernels/test_device.o: CFLAGS += -Iemulation/include
# A stand-in for NVIDIA's management library.
$(B)/tests/kernels/tests: | $(B)/tests/nvml/libnvidia-ml.so.1
$(B)/tests/nvml/libnvidia-ml.so.1: tests/kernels/nvml/nvml.c
	@mkdir -p $(@D)
	$(call quiet,LD)$(CC) $(WARN) -shared -fPIC -Wl,-soname,$(@F) $< $(whole)

# The emulation alone: it runs correct kernels and finds planted bugs.
$(B)/tests/emulation: $(selftest) $(emulation)
	@mkdir -p $(@D)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lcmocka $(LDLIBS) $(whole)

# Ranks with emulated devices.
$(E)/ranks_device: LDLIBS += -Wl,--wrap=device_rows_move
$(E)/ranks_device: $(B)/tests/ranks/mpi/ranks_device.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) $(nccl_stand_in)
$(E)/ranks_device: $(with_kernels) $(archives)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $(filter-out %.a,$^) $(archives) -lcmocka $(shell pkg-config --libs ompi-c) $(LDLIBS) $(whole)

# Kernels with defects, for scripts of the plain build.
P       := $(B)/planted
planted := $(patsubst %.c,$(B)/%.o,$(wildcard tests/planted/*.c))
$(P)/kernel_list.inc: listed = $(host) $(planted)
planted_objects := $(common) $(planted) $(P)/harness/registry.o $(B)/harness/device/device_none.o
$(P)/bench: $(recorder) $(planted_objects)
$(P)/embfuse: $(cli:%.c=$(B)/%.o) $(planted_objects) $(guests)
$(P)/bench $(P)/embfuse:
	$(link)

include tests/fuzz/fuzz.mk

# --- suites: the groups and scripts to run, as run.sh takes them, and the programs that scripts need.
# Scripts about reports, the Makefile and other tools do not depend on how kernels are compiled, and Python cannot load a
# library with a sanitizer: they run only in the plain build, as do most suites.
tool_tests   := auto compare deps examples make medians plots reports sass_counts tables workflow
only          = $(or $(ONLY),%)
not_here      = $(if $(flavour),$(foreach t,$(tool_tests),%/test_$t.sh %/test_$t.py))
groups_to_run = $(foreach g,$(filter $(only),$(call groups_of,$1)),$(B)/tests/$1/tests:$g)
all_scripts   = $(filter-out $(not_here),$(sort $(wildcard tests/$1/test_*.sh tests/$1/test_*.py)))
scripts_of    = $(if $(ONLY),$(filter $(foreach o,$(ONLY),%/test_$o.sh %/test_$o.py),$(all_scripts)),$(all_scripts))
emulation_of_kernels = $(if $(filter $(only),emulation),$(B)/tests/emulation)
# The unit tests take seconds together.
tests_of      = $(if $(ONLY),$(groups_to_run),$(if $(filter unit,$1),$(B)/tests/unit/tests,$(groups_to_run))) \
                $(if $(filter kernels,$1),$(emulation_of_kernels)) $(scripts_of)

emulated_programs := $(E)/bench $(E)/embfuse
needs_programs := $(B)/bench $(B)/embfuse $(emulated_programs) $(if $(flavour),,$(P)/bench $(P)/embfuse)
needs_library  := lib $(B)/embfuse $(B)/examples/dlrm
needs_ranks    := $(B)/studies/scale/scale $(B)/studies/zero/zero $(if $(mpi),$(ranks_programs) $(E)/ranks_device)
needs_server   := $(if $(mpi),$(ranks_programs))
needs_tiers    := $(B)/studies/tiers/tiers
needs_serving  := $(B)/studies/serving/serving $(B)/embfuse
needs_peers    := $(B)/peers/session $(B)/bench $(B)/embfuse
needs_studies  := $(B)/bench $(B)/embfuse $(B)/studies/drift/drift $(B)/studies/cores/cores $(B)/studies/tune/tune \
                  $(B)/studies/memory/memory
needs_report   := $(B)/bench
needs_portable := $(B)/bench $(B)/embfuse
needs_cuda     := $(B)/bench $(B)/embfuse $(emulated_programs) $(ptx_run) $(sass_library) $(sass_target) $(if $(NVCC),$(C)/bench $(C)/embfuse)

# Suites build with as many jobs as there are cores, unless -j says otherwise: emulated device kernels take minutes.
jobs      = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))
# What tests may cost, in the plain build.
budget    = $(if $(flavour),,BUDGET=tests/budget.txt)
run_tests = $(budget) BUILD=$(B) NATIVE=$(NATIVE) SANITIZE=$(SANITIZE) PYTHON=$(PYTHON) NVCC=$(NVCC) PTX_ARCHS='$(PTX_ARCHS)' tests/run.sh
# $1: suites. With ONLY, those of its tests.
define run_suites
$(if $(strip $(foreach s,$1,$(call tests_of,$s))),,@echo "no test is called $(ONLY)" >&2; exit 1)
@$(MAKE) --no-print-directory $(jobs) $(sort $(filter $(B)/%,$(foreach s,$1,$(foreach t,$(call tests_of,$s),$(firstword $(subst :, ,$t))))) \
     $(foreach s,$1,$(if $(call scripts_of,$s),$(needs_$s))))
@$(run_tests) $(foreach s,$1,$(call tests_of,$s))
endef

check:
	$(call require,test)
	$(call run_suites,unit)
# SUITES="unit kernels": others. A test that ONLY names may be of any suite.
SUITES ?= $(if $(ONLY),$(core_suites) $(other_suites),$(core_suites))
test:
	$(call require,test)
	$(call run_suites,$(SUITES))
# Everything that is too long for every change, and for every machine.
test-nightly:
	@.ci/nightly
test-all:
	$(call require,ci)
	$(call run_suites,$(core_suites) $(other_suites))
$(filter-out test-cuda,$(other_suites:%=test-%)): test-%:
	$(call require,test-$*)
	$(call run_suites,$*)
# What nvcc makes of kernels.
test-cuda:
	$(call require,test-cuda)
	@[ -z "$(NVCC)" ] || { $(MAKE) --no-print-directory $(jobs) ptx-programs ONLY= && $(MAKE) --no-print-directory sass-tools; }
	@[ -z "$(NVCC)" ] || [ -z "$(filter $(COUNTS_ARCH),$(CUDA_ARCHS))" ] || $(MAKE) --no-print-directory $(jobs) counts-program ONLY=
	$(call run_suites,cuda)

# Which changes of one line does no test notice?
.PHONY: mutants
mutants:
	$(call require,test)
	@$(PYTHON) tests/mutants.py $(MINUTES:%=--minutes=%) $(SEED:%=--seed=%) $(SANITIZE:%=--sanitize=%) \
	    --out='$(OUT)/mutants.txt' $(FILES)

# --- what CI gates on without a quiet machine. valgrind knows no AVX-512, so instructions are those of a portable build.
portable_build = $(if $(filter 0,$(NATIVE)),$(B),$(B)/portable)
.PHONY: ci-metrics ci-metrics-renew
ci-metrics ci-metrics-renew:
	$(call require,metrics)
	@$(MAKE) --no-print-directory $(jobs) B=$(portable_build) NATIVE=0 \
	     SANITIZE= NVCC= $(portable_build)/bench $(portable_build)/embfuse
	@$(PYTHON) tests/ci_metrics.py $(portable_build) --nvcc='$(NVCC)' \
	     $(if $(filter %-renew,$@),--renew,$(KERNEL:%=--kernel=%))

# --- what nvcc makes of the kernels. If NVIDIA's disassembler is neither beside nvcc nor in PATH, it is installed once.
sass_venv    := build/sass/venv
.PHONY: resources sass-tools
sass-tools:
	@[ -e $(sass_venv)/complete ] || { [ -x '$(NVCC:%nvcc=%nvdisasm)' ] && [ -x '$(NVCC:%nvcc=%cuobjdump)' ]; } || \
	    { command -v nvdisasm && command -v cuobjdump; } >/dev/null || sh peers/setup.sh $(sass_venv) $(PYTHON) sass \
	    tests/cuda/sass/requirements.txt 'a disassembler, 7 MB' 'import glob, sys; \
	    assert glob.glob(sys.prefix + "/lib/*/site-packages/nvidia/*/bin/nvdisasm")'
resources: $(cuda_objects)
	@$(MAKE) --no-print-directory sass-tools
	@BUILD=$(B) NVCC=$(NVCC) $(PYTHON) tests/cuda/test_nvcc.py --renew

# --- a real device: the same groups, linked with CUDA instead of its emulation
G            := $(B)/gpu
gpu_groups   := 00_example defects device device_validate kernels max memory onesweep overflow properties registry
gpu_tiers    := tier_place tier_refused
gpu_tests    := $(gpu_groups:%=$(G)/tests/kernels/tests:%) $(gpu_tiers:%=$(G)/tests/tiers/tests:%)
gpu_support  := $(patsubst %.c,$(G)/%.o,$(filter-out %/main.c,$(wildcard tests/support/*.c))) $(G)/tests/cuda/gpu/no_emulation.o

.PRECIOUS: $(G)/%.o
$(G)/%.o: %.c Makefile tests/test.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) -isystem $(CUDA)/include -c $< $(object)

# The groups of a suite that run on a device.
define gpu_suite
$(G)/tests/$1/groups.inc: FORCE
	@mkdir -p $$(@D)
	@printf 'GROUP(%s)\n' $2 $$(renewed)
$(G)/tests/$1/main.o: tests/support/main.c $(G)/tests/$1/groups.inc
	$$(call quiet,CC)$$(CC) $$(CFLAGS) -I$(G)/tests/$1 -c $$< $$(object)
$(G)/tests/$1/tests: $(patsubst %,$(G)/tests/$1/test_%.o,$2) $(G)/tests/$1/main.o $(gpu_support) $(cuda_objects) $(guests)
	$$(call quiet,LD)$$(CXX) $$(CXXFLAGS) $$^ -lcmocka $$(LDLIBS) $$(cudart) $$(whole)
endef
$(eval $(call gpu_suite,kernels,$(gpu_groups)))
$(eval $(call gpu_suite,tiers,$(gpu_tiers)))
$(G)/tests/kernels/tests: LDLIBS += $(call wraps,kernels)
$(G)/tests/tiers/tests: $(tiers_objects)
$(G)/tests/tiers/tests: LDLIBS += $(tiers_libs)

$(G)/tests/cuda/gpu/device_facts: $(G)/tests/cuda/gpu/device_facts.o $(cuda_objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(cudart) $(whole)

.PHONY: gpu-verify
gpu-verify:
	@[ -n "$(NVCC)" ] || { echo 'gpu-verify: nvcc is missing, so there are no device kernels' >&2; exit 1; }
	$(call require,test)
	@$(MAKE) --no-print-directory $(G)/tests/cuda/gpu/device_facts
	@$(G)/tests/cuda/gpu/device_facts >/dev/null
	@$(MAKE) --no-print-directory $(G)/tests/kernels/tests $(G)/tests/tiers/tests
	@BUILD=$(G) OUT=$(call quoted,$(OUT)) tests/cuda/gpu_verify.sh $(filter $(addprefix %:,$(only)),$(gpu_tests))

# The headers of CUDA 12, for tests/cuda/test_cuda_old.py. CCCL is of 12.4: older packages of it are not whole.
cuda12_packages := nvidia-cuda-runtime-cu12==12.0.146 nvidia-cuda-nvcc-cu12==12.0.140 nvidia-nvtx-cu12==12.0.140 \
                   nvidia-cuda-cccl-cu12==12.4.127.post1
.PHONY: cuda12
cuda12: build/cuda12/nvidia/complete
build/cuda12/nvidia/complete:
	@rm -rf build/cuda12
	@$(PYTHON) -m pip install -q --no-deps --root-user-action=ignore --target build/cuda12 $(cuda12_packages)
	@touch $@

# The first record of a device.
.PHONY: gpu-record
gpu-record:
	@[ -n "$(DEVICES)" ] || { echo 'gpu-record: no CUDA device: there is no /dev/nvidia0' >&2; exit 1; }
	@MAKE='$(MAKE)' OUT=$(call quoted,$(OUT)) tests/cuda/gpu/record.sh
