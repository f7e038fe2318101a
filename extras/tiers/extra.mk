# SPDX-License-Identifier: MIT
# Tables that are larger than the fast memory: on files, in host memory, or in RocksDB where that is installed.
#
#| make bench-tiers  tables on a disk with BUDGET="5 10 20 50 100" percent of their rows in memory: hits of every policy
#|                over ALPHA="0.6 0.8 1.05 1.2", reuse histograms and traces; speed beside tables in memory, with rows
#|                fetched ahead. BATCHES=128, the first half warms up; needs 1 GB of disk; OUT/tiers/tiers.md

tiers_objects := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard extras/tiers/*.c)))
rocksdb       := $(wildcard /usr/include/rocksdb/c.h)
tiers_libs    := $(if $(rocksdb),-lrocksdb)
tiers_study   := $(B)/extras/tiers/study/tiers

$(B)/extras/tiers/rocksdb_store.o: CFLAGS += $(if $(rocksdb),-DHAS_ROCKSDB)
$(tiers_study): %: %.o $(tiers_objects) $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(tiers_libs) $(whole)

.PHONY: bench-tiers
packages_tiers := $(packages_bench) librocksdb-dev
bench-tiers:
	$(call require,tiers)
	@$(MAKE) --no-print-directory $(tiers_study)
	@$(PYTHON) extras/tiers/study/tiers.py $(call quoted,$(OUT)/tiers/tiers.jsonl) $(call quoted,$(OUT)/tiers) \
	     --tiers=$(tiers_study) --traces='$(TRACES)' $(call given,BUDGET ALPHA BATCHES)

packages_test-tiers := $(packages_test)
packages_ci   += librocksdb-dev
needs_tiers   := $(tiers_study)
wrapped_tiers := openat mkdir pwrite pread
$(eval $(call suite_rule,tiers))
# On a device, with the test that has the wrapped calls.
$(eval $(call gpu_suite,tiers,tier_place tier_refused tier_rows))
$(B)/extras/tiers/tests/tests $(G)/extras/tiers/tests/tests: $(tiers_objects)
$(B)/extras/tiers/tests/tests $(G)/extras/tiers/tests/tests: LDLIBS += $(tiers_libs)
