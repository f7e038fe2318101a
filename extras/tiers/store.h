/* SPDX-License-Identifier: MIT
 *
 * Where rows lie when they have no slot: files, or another engine. A record is a row with its weights and all of
 * its states, so that they move together.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include "harness/workload/tables.h"

/* Records of a disk begin at multiples of so many bytes, as direct I/O wants. */
enum { RECORD_BLOCK = 512 };

struct record {
    struct table_shape shape;
    int64_t used, bytes; /* bytes: a multiple of the block of its store */
};

struct record record_of(const struct table_shape *shape, int64_t block);

/* Copies a row between a record and a row of a table in memory. */
void record_pack(const struct record *r, void *record, const struct table *from, int64_t row);
void record_unpack(const struct record *r, const void *record, struct table *to, int64_t row);

/* Rows first .. first+count-1 of a table with their initial values, as records. */
int record_initial(const struct record *r, int32_t table, uint64_t seed, int64_t first,
                   int64_t count, void *records, struct error *err);

struct store_setup {
    const char *directory;            /* is made if it is not there; its parent is */
    const struct table_shape *shapes; /* [num_tables], not kept */
    int32_t num_tables;
    uint64_t seed; /* of the initial values that a new one begins with */
    int depth;     /* reads and writes in flight; threads that copy, where nothing waits */
    bool direct;   /* not through the page cache, where the file system can */
};

struct store_counts {
    int64_t fetched, stored; /* records */
    int64_t read, written;   /* bytes, of all files; -1: unknown */
};

struct store;

struct store_ops {
    int64_t block; /* records are a multiple of so many bytes */
    void (*close)(struct store *s);
    /* Records of [count] distinct rows; records: [count] one behind the other, aligned to a page. */
    int (*fetch)(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err);
    int (*put)(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err);
    /* The next process that opens the store finds these rows. NULL: nothing lasts in it. */
    int (*commit)(struct store *s, struct error *err);
    struct store_counts (*counts)(const struct store *s);
    /* Bytes of memory. */
    int64_t (*memory)(const struct store *s);
};

struct store {
    const struct store_ops *ops;
    const char *engine; /* what reads and writes: not every kernel allows io_uring */
};

typedef struct store *store_open(const struct store_setup *s, struct error *err);

/* Tables in files, which are scratch. */
store_open file_store;
/* Tables in host memory, for slots of a device. */
store_open memory_store;
/* RocksDB, the store that lasts: NULL with a line in err where this build has none. */
store_open rocksdb_store;
