/* SPDX-License-Identifier: MIT
 *
 * The rows to update: the table of a key, and what kind of table it is.
 */
#pragma once

#include "kernels/device/row.cuh"
#include "kernels/shape.h"

/* How a lean kernel covers a row: 4, 8, 16 or 32 lanes with one quad each, or 32 lanes with two. */
enum { COVERS = 5, WIDEST_COVER = 256 };

static __host__ __device__ inline int cover_of(int32_t dim) {
    int c = 0;
    while (c < COVERS - 1 && 16 << c < dim) c++;
    return c;
}

/* Lanes of a group: 4, 8, 16 or 32. */
static __host__ __device__ inline int lanes_of_cover(int cover) {
    return cover < 3 ? 4 << cover : (int)WARP;
}

/* Which code updates a table's rows: lean code, or code for any row. */
enum way {
    WAY_GENERAL, /* rows of any dim, anywhere */
    WAY_TYPED,   /* arrays of any type, with shared hyper-parameters (kernels/adjust.h) */
    WAY_PLAIN,   /* all arrays are fp32, and nothing is adjusted */
    WAYS
};

/* What the tables of a launch have in common. */
struct kind {
    enum rule_kind rule;
    enum way way;
    int cover; /* 0 with WAY_GENERAL */
};

static __host__ __device__ inline bool operator==(struct kind a, struct kind b) {
    return a.rule == b.rule && a.way == b.way && a.cover == b.cover;
}

/* Lean code takes rows of at most 256 columns, a multiple of 4, with states per row in an array apart; and arrays of at
 * most 64 GiB, so that the number of a quad has 32 bits. */
static __host__ __device__ inline struct kind kind_of(const struct table_shape *t, bool general) {
    const bool all = t->row_state == ROW_STATE_ALL;
    const int64_t columns = (int64_t)t->dim * (1 + (all ? rule_elem_states(t->rule) : 0));
    const bool lean = !general && t->dim <= WIDEST_COVER && t->dim % LANE_COLUMNS == 0 &&
                      t->rows <= (int64_t)UINT32_MAX * LANE_COLUMNS / columns &&
                      !(t->row_state != ROW_STATE_APART && rule_row_states(t->rule));
    if (!lean) return {t->rule, WAY_GENERAL, 0};
    return {t->rule, table_is_narrow(t) || t->adjusts ? WAY_TYPED : WAY_PLAIN, cover_of(t->dim)};
}

/* Floats from row to row in scratch: every row begins on a 16-byte boundary. */
static inline int32_t stride_of(int32_t dim) {
    return (dim + LANE_COLUMNS - 1) / LANE_COLUMNS * LANE_COLUMNS;
}

static inline int64_t row_stride(const struct batch *in) {
    return stride_of(widest(in));
}

/* A table with the key of its first row. */
struct placed_table {
    int64_t first;
    int32_t table;
};

/* The tables that an update writes. All pointers are device memory. */
struct target {
    const struct table_shape *tables;
    int32_t num_tables;
    const struct rule_step *steps;
    const struct table *io;
    const struct placed_table *order; /* [num_tables] by key; NULL: in their own order */
};

static inline struct target target_of(const struct batch *in, const struct rule_step *steps,
                                      const struct table *io) {
    return {in->device_tables, in->num_tables, steps, io, NULL};
}

/* The place in the order of the table of a key. */
static __device__ inline int32_t place_of_key(const struct target &to, uint32_t key) {
    if (!to.order) return table_of_row(to.tables, to.num_tables, (int64_t)key);
    return (int32_t)last_at_most(&to.order->first, sizeof *to.order, 0, to.num_tables,
                                 (int64_t)key);
}

static __device__ inline struct placed_table table_at(const struct target &to, int32_t place) {
    if (!to.order) return {to.tables[place].first_row, place};
    return to.order[place];
}
