/* SPDX-License-Identifier: MIT */
#include "harness/workload/tables.h"

#include <stdlib.h>

int64_t table_array_width(const struct table_shape *shape, int array) {
    struct rule_info info = rule_info(shape->rule);
    if (array == TABLE_WEIGHT) return shape->dim;
    if (array == TABLE_ROW_STATE) return info.row_states;
    return array - TABLE_ELEM < info.elem_states ? shape->dim : 0;
}

int64_t tables_bytes(const struct table_shape *shapes, int32_t count) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            bytes += shapes[t].rows * table_array_width(&shapes[t], a) * (int64_t)sizeof(float);
    return bytes;
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
    for (int32_t t = 0; t < count; t++) {
        float *data[TABLE_ARRAYS];
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct buffer *b = &s->buffers[t * TABLE_ARRAYS + a];
            size_t bytes =
                (size_t)(shapes[t].rows * table_array_width(&shapes[t], a)) * sizeof(float);
            if (buffer_alloc(b, bytes, "a table", err)) {
                tables_free(s);
                return -1;
            }
            data[a] = b->data;
        }
        s->tables[t].weight = data[TABLE_WEIGHT];
        s->tables[t].row = data[TABLE_ROW_STATE];
        for (int k = 0; k < RULE_ELEM_STATES; k++) s->tables[t].elem[k] = data[TABLE_ELEM + k];
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

static void fill(const struct table_set *s, int32_t table, int64_t row, int array, float *to) {
    int64_t width = table_array_width(&s->shapes[table], array);
    if (width == 0) return;
    const struct initial_laws laws = initial_laws(s->shapes[table].rule);
    uint32_t key = initial_row_key(initial_stream(s->seed, table, array), row);
    if (array == TABLE_WEIGHT)
        for (int64_t d = 0; d < width; d++) to[d] = initial_weight(key, d);
    else
        for (int64_t d = 0; d < width; d++) to[d] = initial_state(&laws, array, key, d);
}

void tables_initial_row(const struct table_set *s, int32_t table, int64_t row, float *weight,
                        float *const elem[RULE_ELEM_STATES], float *row_state) {
    fill(s, table, row, TABLE_WEIGHT, weight);
    fill(s, table, row, TABLE_ROW_STATE, row_state);
    for (int k = 0; k < RULE_ELEM_STATES; k++) fill(s, table, row, TABLE_ELEM + k, elem[k]);
}

struct row_memory row_memory(const struct table *t, const struct table_shape *shape, int64_t row) {
    struct rule_info info = rule_info(shape->rule);
    struct row_memory m = {t->weight + row * shape->dim, {0}, NULL};
    for (int k = 0; k < info.elem_states; k++) m.elem[k] = t->elem[k] + row * shape->dim;
    if (info.row_states) m.row = t->row + row * info.row_states;
    return m;
}

static void reset_row(struct table_set *s, int32_t t, int64_t row) {
    struct row_memory m = row_memory(&s->tables[t], &s->shapes[t], row);
    tables_initial_row(s, t, row, m.weight, m.elem, m.row);
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
