/* SPDX-License-Identifier: MIT */
#include "extras/tiers/store.h"

struct store *rocksdb_store(const struct store_setup *setup, struct error *err) {
    (void)setup;
    return fail(err, "this build has no RocksDB (Debian: librocksdb-dev)"), NULL;
}
