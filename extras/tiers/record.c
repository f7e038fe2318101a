/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "kernels/shape.h"
#include "extras/tiers/store.h"

struct record record_of(const struct table_shape *shape, int64_t block) {
    struct record r = {.shape = *shape};
    for (int a = 0; a < TABLE_ARRAYS; a++) r.used += table_memory_stride(shape, a);
    r.bytes = (r.used + block - 1) / block * block;
    return r;
}

void record_pack(const struct record *r, void *record, const struct table *from, int64_t row) {
    char *to = record;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_memory_stride(&r->shape, a);
        if (bytes) memcpy(to, array_row(&from->array[a], row), (size_t)bytes);
        to += bytes;
    }
    memset(to, 0, (size_t)(r->bytes - r->used));
}

void record_unpack(const struct record *r, const void *record, struct table *to, int64_t row) {
    const char *from = record;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_memory_stride(&r->shape, a);
        if (bytes) memcpy(array_row(&to->array[a], row), from, (size_t)bytes);
        from += bytes;
    }
}

int record_initial(const struct record *r, int32_t table, uint64_t seed, int64_t first,
                   int64_t count, void *records, struct error *err) {
    struct table_shape shape = r->shape;
    struct table_set rows;
    shape.part.table += table;
    shape.part.row = part_row(&shape.part, first);
    shape.rows = count;
    if (tables_create(&rows, &shape, 1, seed, err)) return -1;
    for (int64_t i = 0; i < count; i++)
        record_pack(r, (char *)records + i * r->bytes, &rows.tables[0], i);
    tables_free(&rows);
    return 0;
}
