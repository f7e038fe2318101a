/* SPDX-License-Identifier: MIT */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "extras/tiers/store.h"
#include "harness/memory.h"
#include "kernels/shape.h"

struct memory_table {
    struct buffer rows;
    size_t bytes; /* of a record */
};

struct memory_store {
    struct store store;
    struct memory_table *tables;
    int32_t num_tables;
    int threads;
};

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    const struct memory_store *m = (const struct memory_store *)s;
    const char *data = m->tables[table].rows.data;
    const size_t bytes = m->tables[table].bytes;
    (void)err;
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)records + (size_t)i * bytes, data + (size_t)rows[i] * bytes, bytes);
    return 0;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    const struct memory_store *m = (const struct memory_store *)s;
    char *data = m->tables[table].rows.data;
    const size_t bytes = m->tables[table].bytes;
    (void)err;
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        memcpy(data + (size_t)rows[i] * bytes, (const char *)records + (size_t)i * bytes, bytes);
    return 0;
}

static void close_store(struct store *s) {
    struct memory_store *m = (struct memory_store *)s;
    for (int32_t t = 0; t < m->num_tables; t++) buffer_free(&m->tables[t].rows);
    free(m->tables);
    free(m);
}

static struct store *open_store(const struct store_setup *setup, struct error *err) {
    struct memory_store *m = must_have(calloc(1, sizeof *m));
    m->store.kind = &memory_store;
    m->num_tables = setup->num_tables;
    m->threads = (int)max64(1, min64(setup->depth, omp_get_num_procs()));
    m->tables = must_have(calloc((size_t)setup->num_tables, sizeof *m->tables));
    for (int32_t t = 0; t < setup->num_tables; t++) {
        const struct store_table *table = &setup->tables[t];
        m->tables[t].bytes = (size_t)table->bytes;
        if (buffer_alloc(&m->tables[t].rows, (size_t)(table->rows * table->bytes),
                         "rows in host memory", err)) {
            close_store(&m->store);
            return NULL;
        }
        m->store.memory_bytes += table->rows * table->bytes;
    }
    return &m->store;
}

const struct store_kind memory_store = {.name = "memory",
                                        .block = 16,
                                        .open = open_store,
                                        .close = close_store,
                                        .fetch = fetch,
                                        .put = put};
