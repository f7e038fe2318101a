# SPDX-License-Identifier: MIT
# Programs that use libembfuse as its users do: see examples/README.md.
#
#| make example   build the C example of libembfuse, examples/dlrm.c, and run it for a second
#| make train-example  train a small DLRM on planted clicks: rules, lazy and dense Adam, fp32 and bf16; about 5
#|                minutes on two cores; OUT/train-example/training.md and .png. SEEDS=3, THREADS=2: runs at once

.PHONY: example train-example

$(B)/examples/dlrm: examples/dlrm.c include/embfuse.h $(shared)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 -O2 -g $(SAN) $(WARN) -Iinclude $< $(shared) -Wl,-rpath,'$$ORIGIN/..' -lm $(whole)

example: $(B)/examples/dlrm
	@$(B)/examples/dlrm

# Click models on a log whose labels depend on the ids. A page of its own: docs/training.md is a copy.
train-example:
	$(call require,test)
	@$(MAKE) --no-print-directory $(shared)
	@EMBFUSE_LIBRARY=$(abspath $(shared)) $(PYTHON) examples/train/study.py $(call quoted,$(OUT)/train-example) \
	     $(SEEDS:%=--seeds=%) $(THREADS:%=--jobs=%)
