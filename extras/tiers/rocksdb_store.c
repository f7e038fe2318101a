/* SPDX-License-Identifier: MIT
 *
 * Rows in RocksDB, the engine that others put their tables on: a key is the number of the table and of the row. As FBGEMM's
 * tables on SSD have it, no write-ahead log: a commit flushes. Direct I/O, no compression, no block cache, 10 bits of bloom
 * filter for a key, and write buffers of 4 MiB, so that little of the table is in memory.
 */
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "extras/tiers/store.h"

enum { AT_ONCE = 1024, BUFFER = 4 << 20, KEY = 12 };

#define FILLED "filled" /* a key that says that all rows have their initial values */

struct rocksdb_store {
    struct store store;
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_readoptions_t *reading;
    rocksdb_writeoptions_t *writing;
    struct record *layout; /* [num_tables] */
    struct store_counts counts;
};

static struct rocksdb_store *of(struct store *s) {
    return (struct rocksdb_store *)s;
}

/* RocksDB's own words; it gives them away. */
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

static int fetch_some(struct rocksdb_store *x, int32_t table, const int64_t *rows, int64_t count,
                      char *records, struct error *err) {
    const int64_t bytes = x->layout[table].bytes;
    char key[AT_ONCE][KEY], *value[AT_ONCE], *why[AT_ONCE];
    const char *keys[AT_ONCE] = {0};
    size_t key_bytes[AT_ONCE] = {0}, value_bytes[AT_ONCE];
    int status = 0;
    for (int64_t i = 0; i < count; i++) {
        key_of(key[i], table, rows[i]);
        keys[i] = key[i];
        key_bytes[i] = KEY;
    }
    rocksdb_multi_get(x->db, x->reading, (size_t)count, keys, key_bytes, value, value_bytes, why);
    for (int64_t i = 0; i < count; i++) {
        if (why[i] && status == 0)
            status = failed("read a row", why[i], err);
        else if (status == 0 && (!value[i] || value_bytes[i] != (size_t)bytes))
            status = fail(err, "RocksDB has no row %lld of table %d", (long long)rows[i], table);
        else if (status == 0)
            memcpy(records + i * bytes, value[i], (size_t)bytes);
        rocksdb_free(value[i]);
    }
    return status;
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct rocksdb_store *x = of(s);
    const int64_t bytes = x->layout[table].bytes;
    for (int64_t i = 0; i < count; i += AT_ONCE)
        if (fetch_some(x, table, rows + i, min64(count - i, AT_ONCE), (char *)records + i * bytes,
                       err))
            return -1;
    x->counts.fetched += count;
    return 0;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct rocksdb_store *x = of(s);
    const int64_t bytes = x->layout[table].bytes;
    char key[KEY], *why = NULL;
    rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
    for (int64_t i = 0; i < count; i++) {
        key_of(key, table, rows[i]);
        rocksdb_writebatch_put(batch, key, KEY, (const char *)records + i * bytes, (size_t)bytes);
    }
    rocksdb_write(x->db, x->writing, batch, &why);
    rocksdb_writebatch_destroy(batch);
    x->counts.stored += count;
    return why ? failed("write rows", why, err) : 0;
}

static int commit(struct store *s, struct error *err) {
    struct rocksdb_store *x = of(s);
    char *why = NULL;
    rocksdb_flushoptions_t *how = rocksdb_flushoptions_create();
    rocksdb_flush(x->db, how, &why);
    rocksdb_flushoptions_destroy(how);
    return why ? failed("flush", why, err) : 0;
}

static struct store_counts counts(const struct store *s) {
    struct store_counts c = ((const struct rocksdb_store *)s)->counts;
    c.read = c.written = -1;
    return c;
}

static int64_t memory(const struct store *s) {
    static const char *const parts[] = {"rocksdb.cur-size-all-mem-tables",
                                        "rocksdb.estimate-table-readers-mem"};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        uint64_t part = 0;
        rocksdb_property_int(((const struct rocksdb_store *)s)->db, parts[i], &part);
        bytes += (int64_t)part;
    }
    return bytes;
}

static void close_store(struct store *s) {
    struct rocksdb_store *x = of(s);
    if (x->db) rocksdb_close(x->db);
    rocksdb_options_destroy(x->options);
    rocksdb_readoptions_destroy(x->reading);
    rocksdb_writeoptions_destroy(x->writing);
    free(x->layout);
    free(x);
}

/* Initial values, written and compacted: so reads are those of a table that has settled. */
static int fill(struct rocksdb_store *x, const struct store_setup *setup, struct error *err) {
    int status = 0;
    for (int32_t t = 0; t < setup->num_tables && status == 0; t++) {
        const struct record *layout = &x->layout[t];
        char *records = must_have(malloc((size_t)(AT_ONCE * layout->bytes)));
        int64_t rows[AT_ONCE];
        for (int64_t first = 0; first < layout->shape.rows && status == 0; first += AT_ONCE) {
            const int64_t count = min64(AT_ONCE, layout->shape.rows - first);
            for (int64_t i = 0; i < count; i++) rows[i] = first + i;
            status = record_initial(layout, t, setup->seed, first, count, records, err);
            if (status == 0) status = put(&x->store, t, rows, count, records, err);
        }
        free(records);
    }
    char *why = NULL;
    if (status == 0) rocksdb_put(x->db, x->writing, FILLED, strlen(FILLED), "", 0, &why);
    if (why) return failed("write rows", why, err);
    if (status || commit(&x->store, err)) return -1;
    rocksdb_compact_range(x->db, NULL, 0, NULL, 0);
    x->counts = (struct store_counts){0};
    return 0;
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

struct store *rocksdb_store(const struct store_setup *setup, struct error *err) {
    static const struct store_ops ops = {.block = RECORD_BLOCK,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .commit = commit,
                                         .counts = counts,
                                         .memory = memory};
    struct rocksdb_store *x = must_have(calloc(1, sizeof *x));
    x->store = (struct store){&ops, "rocksdb"};
    x->options = options_of(setup);
    x->reading = rocksdb_readoptions_create();
    x->writing = rocksdb_writeoptions_create();
    rocksdb_writeoptions_disable_WAL(x->writing, 1);
    x->layout = must_have(calloc((size_t)setup->num_tables, sizeof *x->layout));
    for (int32_t t = 0; t < setup->num_tables; t++)
        x->layout[t] = record_of(&setup->shapes[t], RECORD_BLOCK);
    char *why = NULL;
    x->db = rocksdb_open(x->options, setup->directory, &why);
    int status = why ? failed("open its folder", why, err) : 0;
    size_t bytes = 0;
    char *filled =
        status ? NULL : rocksdb_get(x->db, x->reading, FILLED, strlen(FILLED), &bytes, &why);
    if (status == 0 && why) status = failed("read its rows", why, err);
    if (status == 0 && !filled) status = fill(x, setup, err);
    rocksdb_free(filled);
    if (status == 0) return &x->store;
    close_store(&x->store);
    return NULL;
}
