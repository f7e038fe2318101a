# SPDX-License-Identifier: MIT
# Counts of what device kernels do, on the PTX lane, and a model of L2; see docs/counts.md.

counts_models  := devices l2 replay
counts_objects := $(patsubst %,$(B)/emulation/counts/%.o,$(counts_models) footprint functions observe totals warps)

$(counts_objects): CXXFLAGS += -Iemulation/include
$(B)/tests/test_counts_l2: $(counts_models:%=$(B)/emulation/counts/%.o)
$(B)/tests/test_counts_warps: $(patsubst %,$(B)/emulation/counts/%.o,warps)
