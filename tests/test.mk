# SPDX-License-Identifier: MIT
# Tests: a folder of tests/ is a suite, and so is the folder tests/ of an extra. Its test_*.c are one program, a group for
# each file; its test_*.sh and test_*.py are scripts. All print TAP, and tests/run.sh adds up the results.
#
#   make check      the suite unit: harness and oracle, no kernel
#   make test       unit, kernels, programs: what make and make bench build
#   make test-NAME  another suite: portable, or an extra's
#   make test-all   every suite
#
# ONLY="zipf bench" builds and runs test_zipf.c and test_bench.sh alone, of whatever suite they are.
#
#| make test      unit tests, kernels on drawn shapes, and the programs; ends with "N passed, N failed, N skipped".
#|                ONLY="zipf bench" builds and runs test_zipf.c and test_bench.sh alone; TESTS='cpu_*: dim*'
#|                selects in C programs; SEED=4711 repeats a drawn shape; DRAWS=5000: so many, from SEED on, instead of 60
#| make test-NAME of an extra, or portable. make test-all: all of these
#| make test-nightly  all of it by clang, portable, with sanitizers, 5,000 shapes, fuzzing, mutants, all architectures
#| make ci-metrics  bytes and instructions of host kernels against tests/golden/ci_metrics.txt: what can gate a change on
#|                any machine, in two minutes. KERNEL=text: of some. make ci-metrics-renew accepts a change. Status 3: something
#|                is worse, 4: not worse, but not as recorded
#| make fuzz      fuzz the readers of untrusted files: FUZZ_SECONDS=60
#| make mutants   change one line at a time of the kernels, the check and the oracle, and list the changes
#|                that no test notices: MINUTES=20 FILES='kernels/cpu/*.h' SEED=1; OUT/mutants.txt

core_suites  := unit kernels programs
other_suites := portable $(extras)
tests_in      = $(if $(filter $1,$(extras)),extras/$1/tests,tests/$1)
ONLY ?=

.PHONY: check test test-all test-nightly $(other_suites:%=test-%)

# --- C programs. The folder is the registry: main.c calls the groups of this list.
groups_of     = $(patsubst $(call tests_in,$1)/test_%.c,%,$(sort $(wildcard $(call tests_in,$1)/test_*.c)))
# Unit tests are compiled alone if ONLY names them.
groups_built  = $(or $(if $(filter unit,$1),$(filter $(ONLY),$(call groups_of,$1))),$(call groups_of,$1))
suite_objects = $(patsubst %.c,$(B)/%.o,$(filter-out $2/test_%.c,$(wildcard $2/*.c))) \
                $(patsubst %,$(B)/$2/test_%.o,$(call groups_built,$1)) $(B)/$2/main.o
$(B)/support.a: $(patsubst %.c,$(B)/%.o,$(filter-out %/main.c,$(wildcard tests/support/*.c)))
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

# Kernels, and emulated ones; after them archives, of which a program takes what it calls.
with_kernels := $(host) $(host_shared) $(updates) $(emulated) $(emulation)
archives     := $(B)/support.a $(B)/harness.a
# Unit tests take seconds to build: they have no update of a rule, and the oracle, which takes longest, for its test only.
unit_parts   := $(filter-out harness/registry.c,$(wildcard harness/*.c harness/workload/*.c)) \
                $(patsubst %,harness/measure/%.c,ceiling disturbance traffic) \
                $(if $(filter oracle dtype,$(call groups_built,unit)),harness/check/oracle.c)
$(B)/unit.a: $(unit_parts:%.c=$(B)/%.o) $(B)/tests/unit/groups.inc
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $(filter %.o,$^)
archives_of   = $(if $(filter unit,$1),$(B)/unit.a,$(archives))

# wrapped_SUITE: calls that a test of the suite counts, or lets fail. All others pass through.
wrapped_unit    := $(if $(filter trace,$(call groups_built,unit)),memory_available)
wrapped_kernels := malloc calloc realloc aligned_alloc posix_memalign mmap cudaMalloc cudaMallocHost cudaHostAlloc
wraps         = $(patsubst %,-Wl$(comma)--wrap=%,$(wrapped_$1))

# The program of a suite, in its folder.
define suite_in
$(B)/$2/groups.inc: FORCE
	@mkdir -p $$(@D)
	@printf 'GROUP(%s)\n' $(call groups_built,$1) $$(renewed)
$(B)/$2/main.o: tests/support/main.c $(B)/$2/groups.inc
	$$(call quiet,CC)$$(CC) $$(CFLAGS) -I$(B)/$2 -c $$< $$(object)
$(B)/$2/tests: $(call suite_objects,$1,$2) $(if $(filter unit,$1),,$(with_kernels))
	$$(call quiet,LD)$$(CXX) $$(CXXFLAGS) $$(filter-out %.a,$$^) $$(filter-out $(call archives_of,$1),$$(filter %.a,$$^)) $(call archives_of,$1) -lcmocka $$(LDLIBS) $$(whole)
$(B)/$2/tests: $(call archives_of,$1)
$(B)/$2/tests: LDLIBS += $(call wraps,$1)
endef
suite_rule = $(call suite_in,$1,$(call tests_in,$1))
$(foreach s,unit kernels,$(eval $(call suite_rule,$s)))
$(B)/tests/unit/%.o: CFLAGS += -O1

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

# Kernels with defects, for scripts of the plain build.
P       := $(B)/planted
planted := $(patsubst %.c,$(B)/%.o,$(wildcard tests/planted/*.c))
$(P)/kernel_list.inc: listed = $(host) $(planted)
planted_objects := $(common) $(planted) $(P)/harness/registry.o $(B)/harness/device/device_none.o
$(P)/bench: $(recorder) $(planted_objects)
$(P)/embfuse: $(embfuse) $(planted_objects)
$(P)/bench $(P)/embfuse:
	$(link)

include tests/fuzz/fuzz.mk

# --- suites: the groups and scripts to run, as run.sh takes them, and the programs that scripts need.
# Scripts about reports, the Makefile and other tools do not depend on how kernels are compiled, and Python cannot load a
# library with a sanitizer: they run only in the plain build, as do most suites.
tool_tests   := auto compare deps examples make medians plots reports sass_counts tables workflow
only          = $(or $(ONLY),%)
not_here      = $(if $(flavour),$(foreach t,$(tool_tests),%/test_$t.sh %/test_$t.py))
groups_to_run = $(foreach g,$(filter $(only),$(call groups_of,$1)),$(B)/$(call tests_in,$1)/tests:$g)
all_scripts   = $(filter-out $(not_here),$(sort $(wildcard $(foreach s,sh py,$(call tests_in,$1)/test_*.$s))))
scripts_of    = $(if $(ONLY),$(filter $(foreach o,$(ONLY),%/test_$o.sh %/test_$o.py),$(all_scripts)),$(all_scripts))
emulation_of_kernels = $(if $(filter $(only),emulation),$(B)/tests/emulation)
# The unit tests take seconds together.
tests_of      = $(if $(ONLY),$(groups_to_run),$(if $(filter unit,$1),$(B)/tests/unit/tests,$(groups_to_run))) \
                $(if $(filter kernels,$1),$(emulation_of_kernels)) $(scripts_of)

emulated_programs := $(E)/bench $(E)/embfuse
needs_programs := $(B)/bench $(B)/embfuse $(emulated_programs) $(if $(flavour),,$(P)/bench $(P)/embfuse)
needs_portable := $(B)/bench $(B)/embfuse

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
$(other_suites:%=test-%): test-%:
	$(call require,test-$*)
	$(before_$*)
	$(call run_suites,$*)
# Which changes of one line does no test notice?
.PHONY: mutants
mutants:
	$(call require,test)
	@$(PYTHON) tests/mutants.py $(MINUTES:%=--minutes=%) $(SEED:%=--seed=%) $(SANITIZE:%=--sanitize=%) \
	    --out='$(OUT)/mutants.txt' $(FILES)

# --- what CI gates on without a quiet machine. Instructions are those of a portable build with AVX2 alone: valgrind knows
# no AVX-512. This build has the rules of its workloads alone, and no extras: the updates of all rules take longer than
# everything else.
.PHONY: ci-metrics ci-metrics-renew
metrics_rules = $(sort $(shell sed -n 's/^ *rule //p' datasets/metrics.spec))
ci-metrics ci-metrics-renew:
	$(call require,metrics)
	@$(MAKE) --no-print-directory $(jobs) B=$(B)/metrics NATIVE=0 isas=avx2 rules='$(metrics_rules)' extras= commands= \
	     SANITIZE= NVCC= $(B)/metrics/bench $(B)/metrics/embfuse
	@$(PYTHON) tests/ci_metrics.py $(B)/metrics --nvcc='$(NVCC)' \
	     $(if $(filter %-renew,$@),--renew,$(KERNEL:%=--kernel=%))

# --- a real device: the same groups, linked with CUDA instead of its emulation
G            := $(B)/gpu
gpu_groups   := 00_example defects device device_validate kernels max memory onesweep overflow properties registry
gpu_support  := $(patsubst %.c,$(G)/%.o,$(filter-out %/main.c,$(wildcard tests/support/*.c))) $(G)/tests/gpu/no_emulation.o

.PRECIOUS: $(G)/%.o
$(G)/%.o: %.c Makefile tests/test.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) -isystem $(CUDA)/include -c $< $(object)

# The groups of a suite that run on a device: SUITE, GROUPS, its folder.
gpu_tests    :=
define gpu_suite_in
gpu_tests += $(2:%=$(G)/$3/tests:%)
$(G)/$3/groups.inc: FORCE
	@mkdir -p $$(@D)
	@printf 'GROUP(%s)\n' $2 $$(renewed)
$(G)/$3/main.o: tests/support/main.c $(G)/$3/groups.inc
	$$(call quiet,CC)$$(CC) $$(CFLAGS) -I$(G)/$3 -c $$< $$(object)
$(G)/$3/tests: $(patsubst %,$(G)/$3/test_%.o,$2) $(G)/$3/main.o $(gpu_support) $(cuda_objects)
	$$(call quiet,LD)$$(CXX) $$(CXXFLAGS) $$^ -lcmocka $$(LDLIBS) $$(cudart) $$(whole)
$(G)/$3/tests: LDLIBS += $(call wraps,$1)
endef
gpu_suite = $(call gpu_suite_in,$1,$2,$(call tests_in,$1))
$(eval $(call gpu_suite,kernels,$(gpu_groups)))

$(G)/tests/gpu/device_facts: $(G)/tests/gpu/device_facts.o $(cuda_objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(cudart) $(whole)

.PHONY: gpu-verify
gpu-verify:
	@[ -n "$(NVCC)" ] || { echo 'gpu-verify: nvcc is missing, so there are no device kernels' >&2; exit 1; }
	$(call require,test)
	@$(MAKE) --no-print-directory $(G)/tests/gpu/device_facts
	@$(G)/tests/gpu/device_facts >/dev/null
	@$(MAKE) --no-print-directory $(sort $(foreach t,$(gpu_tests),$(firstword $(subst :, ,$t))))
	@BUILD=$(G) OUT=$(call quoted,$(OUT)) tests/gpu/verify.sh $(filter $(addprefix %:,$(only)),$(gpu_tests))

# The first record of a device.
.PHONY: gpu-record
gpu-record:
	@[ -n "$(DEVICES)" ] || { echo 'gpu-record: no CUDA device: there is no /dev/nvidia0' >&2; exit 1; }
	@MAKE='$(MAKE)' OUT=$(call quoted,$(OUT)) tests/gpu/record.sh
