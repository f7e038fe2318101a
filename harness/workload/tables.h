/* SPDX-License-Identifier: MIT
 *
 * The weights and states that kernels update, in host memory; their initial values are those of
 * initial.h.
 */
#ifndef EMBFUSE_TABLES_H
#define EMBFUSE_TABLES_H

#include "harness/error.h"
#include "harness/workload/initial.h"
#include "harness/memory.h"
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

/* Floats per row of one of a table's arrays; 0 if its rule has no such state. */
int64_t table_array_width(const struct table_shape *shape, int array);

int64_t tables_bytes(const struct table_shape *shapes, int32_t count);

/* Allocates and fills with the initial values. */
int tables_create(struct table_set *s, const struct table_shape *shapes, int32_t count,
                  uint64_t seed, struct error *err);
void tables_free(struct table_set *s);

/* Initial values of a row: weight[dim], elem[k][dim] and row[row_states], as its rule has them. */
void tables_initial_row(const struct table_set *s, int32_t table, int64_t row, float *weight,
                        float *const elem[RULE_ELEM_STATES], float *row_state);

/* Writes the initial values of all rows, or of the rows of an index, in parallel. */
void tables_reset(struct table_set *s);
void tables_restore(struct table_set *s, const struct row_index *touched);

/* False if somebody wrote outside of the tables. */
bool tables_intact(const struct table_set *s);

/* The memory of one row, in the form that tables_initial_row writes to. */
struct row_memory row_memory(const struct table *t, const struct table_shape *shape, int64_t row);

#endif
