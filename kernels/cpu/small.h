/* SPDX-License-Identifier: MIT
 *
 * Small tables: a gradient of all rows of a small table fits in a core's share of the last-level
 * cache, and the batch looks up each row a few times on average. Such a table needs no index: a
 * thread walks its lookups in order, slice by slice, and adds each gradient to the accumulator of
 * its row. Unlike in the dense baseline, the accumulators of a table stay in one core's caches, and
 * only touched rows are updated.
 *
 * Deterministic: the shape of the batch alone decides which tables are small and where their slices
 * are, and the slices of a row are added in order. If a slice has more lookups than a thread's share of
 * the batch, several threads walk it, and each adds the gradients of a range of rows.
 */
#pragma once

#include "kernels/host/accumulate.h"
#include "kernels/host/update.h"

enum {
    SMALL_BYTES = 4 << 20, /* most bytes of accumulators of a table */
    SMALL_NEAR = 1 << 19,  /* bytes of accumulators that stay in L2; more are prefetched */
    /* Largest dim of a table beyond SMALL_NEAR. Measured speedup over grouping: 0.94 to 1.55 at 128
     * and 200, 0.7 to 1.07 at 256, 0.85 at 512. */
    SMALL_FAR_DIM = 200,
    /* Lookups per row, at least. Measured speedup over grouping: at 1 lookup per row, 1.07 to 1.17
     * for dim 16 and 0.7 to 0.8 for dim 64; at 2 lookups, 1.06 to 2.1. */
    SMALL_LOOKUPS = 2,
    /* A table gets more slices as long as each accumulator keeps MANY lookups, and each slice 1/SLICES of
     * the batch. It gets still more, down to FEW lookups, as long as a slice has more than 1/PARTS of the
     * batch, because other threads would wait for it. If that is not enough, the table is not small. Measured: at
     * 2 lookups per accumulator slices lose against grouping at dim 64. */
    SMALL_SLICES = 32,
    SMALL_SLICE =
        8192, /* least lookups of one of several slices; two such slices delay no thread */
    SMALL_MANY = 8,
    SMALL_FEW = 4,
    SMALL_PARTS = 3,
    SMALL_SHARE = 1024, /* least lookups of a slice for each range of rows */
};

/* A range of the rows of a slice of a feature, lookups begin .. end-1. Each slice has its own
 * accumulators. */
struct small_unit {
    int64_t begin, end;
    int64_t row, rows; /* first, number of them */
    int32_t table;
    /* [rows of the table][dim] and [rows of the table]. Both are NULL if the table has one slice: that uses the arrays
     * of its thread. */
    float *sum;
    uint8_t *touched;
};

/* The accumulators of a table with several slices. */
struct small_sums {
    int32_t slices;   /* 0: the table has one slice, or is not small */
    float *sum;       /* [slices][rows][dim] */
    uint8_t *touched; /* [slices][rows] */
};

struct small_tables {
    int32_t units;
    struct small_unit *unit;  /* [units] */
    struct small_sums *table; /* [num_tables] */
    int64_t floats, rows; /* of the largest table with one slice, rounded up to whole cache lines */
    float *own_sum;       /* [threads][floats] */
    uint8_t *own_touched; /* [threads][rows] */
};

/* Slices of each feature of table t. It is a power of two. */
static inline int32_t small_slices(const struct batch *in, int32_t t) {
    const struct table_shape *x = &in->tables[t];
    const int64_t least = max64(SMALL_SLICE, in->lookups / SMALL_SLICES);
    for (int32_t slices = 1;; slices *= 2) {
        const int64_t lookups = x->lookups / x->features / (2 * slices);
        const bool large = lookups > in->lookups / (2 * SMALL_PARTS);
        if (lookups < max64(least, x->rows * (large ? SMALL_FEW : SMALL_MANY))) return slices;
    }
}

static inline bool small_table(const struct batch *in, int32_t t) {
    const struct table_shape *x = &in->tables[t];
    const int64_t bytes = x->rows * x->dim * (int64_t)sizeof(float);
    if (bytes > (x->dim > SMALL_FAR_DIM ? SMALL_NEAR : SMALL_BYTES)) return false;
    if (x->lookups < x->rows * x->features * SMALL_LOOKUPS || x->lookups == 0) return false;
    return x->lookups / x->features / small_slices(in, t) <=
           max64(in->lookups / SMALL_PARTS, 2 * SMALL_SLICE);
}

/* Slices of table t over all features. */
static inline int32_t small_slices_of_all(const struct batch *in, int32_t t) {
    return small_table(in, t) ? in->tables[t].features * small_slices(in, t) : 0;
}

/* Ranges of rows of every slice of table t. */
static inline int32_t small_ranges(const struct batch *in, int32_t t, int threads) {
    const struct table_shape *x = &in->tables[t];
    const int64_t slice = x->lookups / x->features / small_slices(in, t);
    const int64_t shares = (slice * threads + in->lookups / 2) / in->lookups;
    return (int32_t)max64(1, min64(min64(shares, x->rows), slice / SMALL_SHARE));
}

static inline void small_lay_out(struct small_tables *x, struct scratch *s, const struct batch *in,
                                 int threads) {
    *x = (struct small_tables){.table = scratch_take(s, in->num_tables, sizeof *x->table)};
    for (int32_t t = 0; t < in->num_tables; t++) {
        const int64_t rows = in->tables[t].rows, floats = rows * in->tables[t].dim;
        struct small_sums sums = {.slices = small_slices_of_all(in, t)};
        if (sums.slices) x->units += sums.slices * small_ranges(in, t, threads);
        if (sums.slices == 1) {
            sums.slices = 0;
            x->floats = max64(x->floats, (floats + LINE - 1) / LINE * LINE);
            x->rows = max64(x->rows, (rows + LINE - 1) / LINE * LINE);
        }
        sums.sum = scratch_take(s, sums.slices * floats, sizeof *sums.sum);
        sums.touched = scratch_take(s, sums.slices * rows, sizeof *sums.touched);
        if (x->table) x->table[t] = sums;
    }
    x->unit = scratch_take(s, x->units, sizeof *x->unit);
    x->own_sum = scratch_take(s, threads * x->floats, sizeof *x->own_sum);
    x->own_touched = scratch_take(s, threads * x->rows, sizeof *x->own_touched);
}

/* Serial, O(units). */
static inline void small_prepare(const struct small_tables *x, const struct batch *in,
                                 int threads) {
    struct small_unit *unit = x->unit;
    for (int32_t t = 0; t < in->num_tables; t++) x->table[t].slices = 0; /* counted again */
    for (int32_t f = 0; f < in->num_features; f++) {
        const int32_t t = in->features[f].table;
        if (!small_table(in, t)) continue;
        const int64_t begin = in->features[f].first_lookup, n = in->features[f].lookups;
        const int64_t rows = in->tables[t].rows;
        const int32_t slices = small_slices(in, t), ranges = small_ranges(in, t, threads);
        const bool several = small_slices_of_all(in, t) > 1;
        struct small_sums *sums = &x->table[t];
        for (int32_t k = 0; k < slices; k++) {
            struct small_unit u = {.begin = begin + part_begin(n, k, slices),
                                   .end = begin + part_begin(n, k + 1, slices),
                                   .table = t};
            if (several) {
                u.sum = sums->sum + sums->slices * rows * in->tables[t].dim;
                u.touched = sums->touched + sums->slices++ * rows;
            }
            for (int32_t r = 0; r < ranges; r++) {
                u.row = part_begin(rows, r, ranges);
                u.rows = part_begin(rows, r + 1, ranges) - u.row;
                *unit++ = u;
            }
        }
    }
}

struct small_walk {
    bool per_lookup, whole;
    int64_t row, rows;
    uint8_t *touched;
    struct accumulate queue;
};

/* A lookup outside of the unit's range is added to nothing, without a branch. */
ALWAYS_INLINE void small_visit(void *ctx, struct lookup l) {
    struct small_walk *w = ctx;
    const bool in_range = w->whole || (uint64_t)(l.row - w->row) < (uint64_t)w->rows;
    if (w->whole)
        w->touched[l.row] = 1;
    else
        w->touched[in_range ? l.row : w->row] |= in_range;
    accumulate_push(&w->queue, (uint32_t)l.row, gather_position(w->per_lookup, l), in_range);
}

/* Sums unit k. If the table has no other slice, also updates its rows. */
static inline void small_step(const struct small_tables *x, const struct gather *g, int32_t k,
                              const struct rule_step *steps, const struct table *io, int thread) {
    const struct batch *in = g->in;
    const struct small_unit *u = &x->unit[k];
    const int32_t t = u->table, dim = in->tables[t].dim;
    const int64_t bytes = u->rows * dim * (int64_t)sizeof(float);
    float *sum = u->sum ? u->sum : x->own_sum + thread * x->floats;
    uint8_t *touched = u->sum ? u->touched : x->own_touched + thread * x->rows;
    struct addend wait[ADDENDS];
    struct small_walk w = {.per_lookup = g->table[t].per_lookup,
                           .row = u->row,
                           .rows = u->rows,
                           .touched = touched,
                           .queue = {.gather = g,
                                     .from = &g->table[t],
                                     .sum = sum,
                                     .stride = dim,
                                     .far = bytes > SMALL_NEAR,
                                     .dim = dim,
                                     .wait = wait}};
    memset(sum + u->row * dim, 0, (size_t)bytes);
    memset(touched + u->row, 0, (size_t)u->rows);
    const struct stretch lookups = stretch_at(in, u->begin, u->end);
    w.whole = u->rows == in->tables[t].rows;
    if (w.whole) /* a constant makes the walk shorter */
        w.whole = true, walk_stretch(in, lookups, small_visit, &w);
    else
        walk_stretch(in, lookups, small_visit, &w);
    accumulate_flush(&w.queue);
    const struct updater update = updater_of(in, t, steps, io);
    for (int64_t row = u->row; row < u->row + u->rows && !u->sum; row++)
        if (touched[row]) updater_row(&update, row, sum + row * dim);
}

/* Adds up the slices of each table with several slices and updates its rows. Every thread of the team
 * calls this, after a barrier. */
static inline void small_update(const struct small_tables *x, const struct batch *in,
                                const struct rule_step *steps, const struct table *io) {
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct small_sums sums = x->table[t];
        const int32_t dim = in->tables[t].dim;
        const int64_t rows = in->tables[t].rows;
        if (sums.slices == 0) continue;
        const struct updater u = updater_of(in, t, steps, io);
#pragma omp for schedule(static) nowait
        for (int64_t row = 0; row < rows; row++) {
            float *sum = sums.sum + row * dim;
            bool touched = sums.touched[row];
            for (int32_t k = 1; k < sums.slices; k++) {
                if (!sums.touched[k * rows + row]) continue;
                row_add(FP32, sum, sum + k * rows * dim, 1, dim);
                touched = true;
            }
            if (touched) updater_row(&u, row, sum);
        }
    }
}
