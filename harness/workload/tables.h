/* SPDX-License-Identifier: MIT
 *
 * The weights and states that kernels update, in host memory. initial.h gives their initial values.
 */
#pragma once

#include "harness/error.h"
#include "harness/memory.h"
#include "harness/workload/initial.h"
#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

struct table_set {
    int32_t count;
    const struct table_shape *shapes; /* not owned */
    struct table *tables;             /* [count] */
    struct buffer *buffers;           /* [count][TABLE_ARRAYS] */
    uint64_t seed;
    int64_t bytes; /* weights and states: the persistent memory of the step */
};

/* Elements per row of one of a table's arrays, 0 if there is no such array. */
int64_t table_array_width(const struct table_shape *shape, int array);

/* The array as a .npy file of any program of the suite: its name without a prefix, weight.npy, state.K.npy or
 * row_state.npy, with the number of the table where there are several: weight.T.npy, state.T.K.npy; and its
 * shape, [rows][width], or [rows] for one state per row. Returns the number of dimensions. */
enum { TABLE_FILE_NAME = 40 };
void table_array_file(char name[TABLE_FILE_NAME], int32_t table, int32_t num_tables, int array);
int table_array_shape(const struct table_shape *shape, int array, int64_t dims[2]);

/* The memory of one of a table's arrays: bytes per row. 0: no such array, or it lies in the memory
 * of the weights (enum row_state). */
int64_t table_memory_stride(const struct table_shape *shape, int array);

static inline size_t table_memory_bytes(const struct table_shape *shape, int array) {
    return (size_t)(shape->rows * table_memory_stride(shape, array));
}

/* A table in memory that begins at memory[array] for each array with a table_memory_stride(). */
struct table table_in(const struct table_shape *shape, void *const memory[TABLE_ARRAYS]);

int64_t tables_bytes(const struct table_shape *shapes, int32_t count);

/* The table with the most bytes of rows. */
int32_t tables_largest(const struct table_shape *shapes, int32_t count);

/* Allocates and fills with the initial values. */
int tables_create(struct table_set *s, const struct table_shape *shapes, int32_t count,
                  uint64_t seed, struct error *err);
/* Tables without memory, for a kernel that reads none. */
int tables_describe(struct table_set *s, const struct table_shape *shapes, int32_t count,
                    struct error *err);
void tables_free(struct table_set *s);

/* Writes the initial values of all rows, or of the rows of an index, in parallel. */
void tables_reset(struct table_set *s);
void tables_restore(struct table_set *s, const struct row_index *touched);

/* False if anything wrote outside the tables. */
bool tables_intact(const struct table_set *s);

/* Returns a row as floats: fp32 arrays in place, others widened into the arrays of `wide`. */
struct row_memory row_look(const struct table *t, const struct table_shape *shape, int64_t row,
                           const struct row_memory *wide);

/* Rounds a row in floats to what its table stores of it in that step. */
void row_round(const struct table_shape *shape, int64_t step, int64_t row,
               const struct row_memory *m);

/* row_look() for a table of fp32: the whole row is in place. */
struct row_memory row_memory(const struct table *t, const struct table_shape *shape, int64_t row);

/* Both write a row as floats and have the type of check.before: the first gives its content in the
 * table_set ctx, the second its initial values. */
void tables_copy_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to);
void tables_initial_row(const void *ctx, int32_t table, int64_t row, const struct row_memory *to);
