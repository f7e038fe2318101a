/* SPDX-License-Identifier: MIT
 *
 * Batches and tables in device memory.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"

/* The arrays of a batch in host memory, in the order of device_batch.part. */
struct part {
    const void *data; /* NULL: none */
    size_t bytes;
    const char *what;
};

static void parts_of(const struct batch *h, struct part parts[BATCH_PARTS]) {
    const size_t lookups = (size_t)h->lookups, flat_bags = (size_t)h->flat_bags;
    const struct part all[BATCH_PARTS] = {
        {h->ids, lookups * (h->id_type == ID_INT32 ? 4 : 8), "ids"},
        {h->offsets, (flat_bags + 1) * sizeof *h->offsets, "offsets"},
        {h->lookup_weights, lookups * sizeof *h->lookup_weights, "lookup weights"},
        {h->grad, (size_t)(h->grad_elements * dtype_bytes(h->grad_type)), "gradient"},
        {h->winners, (size_t)h->grad_elements * sizeof *h->winners, "winners"},
        {h->tables, (size_t)h->num_tables * sizeof *h->tables, "table shapes"},
        {h->features, (size_t)h->num_features * sizeof *h->features, "features"}};
    memcpy(parts, all, sizeof all);
}

int device_batch_create(struct device_batch *d, const struct batch *h, struct error *err) {
    struct part parts[BATCH_PARTS];
    parts_of(h, parts);
    *d = (struct device_batch){.batch = *h};
    for (int i = 0; i < BATCH_PARTS; i++)
        if (device_alloc(&d->part[i], parts[i].data ? parts[i].bytes : 0, "a batch", err) ||
            device_put(d->part[i].data, parts[i].data, d->part[i].bytes, err)) {
            device_batch_free(d);
            return -1;
        }
    d->batch.ids = d->ids.data;
    d->batch.offsets = d->offsets.data;
    d->batch.lookup_weights = d->lookup_weights.data;
    d->batch.grad = d->grad.data;
    d->batch.winners = d->winners.data;
    d->batch.device_tables = d->tables.data;
    d->batch.device_features = d->features.data;
    return 0;
}

int device_batch_put(struct device_batch *d, const struct batch *h, struct error *err) {
    struct part parts[BATCH_PARTS];
    parts_of(h, parts);
    for (int i = 0; i < BATCH_PARTS; i++)
        if (parts[i].data && device_put(d->part[i].data, parts[i].data, d->part[i].bytes, err))
            return -1;
    return 0;
}

void device_batch_free(struct device_batch *d) {
    for (int i = 0; i < BATCH_PARTS; i++) device_free(&d->part[i]);
    *d = (struct device_batch){0};
}

int device_unchanged(const struct device_buffer *b, const void *host, const char *what,
                     struct error *err) {
    enum { PIECE = 1 << 20 };
    if (!device_intact(b)) return fail(err, "wrote outside of its %s", what), 1;
    char *copy = malloc(PIECE);
    int status = copy ? 0 : fail(err, "out of memory");
    for (size_t at = 0; status == 0 && host && at < b->bytes; at += PIECE) {
        const size_t bytes = b->bytes - at < PIECE ? b->bytes - at : PIECE;
        status = device_get(copy, (const char *)b->data + at, bytes, err);
        if (status == 0 && memcmp(copy, (const char *)host + at, bytes) != 0)
            status = (fail(err, "changed its %s", what), 1);
    }
    free(copy);
    return status;
}

int device_batch_unchanged(const struct device_batch *d, const struct batch *h, struct error *err) {
    struct part parts[BATCH_PARTS];
    int status = 0;
    parts_of(h, parts);
    for (int i = 0; status == 0 && i < BATCH_PARTS; i++)
        status = device_unchanged(&d->part[i], parts[i].data, parts[i].what, err);
    return status;
}

/* --- tables */

int device_tables_create(struct device_tables *d, const struct table_shape *shapes, int32_t count,
                         struct error *err) {
    *d = (struct device_tables){.count = count, .shapes = shapes};
    d->bytes = tables_bytes(shapes, count);
    int64_t have = device_facts().free_memory;
    if (d->bytes > have)
        return fail(err,
                    "the tables and their optimizer state need %.1f GiB of device memory, "
                    "%.1f GiB are free",
                    (double)d->bytes / (1 << 30), (double)have / (1 << 30));
    d->tables = calloc((size_t)count, sizeof *d->tables);
    d->buffers = calloc((size_t)count * TABLE_ARRAYS, sizeof *d->buffers);
    if (!d->tables || !d->buffers) {
        fail(err, "out of memory");
        goto out;
    }
    for (int32_t t = 0; t < count; t++) {
        void *memory[TABLE_ARRAYS];
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct device_buffer *b = &d->buffers[t * TABLE_ARRAYS + a];
            if (device_alloc(b, table_memory_bytes(&shapes[t], a), "a table", err)) goto out;
            memory[a] = b->data;
        }
        d->tables[t] = table_in(&shapes[t], memory);
    }
    const size_t bytes = (size_t)count * sizeof *d->tables;
    if (device_alloc(&d->io, bytes, "the list of tables", err) == 0 &&
        device_put(d->io.data, d->tables, bytes, err) == 0)
        return 0;
out:
    device_tables_free(d);
    return -1;
}

void device_tables_free(struct device_tables *d) {
    for (int64_t i = 0; d->buffers && i < (int64_t)d->count * TABLE_ARRAYS; i++)
        device_free(&d->buffers[i]);
    device_free(&d->io);
    free(d->buffers);
    free(d->tables);
    *d = (struct device_tables){0};
}

bool device_tables_intact(const struct device_tables *d) {
    for (int64_t i = 0; i < (int64_t)d->count * TABLE_ARRAYS; i++)
        if (!device_intact(&d->buffers[i])) return false;
    return true;
}

int device_tables_put(struct device_tables *d, const struct table *host, struct error *err) {
    for (int32_t t = 0; t < d->count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const struct device_buffer *b = &d->buffers[t * TABLE_ARRAYS + a];
            if (device_put(b->data, host[t].array[a].data, b->bytes, err)) return -1;
        }
    return 0;
}

int device_tables_get_rows(const struct device_tables *d, int32_t t, int64_t begin, int64_t end,
                           struct table *host, struct error *err) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const struct array *from = &d->tables[t].array[a];
        const size_t bytes = (size_t)((end - begin) * table_memory_stride(&d->shapes[t], a));
        if (bytes && device_get(host->array[a].data, array_row(from, begin), bytes, err)) return -1;
    }
    return 0;
}

int device_tables_get(const struct device_tables *d, struct table *host, struct error *err) {
    for (int32_t t = 0; t < d->count; t++)
        if (device_tables_get_rows(d, t, 0, d->shapes[t].rows, &host[t], err)) return -1;
    return 0;
}
