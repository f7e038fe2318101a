# SPDX-License-Identifier: MIT
# Tables that are larger than the fast memory. RocksDB, where it is, for comparison.
#
#| make bench-tiers  tables on a disk with BUDGET="5 10 20 50 100" percent of their rows in memory: hits of every policy
#|                over ALPHA="0.6 0.8 1.05 1.2", reuse histograms and traces; speed beside tables in memory, with rows
#|                fetched ahead. BATCHES=128, the first half warms up; needs 1 GB of disk; OUT/tiers/tiers.md

rocksdb       := $(wildcard /usr/include/rocksdb/c.h)
tiers_objects := $(patsubst %.c,$(B)/%.o,$(filter-out tiers/rocksdb_%.c,$(sort $(wildcard tiers/*.c))) \
                                         tiers/rocksdb_$(if $(rocksdb),store,none).c)
tiers_libs    := -luring $(if $(rocksdb),-lrocksdb)
