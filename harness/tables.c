/* SPDX-License-Identifier: MIT */
#include "harness/tables.h"

#include <stdlib.h>

#include "harness/rng.h"

/* Buffers of a table, in this order; also the streams of initial values. */
enum { WEIGHT, ROW_STATE, ELEM, ARRAYS = ELEM + RULE_ELEM_STATES };

/* Floats per row of one of a table's arrays. */
static int64_t array_width(const struct table_shape *shape, int array) {
    struct rule_info info = rule_info(shape->rule);
    if (array == WEIGHT) return shape->dim;
    if (array == ROW_STATE) return info.row_states;
    return array - ELEM < info.elem_states ? shape->dim : 0;
}

int64_t tables_bytes(const struct table_shape *shapes, int32_t count) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < count; t++)
        for (int a = 0; a < ARRAYS; a++)
            bytes += shapes[t].rows * array_width(&shapes[t], a) * (int64_t)sizeof(float);
    return bytes;
}

int tables_create(struct table_set *s, const struct table_shape *shapes, int32_t count,
                  uint64_t seed, struct error *err) {
    *s = (struct table_set){.count = count, .shapes = shapes, .seed = seed};
    s->bytes = tables_bytes(shapes, count);
    if (memory_require(s->bytes, "the tables and their optimizer state", err)) return -1;
    s->tables = calloc((size_t)count, sizeof *s->tables);
    s->buffers = calloc((size_t)count * ARRAYS, sizeof *s->buffers);
    if (!s->tables || !s->buffers) {
        tables_free(s);
        return fail(err, "out of memory");
    }
    for (int32_t t = 0; t < count; t++) {
        float *data[ARRAYS];
        for (int a = 0; a < ARRAYS; a++) {
            struct buffer *b = &s->buffers[t * ARRAYS + a];
            size_t bytes = (size_t)(shapes[t].rows * array_width(&shapes[t], a)) * sizeof(float);
            if (buffer_alloc(b, bytes, "a table", err)) {
                tables_free(s);
                return -1;
            }
            data[a] = b->data;
        }
        s->tables[t].weight = data[WEIGHT];
        s->tables[t].row = data[ROW_STATE];
        for (int k = 0; k < RULE_ELEM_STATES; k++) s->tables[t].elem[k] = data[ELEM + k];
    }
    tables_reset(s);
    return 0;
}

void tables_free(struct table_set *s) {
    for (int64_t i = 0; s->buffers && i < (int64_t)s->count * ARRAYS; i++)
        buffer_free(&s->buffers[i]);
    free(s->buffers);
    free(s->tables);
    *s = (struct table_set){0};
}

/* Weights in [-1/2, 1/2); states in [0, 1/16): an accumulator of squares is never negative. */
static void fill(const struct table_set *s, int32_t table, int64_t row, int array, float *to) {
    int64_t width = array_width(&s->shapes[table], array);
    if (width == 0) return;
    uint64_t stream = rng_key(s->seed, (uint64_t)table * ARRAYS + (uint64_t)array);
    uint32_t key = (uint32_t)rng_key(stream, (uint64_t)row);
    if (array == WEIGHT) {
        for (int64_t d = 0; d < width; d++)
            to[d] = (float)(int32_t)rng_u32(key, (uint32_t)d) * 0x1p-32f;
    } else {
        for (int64_t d = 0; d < width; d++)
            to[d] = (float)(int32_t)(rng_u32(key, (uint32_t)d) >> 8) * 0x1p-28f;
    }
}

void tables_initial_row(const struct table_set *s, int32_t table, int64_t row, float *weight,
                        float *const elem[RULE_ELEM_STATES], float *row_state) {
    fill(s, table, row, WEIGHT, weight);
    fill(s, table, row, ROW_STATE, row_state);
    for (int k = 0; k < RULE_ELEM_STATES; k++) fill(s, table, row, ELEM + k, elem[k]);
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
    for (int64_t i = 0; i < (int64_t)s->count * ARRAYS; i++)
        if (!buffer_intact(&s->buffers[i])) return false;
    return true;
}
