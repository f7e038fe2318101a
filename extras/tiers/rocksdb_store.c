/* SPDX-License-Identifier: MIT
 *
 * Rows in RocksDB, the engine that others put their tables on: a key is the number of the table and of the row. As
 * FBGEMM's tables on SSD have it, no write-ahead log: a commit flushes. Direct I/O, no compression, no block cache,
 * 10 bits of bloom filter for a key, and write buffers of 4 MiB, so that little of the table is in memory.
 */
#include "extras/tiers/store.h"

#ifdef HAS_ROCKSDB
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

enum { BUFFER = 4 << 20, KEY = 12 };

#define COMMITTED "committed" /* a key that says that every row is there */

struct rocksdb_store {
    struct store store;
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_readoptions_t *reading;
    rocksdb_writeoptions_t *writing;
    int64_t *bytes; /* [num_tables] of a record */
    int threads;    /* that read */
};

/* Frees RocksDB's own words. */
static int failed(const char *what, char *why, struct error *err) {
    fail(err, "RocksDB cannot %s: %.400s", what, why);
    rocksdb_free(why);
    return -1;
}

/* Big endian, so that keys are in the order of rows. */
static void key_of(char key[KEY], int32_t table, int64_t row) {
    for (int i = 0; i < 4; i++) key[i] = (char)(table >> (24 - 8 * i));
    for (int i = 0; i < 8; i++) key[4 + i] = (char)(row >> (56 - 8 * i));
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct rocksdb_store *x = (struct rocksdb_store *)s;
    const size_t bytes = (size_t)x->bytes[table];
    int status = 0;
#pragma omp parallel for num_threads(x->threads) schedule(dynamic)
    for (int64_t i = 0; i < count; i++) {
        char key[KEY], *why = NULL;
        size_t size = 0;
        key_of(key, table, rows[i]);
        char *value = rocksdb_get(x->db, x->reading, key, KEY, &size, &why);
        if (!why && value && size == bytes)
            memcpy((char *)records + (size_t)i * bytes, value, bytes);
        else
#pragma omp critical(rocksdb_failed)
            status =
                why ? failed("read a row", why, err)
                    : fail(err, "RocksDB has no row %lld of table %d", (long long)rows[i], table);
        rocksdb_free(value);
    }
    return status;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct rocksdb_store *x = (struct rocksdb_store *)s;
    const int64_t bytes = x->bytes[table];
    char key[KEY], *why = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (int64_t i = 0; i < count; i++) {
        key_of(key, table, rows[i]);
        rocksdb_writebatch_put(batch, key, KEY, (const char *)records + i * bytes, (size_t)bytes);
    }
    rocksdb_write(x->db, x->writing, batch, &why);
    rocksdb_writebatch_destroy(batch);
    return why ? failed("write rows", why, err) : 0;
}

/* The first commit also compacts, so that later reads find settled tables. */
static int commit(struct store *s, struct error *err) {
    struct rocksdb_store *x = (struct rocksdb_store *)s;
    char *why = NULL;
    if (!s->has_rows) rocksdb_put(x->db, x->writing, COMMITTED, strlen(COMMITTED), "", 0, &why);
    if (why) return failed("write rows", why, err);
    rocksdb_flushoptions_t *how = rocksdb_flushoptions_create();
    rocksdb_flush(x->db, how, &why);
    rocksdb_flushoptions_destroy(how);
    if (why) return failed("flush", why, err);
    if (!s->has_rows) rocksdb_compact_range(x->db, NULL, 0, NULL, 0);
    s->has_rows = true;
    return 0;
}

static void close_store(struct store *s) {
    struct rocksdb_store *x = (struct rocksdb_store *)s;
    if (x->db) rocksdb_close(x->db);
    rocksdb_options_destroy(x->options);
    rocksdb_readoptions_destroy(x->reading);
    rocksdb_writeoptions_destroy(x->writing);
    free(x->bytes);
    free(x);
}

static rocksdb_options_t *options_of(const struct store_setup *setup) {
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_no_block_cache(table, 1);
    rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom(10));
    rocksdb_options_set_block_based_table_factory(o, table);
    rocksdb_block_based_options_destroy(table);
    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_options_set_compression(o, rocksdb_no_compression);
    rocksdb_options_set_write_buffer_size(o, BUFFER);
    rocksdb_options_set_use_direct_reads(o, setup->direct);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(o, setup->direct);
    return o;
}

static struct store *open_store(const struct store_setup *setup, struct error *err) {
    struct rocksdb_store *x = must_have(calloc(1, sizeof *x));
    x->store.kind = &rocksdb_store;
    x->options = options_of(setup);
    x->reading = rocksdb_readoptions_create();
    x->writing = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(x->writing, 1);
    x->threads = setup->depth > 1 ? setup->depth : 1;
    x->bytes = must_have(calloc((size_t)setup->num_tables, sizeof *x->bytes));
    for (int32_t t = 0; t < setup->num_tables; t++) x->bytes[t] = setup->tables[t].bytes;
    char *why = NULL, *committed = NULL;
    size_t bytes = 0;
    x->db = rocksdb_open(x->options, setup->directory, &why);
    if (!why)
        committed = rocksdb_get(x->db, x->reading, COMMITTED, strlen(COMMITTED), &bytes, &why);
    x->store.has_rows = committed;
    rocksdb_free(committed);
    if (!why) return &x->store;
    failed("open its folder", why, err);
    close_store(&x->store);
    return NULL;
}

const struct store_kind rocksdb_store = {.name = "rocksdb",
                                         .block = 16,
                                         .open = open_store,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .commit = commit};
#else
static struct store *open_store(const struct store_setup *setup, struct error *err) {
    (void)setup;
    return fail(err, "this build has no RocksDB (Debian: librocksdb-dev)"), NULL;
}

const struct store_kind rocksdb_store = {.name = "rocksdb", .block = 16, .open = open_store};
#endif
