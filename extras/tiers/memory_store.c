/* SPDX-License-Identifier: MIT
 *
 * Tables in host memory, for slots in the memory of a device.
 */
#include <omp.h>
#include <stdlib.h>

#include "harness/memory.h"
#include "extras/tiers/store.h"

struct memory_store {
    struct store store;
    struct table_set tables;
    struct table_shape *shapes;
    struct record *layout; /* [num_tables] */
    int threads;
    struct store_counts counts;
};

static struct memory_store *of(struct store *s) {
    return (struct memory_store *)s;
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct memory_store *m = of(s);
    const struct record *layout = &m->layout[table];
    (void)err;
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        record_pack(layout, (char *)records + i * layout->bytes, &m->tables.tables[table], rows[i]);
    m->counts.fetched += count;
    m->counts.read += count * layout->used;
    return 0;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct memory_store *m = of(s);
    const struct record *layout = &m->layout[table];
    (void)err;
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int64_t i = 0; i < count; i++)
        record_unpack(layout, (const char *)records + i * layout->bytes, &m->tables.tables[table],
                      rows[i]);
    m->counts.stored += count;
    m->counts.written += count * layout->used;
    return 0;
}

static struct store_counts counts(const struct store *s) {
    return ((const struct memory_store *)s)->counts;
}

static int64_t memory(const struct store *s) {
    return ((const struct memory_store *)s)->tables.bytes;
}

static void close_store(struct store *s) {
    struct memory_store *m = of(s);
    tables_free(&m->tables);
    free(m->shapes);
    free(m->layout);
    free(m);
}

struct store *memory_store(const struct store_setup *setup, struct error *err) {
    static const struct store_ops ops = {.block = 16,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .counts = counts,
                                         .memory = memory};
    const size_t count = (size_t)setup->num_tables;
    struct memory_store *m = must_have(calloc(1, sizeof *m));
    m->store = (struct store){&ops, "copies"};
    const int cpus = omp_get_num_procs();
    m->threads = setup->depth < 1 ? 1 : setup->depth < cpus ? setup->depth : cpus;
    m->shapes = must_have(calloc(count, sizeof *m->shapes));
    m->layout = must_have(calloc(count, sizeof *m->layout));
    for (size_t t = 0; t < count; t++) {
        m->shapes[t] = setup->shapes[t];
        m->layout[t] = record_of(&setup->shapes[t], ops.block);
    }
    if (tables_create(&m->tables, m->shapes, setup->num_tables, setup->seed, err) == 0)
        return &m->store;
    close_store(&m->store);
    return NULL;
}
