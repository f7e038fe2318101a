/* SPDX-License-Identifier: MIT
 *
 * A store holds the rows that have no slot: a record of fixed size for each row of each table. It does not read
 * them. The caller fills a new store.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "harness/error.h"

struct store_table {
    int64_t rows, bytes; /* bytes of a record: a multiple of the block of the store */
};

struct store_setup {
    const char *directory; /* is made if it is not there; its parent is there */
    const struct store_table *tables;
    int32_t num_tables;
    int depth;   /* reads and writes in flight, or threads that copy */
    bool direct; /* do not use the page cache, where the file system can do without */
};

struct store {
    const struct store_kind *kind;
    bool has_rows;        /* an earlier process has committed its rows */
    int64_t memory_bytes; /* that it holds */
};

struct store_kind {
    const char *name;
    int64_t block;
    struct store *(*open)(const struct store_setup *s, struct error *err);
    void (*close)(struct store *s);
    /* Copy the records of [count] distinct rows. records: contiguous, aligned to a page. */
    int (*fetch)(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err);
    int (*put)(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err);
    /* The next process that opens the store finds these rows. NULL: nothing lasts in it. */
    int (*commit)(struct store *s, struct error *err);
};

/* Files, which are scratch: they are removed when the store closes. */
extern const struct store_kind file_store;
/* Host memory, for slots of a device. */
extern const struct store_kind memory_store;
/* RocksDB, which lasts. open() fails where this build has none. */
extern const struct store_kind rocksdb_store;
