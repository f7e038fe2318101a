/* SPDX-License-Identifier: MIT */
#include "harness/workload/tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t table_array_width(const struct table_shape *shape, int array) {
    return rule_array_width(shape->rule, shape->dim, array);
}

void table_array_file(char name[TABLE_FILE_NAME], int32_t table, int32_t num_tables, int array) {
    snprintf(name, TABLE_FILE_NAME, "%s",
             array == TABLE_WEIGHT      ? "weight"
             : array == TABLE_ROW_STATE ? "row_state"
                                        : "state");
    if (num_tables > 1) text_add(name, TABLE_FILE_NAME, ".%d", table);
    if (array >= TABLE_ELEM) text_add(name, TABLE_FILE_NAME, ".%d", array - TABLE_ELEM);
    text_add(name, TABLE_FILE_NAME, ".npy");
}

int table_array_shape(const struct table_shape *shape, int array, int64_t dims[2]) {
    dims[0] = shape->rows;
    dims[1] = table_array_width(shape, array);
    return array == TABLE_ROW_STATE && dims[1] == 1 ? 1 : 2;
}

static int64_t row_bytes(const struct table_shape *shape, int array) {
    return table_array_width(shape, array) * dtype_bytes(table_array_type(shape, array));
}

enum {
    ROW_ALIGN = 16
}; /* rows with states beside the weights, and these states, hold vectors of four floats */

static int64_t round_up(int64_t bytes, int64_t to) {
    return (bytes + to - 1) / to * to;
}

/* Where an array of a row begins, in bytes from the row's weights: behind them lie the row states, and then the states
 * per element, if the table has them there. TABLE_ARRAYS: where the row ends. -1: the array lies apart, or there is
 * none. */
static int64_t beside(const struct table_shape *shape, int array) {
    int64_t end = row_bytes(shape, TABLE_WEIGHT);
    for (int a = TABLE_ROW_STATE; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = row_bytes(shape, a);
        const bool here = shape->row_state == ROW_STATE_ALL ||
                          (shape->row_state == ROW_STATE_BESIDE && a == TABLE_ROW_STATE);
        const int64_t begin = round_up(end, a == TABLE_ROW_STATE ? sizeof(float) : ROW_ALIGN);
        if (!here || bytes == 0) {
            if (a == array) return -1;
            continue;
        }
        if (a == array) return begin;
        end = begin + bytes;
    }
    return end;
}

int64_t table_memory_stride(const struct table_shape *shape, int array) {
    const int64_t end = beside(shape, TABLE_ARRAYS), bytes = row_bytes(shape, array);
    if (array == TABLE_WEIGHT) return end > bytes ? round_up(end, ROW_ALIGN) : bytes;
    return beside(shape, array) < 0 ? bytes : 0;
}

struct table table_in(const struct table_shape *shape, void *const memory[TABLE_ARRAYS]) {
    struct table t = {.watch = NULL};
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t stride = table_memory_stride(shape, a),
                      at = a == TABLE_WEIGHT ? -1 : beside(shape, a);
        t.array[a] = (struct array){stride ? memory[a] : NULL, stride};
        if (at >= 0) t.array[a] = (struct array){(char *)t.weight.data + at, t.weight.stride};
    }
    return t;
}

int64_t tables_bytes(const struct table_shape *shapes, int32_t count) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) bytes += (int64_t)table_memory_bytes(&shapes[t], a);
    return bytes;
}

int32_t tables_largest(const struct table_shape *shapes, int32_t count) {
    int32_t best = 0;
    for (int32_t t = 1; t < count; t++)
        if (table_memory_bytes(&shapes[t], TABLE_WEIGHT) >
            table_memory_bytes(&shapes[best], TABLE_WEIGHT))
            best = t;
    return best;
}

int tables_describe(struct table_set *s, const struct table_shape *shapes, int32_t count,
                    struct error *err) {
    *s = (struct table_set){.count = count, .shapes = shapes};
    s->tables = calloc((size_t)count, sizeof *s->tables);
    return s->tables ? 0 : fail(err, "out of memory");
}

int tables_create(struct table_set *s, const struct table_shape *shapes, int32_t count,
                  uint64_t seed, struct error *err) {
    if (tables_describe(s, shapes, count, err)) return -1;
    s->seed = seed;
    s->bytes = tables_bytes(shapes, count);
    s->buffers = calloc((size_t)count * TABLE_ARRAYS, sizeof *s->buffers);
    int status = s->buffers ? 0 : fail(err, "out of memory");
    if (status == 0) status = memory_require(s->bytes, "the tables and their optimizer state", err);
    if (status) {
        tables_free(s);
        return -1;
    }
    for (int32_t t = 0; t < count; t++) {
        void *memory[TABLE_ARRAYS];
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct buffer *b = &s->buffers[t * TABLE_ARRAYS + a];
            if (buffer_alloc(b, table_memory_bytes(&shapes[t], a), "a table", err)) {
                tables_free(s);
                return -1;
            }
            memory[a] = b->data;
        }
        s->tables[t] = table_in(&shapes[t], memory);
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

struct fill {
    struct table_part part;
    struct initial_laws laws;
    int array;
    uint32_t key;
    int64_t width;
    void *to;
};

/* Values rounded to `own`, as elements of that type or as floats. The loop takes most of the time to reset or check a
 * table. With constants it has no branch, and no store can change f, which is a copy: so it is vectorized. */
static inline void fill_as(const struct fill f, const enum dtype own, const bool floats) {
    for (int64_t d = 0; d < f.width; d++) {
        const int64_t column = initial_column(&f.part, f.array, d);
        const float value = initial_value(&f.laws, f.array, f.key, column);
        if (floats)
            ((float *)f.to)[d] = dtype_round(own, value);
        else
            dtype_set(own, f.to, d, value);
    }
}

/* The initial values of a row of one array, as elements of its type or as floats. */
static void fill(const struct table_set *s, int32_t t, int64_t row, int array, bool floats,
                 void *to) {
    const struct table_shape *shape = &s->shapes[t];
    const struct fill f = {shape->part,
                           initial_laws(shape->rule),
                           array,
                           initial_key(s->seed, t, &shape->part, array, row),
                           table_array_width(shape, array),
                           to};
    switch (table_array_type(shape, array)) {
    case FP16: floats ? fill_as(f, FP16, true) : fill_as(f, FP16, false); break;
    case BF16: floats ? fill_as(f, BF16, true) : fill_as(f, BF16, false); break;
    case FP8: floats ? fill_as(f, FP8, true) : fill_as(f, FP8, false); break;
    default: fill_as(f, FP32, true);
    }
}

void tables_initial_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to) {
    for (int a = 0; a < TABLE_ARRAYS; a++) fill(ctx, table, row, a, true, to->array[a]);
}

struct row_memory row_look(const struct table *t, const struct table_shape *shape, int64_t row,
                           const struct row_memory *wide) {
    struct row_memory m;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const enum dtype type = table_array_type(shape, a);
        const int64_t width = table_array_width(shape, a);
        m.array[a] = width ? array_row(&t->array[a], row) : NULL;
        if (type == FP32 || width == 0) continue;
        for (int64_t d = 0; d < width; d++) wide->array[a][d] = dtype_get(type, m.array[a], d);
        m.array[a] = wide->array[a];
    }
    return m;
}

void row_round(const struct table_shape *shape, int64_t step, int64_t row,
               const struct row_memory *m) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const struct row_format f = row_format(shape, step, a, row);
        for (int64_t d = 0; f.type != FP32 && d < table_array_width(shape, a); d++)
            m->array[a][d] = dtype_widen(f.type, row_format_bits(&f, d, m->array[a][d]));
    }
}

struct row_memory row_memory(const struct table *t, const struct table_shape *shape, int64_t row) {
    return row_look(t, shape, row, NULL);
}

void tables_copy_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to) {
    const struct table_set *s = ctx;
    const struct table_shape *shape = &s->shapes[table];
    const struct row_memory from = row_look(&s->tables[table], shape, row, to);
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (from.array[a] && from.array[a] != to->array[a])
            memcpy(to->array[a], from.array[a],
                   (size_t)table_array_width(shape, a) * sizeof(float));
}

static void reset_row(struct table_set *s, int32_t t, int64_t row) {
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (s->tables[t].array[a].data)
            fill(s, t, row, a, false, array_row(&s->tables[t].array[a], row));
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
    for (int64_t i = 0; s->buffers && i < (int64_t)s->count * TABLE_ARRAYS; i++)
        if (!buffer_intact(&s->buffers[i])) return false;
    return true;
}
