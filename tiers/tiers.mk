# SPDX-License-Identifier: MIT
# Tables that are larger than the fast memory. RocksDB, where it is, for comparison.

rocksdb       := $(wildcard /usr/include/rocksdb/c.h)
tiers_objects := $(patsubst %.c,$(B)/%.o,$(filter-out tiers/rocksdb_%.c,$(sort $(wildcard tiers/*.c))) \
                                         tiers/rocksdb_$(if $(rocksdb),store,none).c)
tiers_libs    := -luring $(if $(rocksdb),-lrocksdb)
