/* SPDX-License-Identifier: MIT */
#include "harness/workload/tables.h"

#include <stdlib.h>
#include <string.h>

int64_t table_array_width(const struct table_shape *shape, int array) {
    return rule_array_width(shape->rule, shape->dim, array);
}

enum dtype table_array_type(const struct table_shape *shape, int array) {
    return array == TABLE_WEIGHT ? shape->weight_type : FP32;
}

int64_t table_array_stride(const struct table_shape *shape, int array) {
    return table_array_width(shape, array) * dtype_bytes(table_array_type(shape, array));
}

size_t table_array_bytes(const struct table_shape *shape, int array) {
    return (size_t)(shape->rows * table_array_stride(shape, array));
}

int64_t tables_bytes(const struct table_shape *shapes, int32_t count) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) bytes += (int64_t)table_array_bytes(&shapes[t], a);
    return bytes;
}

int32_t tables_largest(const struct table_shape *shapes, int32_t count) {
    int32_t best = 0;
    for (int32_t t = 1; t < count; t++)
        if (table_array_bytes(&shapes[t], TABLE_WEIGHT) >
            table_array_bytes(&shapes[best], TABLE_WEIGHT))
            best = t;
    return best;
}

int tables_create(struct table_set *s, const struct table_shape *shapes, int32_t count,
                  uint64_t seed, struct error *err) {
    *s = (struct table_set){.count = count, .shapes = shapes, .seed = seed};
    s->bytes = tables_bytes(shapes, count);
    if (memory_require(s->bytes, "the tables and their optimizer state", err)) return -1;
    s->tables = calloc((size_t)count, sizeof *s->tables);
    s->buffers = calloc((size_t)count * TABLE_ARRAYS, sizeof *s->buffers);
    if (!s->tables || !s->buffers) {
        tables_free(s);
        return fail(err, "out of memory");
    }
    for (int32_t t = 0; t < count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct buffer *b = &s->buffers[t * TABLE_ARRAYS + a];
            if (buffer_alloc(b, table_array_bytes(&shapes[t], a), "a table", err)) {
                tables_free(s);
                return -1;
            }
            s->tables[t].array[a] = (struct array){b->data, table_array_stride(&shapes[t], a)};
        }
    tables_reset(s);
    return 0;
}

void tables_free(struct table_set *s) {
    for (int64_t i = 0; s->buffers && i < (int64_t)s->count * TABLE_ARRAYS; i++)
        buffer_free(&s->buffers[i]);
    free(s->buffers);
    free(s->tables);
    *s = (struct table_set){0};
}

/* The initial values of a row of one array, into elements of a type. */
static void fill(const struct table_set *s, int32_t t, int64_t row, int array, enum dtype type,
                 void *to) {
    const int64_t width = table_array_width(&s->shapes[t], array);
    if (width == 0) return;
    const enum dtype own = table_array_type(&s->shapes[t], array);
    const struct initial_laws laws = initial_laws(s->shapes[t].rule);
    const uint32_t key = initial_row_key(initial_stream(s->seed, t, array), row);
    for (int64_t d = 0; d < width; d++)
        dtype_set(type, to, d, dtype_round(own, initial_value(&laws, array, key, d)));
}

void tables_initial_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to) {
    for (int a = 0; a < TABLE_ARRAYS; a++) fill(ctx, table, row, a, FP32, to->array[a]);
}

struct row_memory row_look(const struct table *t, const struct table_shape *shape, int64_t row,
                           float *weight) {
    struct row_memory m;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        m.array[a] = table_array_width(shape, a) ? array_row(&t->array[a], row) : NULL;
    if (shape->weight_type == FP32) return m;
    for (int32_t d = 0; d < shape->dim; d++) weight[d] = dtype_get(shape->weight_type, m.weight, d);
    m.weight = weight;
    return m;
}

struct row_memory row_memory(const struct table *t, const struct table_shape *shape, int64_t row) {
    return row_look(t, shape, row, NULL);
}

void tables_copy_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to) {
    const struct table_set *s = ctx;
    const struct table_shape *shape = &s->shapes[table];
    const struct row_memory from = row_look(&s->tables[table], shape, row, to->weight);
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (from.array[a] && from.array[a] != to->array[a])
            memcpy(to->array[a], from.array[a],
                   (size_t)table_array_width(shape, a) * sizeof(float));
}

static void reset_row(struct table_set *s, int32_t t, int64_t row) {
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (s->tables[t].array[a].data)
            fill(s, t, row, a, table_array_type(&s->shapes[t], a),
                 array_row(&s->tables[t].array[a], row));
}

void tables_reset(struct table_set *s) {
#pragma omp parallel
    for (int32_t t = 0; t < s->count; t++) {
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < s->shapes[t].rows; row++) reset_row(s, t, row);
    }
}

void tables_restore(struct table_set *s, const struct row_index *touched) {
#pragma omp parallel for schedule(static)
    for (int64_t u = 0; u < touched->rows; u++)
        reset_row(s, touched->run[u].table, touched->run[u].row);
}

bool tables_intact(const struct table_set *s) {
    for (int64_t i = 0; i < (int64_t)s->count * TABLE_ARRAYS; i++)
        if (!buffer_intact(&s->buffers[i])) return false;
    return true;
}
