# SPDX-License-Identifier: MIT
# Fuzzing: every tests/fuzz/fuzz_NAME.c is a libFuzzer target on one parser. `make fuzz` runs each
# for FUZZ_SECONDS and prints one line; ONLY_FUZZ=NAME runs one. The corpus in build/fuzz/NAME grows
# from run to run, a crashing input lands in build/fuzz/crash-NAME-*, and build/fuzz/fuzz_NAME FILE
# replays it. Seeds: tests/fuzz/seeds/NAME and fuzz_seeds_NAME.
# A new target needs its file and a list of its sources below.

FUZZ_CC      ?= clang
FUZZ_SECONDS ?= 60
ONLY_FUZZ    ?=
FUZZ_FLAGS   := -std=gnu11 -O1 -g -fno-omit-frame-pointer -fno-sanitize-recover=all \
                -fsanitize=fuzzer,address,undefined -Wall -Wextra -I. -I$(B)
# A parser allocates in proportion to its input, which has at most 4 kB: more is a finding.
FUZZ_LIMITS  := -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64

fuzz_files   := $(wildcard tests/fuzz/fuzz_*.c extras/*/tests/fuzz/fuzz_*.c)
fuzz_names   := $(sort $(patsubst fuzz_%.c,%,$(notdir $(fuzz_files))))

# The sources of each parser, and further seeds for it.
fuzz_sources_npy   := harness/error.c harness/memory.c harness/workload/regular_file.c harness/workload/npy.c
fuzz_sources_trace := $(fuzz_sources_npy) harness/workload/trace.c harness/workload/trace_text.c
fuzz_sources_spec  := harness/error.c harness/workload/regular_file.c harness/workload/lengths.c harness/workload/zipf.c $(wildcard harness/workload/spec*.c)
fuzz_seeds_npy     := tests/golden/npy

.PHONY: fuzz $(fuzz_names:%=fuzz-run-%)
fuzz: $(addprefix fuzz-run-,$(or $(ONLY_FUZZ),$(fuzz_names)))

$(fuzz_names:%=build/fuzz/fuzz_%): build/fuzz/fuzz_%: $(fuzz_files) $(wildcard harness/*.[ch] harness/workload/*.[ch] kernels/*.h rules/*.h) | $(rule_lists)
	@mkdir -p $(@D)
	$(FUZZ_CC) $(FUZZ_FLAGS) $(filter %/fuzz_$*.c,$(fuzz_files)) $(fuzz_sources_$*) -lz -lxxhash -lm $(whole)

$(fuzz_names:%=fuzz-run-%): fuzz-run-%: build/fuzz/fuzz_%
	@mkdir -p build/fuzz/$*
	@$< $(FUZZ_LIMITS) -max_total_time=$(FUZZ_SECONDS) -artifact_prefix=build/fuzz/crash-$*- \
	    build/fuzz/$* $(wildcard tests/fuzz/seeds/$* extras/*/tests/fuzz/seeds/$*) $(fuzz_seeds_$*) >build/fuzz/$*.log 2>&1 \
	    || { echo "fuzz_$*: FAILED, see build/fuzz/$*.log"; tail -n 40 build/fuzz/$*.log; exit 1; }
	@sed -n 's/^Done \([0-9]*\) runs in \([0-9]*\) s.*/fuzz_$*: \1 inputs in \2 s, no finding/p' \
	    build/fuzz/$*.log
