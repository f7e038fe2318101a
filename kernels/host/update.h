/* SPDX-License-Identifier: MIT
 *
 * Applies a table's rule to a row whose gradients are summed. Kernels sum the gradients; update.c
 * updates the row, in fp32. The Makefile compiles update.c once for each rule and instruction set, not
 * once for each kernel. Rows of narrower types are widened into a copy, updated there and rounded back.
 */
#pragma once

#include "kernels/host/row.h"
#include "kernels/watch.h"

enum { VEC = 16 }; /* floats per block of an update, the same on every machine */

/* Dims for which kernels compile specialized code: X(dim, ...). */
#define COMMON_DIMS(X, ...)                                                                        \
    X(8, ##__VA_ARGS__)                                                                            \
    X(16, ##__VA_ARGS__)                                                                           \
    X(32, ##__VA_ARGS__)                                                                           \
    X(64, ##__VA_ARGS__)                                                                           \
    X(128, ##__VA_ARGS__)                                                                          \
    X(256, ##__VA_ARGS__)

/* The class of a dim: its place among COMMON_DIMS, or the last class. */
#define LISTED(d) d,
static const int32_t common_dims[] = {COMMON_DIMS(LISTED)};
#undef LISTED
enum { DIM_CLASSES = sizeof common_dims / sizeof *common_dims + 1 };

static inline int dim_class(int32_t dim) {
    int k = 0;
    while (k < DIM_CLASSES - 1 && common_dims[k] != dim) k++;
    return k;
}

/* Calls body(ctx, dim, common); if dim is common, then with a constant. Callers pass an ALWAYS_INLINE
 * function, as to walk_stretch(). */
ALWAYS_INLINE void for_dim(int32_t dim, void (*body)(void *, int32_t, bool), void *ctx) {
    switch (dim) {
#define CASE(d)                                                                                    \
    case d: body(ctx, d, true); break;
        COMMON_DIMS(CASE)
#undef CASE
    default: body(ctx, dim, false);
    }
}

/* Applies the table's rule once to a row of fp32 whose adjusted gradient is grad[dim]. */
typedef void update_row(const struct rule_step *step, const struct table *table, int32_t dim,
                        int64_t row, const float *grad);

/* Runs of entries of one table with unit coefficients: gradients are rows at grad + position * stride. Runs of `most`
 * entries or more are skipped. */
struct unit_runs {
    enum dtype grad_type;
    const char *grad;
    int64_t stride;        /* bytes */
    const uint64_t *entry; /* see entry_pack() */
    const uint32_t *begin; /* [count + 1] */
    uint32_t count, most;
    uint32_t row_distance, grad_distance; /* of prefetches, in runs and in entries */
    const struct table_shape *shape;      /* of the table */
};

/* Sums the gradients of each run, and applies the rule to its row, with nothing to adjust or to watch. States are fp32.
 * Rows are prefetched into L2, gradients into L1. */
typedef void update_runs(const struct rule_step *step, const struct table *table,
                         const struct unit_runs *runs);

/* Weights of any narrower type, rounded in any way: a row is widened into a copy. FP8 is never updated in registers, so
 * its place in runs[] is free. */
#define BY_COPY FP8

/* A rule's functions, by dim class. Some classes have no update_runs. */
struct update_functions {
    update_row *of[DIM_CLASSES];
    update_runs *all_fp32[DIM_CLASSES];          /* of fp32 weights and gradients */
    update_runs *runs[DTYPE_COUNT][DIM_CLASSES]; /* by the type of the weights, or BY_COPY */
};

#define X(rule, ...) extern const struct update_functions update_##rule AT_LEVEL(update_##rule);
RULES(X)
#undef X

static inline const struct update_functions *update_functions_of(enum rule_kind kind) {
    static const struct update_functions *const all[] = {
#define X(rule, ...) &update_##rule,
        RULES(X)
#undef X
    };
    return all[kind];
}

static inline update_row *update_row_of(enum rule_kind kind, int32_t dim) {
    return update_functions_of(kind)->of[dim_class(dim)];
}

struct narrow_array {
    int array;
    enum dtype type;
};

/* Updates the rows of one table. */
struct updater {
    update_row *update;
    const struct rule_step *step;
    struct table table;
    const struct table_shape *shape;
    int32_t dim;
    bool adjusts; /* gradients */
    int narrow;   /* arrays of types narrower than fp32: weights and element states */
    struct narrow_array narrow_array[1 + RULE_ELEM_STATES];
    int elem_states; /* of the rule */
    int row_states;
};

static inline struct updater updater_of(const struct batch *in, int32_t t,
                                        const struct rule_step *steps, const struct table *io) {
    const struct table_shape *x = &in->tables[t];
    struct updater u = {.update = update_row_of(x->rule, x->dim),
                        .step = &steps[t],
                        .table = io[t],
                        .shape = x,
                        .dim = x->dim,
                        .adjusts = steps[t].adjust.gradient,
                        .elem_states = rule_elem_states(x->rule),
                        .row_states = rule_row_states(x->rule)};
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table_array_type(x, a) != FP32)
            u.narrow_array[u.narrow++] = (struct narrow_array){a, table_array_type(x, a)};
    return u;
}

ALWAYS_INLINE void updater_prefetch_as(const struct updater *u, int64_t row, const bool narrow,
                                       const int32_t dim, const enum prefetch_into into) {
    const struct table *x = &u->table;
    const int64_t bytes = dim * (int64_t)sizeof(float);
    prefetch(array_row(&x->weight, row), narrow ? x->weight.stride : bytes, into);
    for (int k = 0; k < RULE_ELEM_STATES; k++) /* a constant: becomes straight code */
        if (k < u->elem_states)
            prefetch(array_row(&x->elem[k], row), narrow ? x->elem[k].stride : bytes, into);
    if (u->row_states)
        prefetch(array_row(&x->row, row), u->row_states * (int64_t)sizeof(float), into);
    if (x->watch && watch_has(x->watch, row))
        prefetch(&x->watch->row[row >> x->watch->shift], sizeof *x->watch->row, into);
}

/* updater_prefetch() for a table with arrays of narrower types. */
void updater_prefetch_narrow(const struct updater *u, int64_t row, enum prefetch_into into)
    AT_LEVEL(updater_prefetch_narrow);

/* Prefetches all that the rule reads of a row. dim is the dim of the table, if possible as a constant. */
ALWAYS_INLINE void updater_prefetch(const struct updater *u, int64_t row, const int32_t dim,
                                    const enum prefetch_into into) {
    if (u->narrow)
        updater_prefetch_narrow(u, row, into);
    else
        updater_prefetch_as(u, row, false, dim, into);
}

/* How many rows ahead the prefetch of weights and states is. */
ALWAYS_INLINE uint32_t updater_ahead(const struct updater *u) {
    return (uint32_t)rows_ahead(prefetch_choice.rows,
                                u->dim * (int64_t)sizeof(float) * (1 + u->elem_states));
}

/* The function that sums and updates whole runs. NULL: the table needs a call per row. */
static inline update_runs *unit_runs_of(const struct updater *u, enum dtype grad_type) {
    const enum dtype type = u->shape->weight_type;
    const bool as_is = prefetch_choice.rows.into == INTO_L2 &&
                       prefetch_choice.grads.into == INTO_L1 && !u->adjusts && !u->table.watch &&
                       u->narrow == (type != FP32);
    const struct update_functions *of = update_functions_of(u->shape->rule);
    if (!as_is) return NULL;
    if (type == FP32 && grad_type == FP32) return of->all_fp32[dim_class(u->dim)];
    const bool in_registers = type == FP32 || u->shape->rounding == ROUND_NEAREST;
    return of->runs[in_registers ? type : BY_COPY][dim_class(u->dim)];
}

/* These three are in row.c. */
void updater_narrow(const struct updater *u, int64_t row, const float *grad)
    AT_LEVEL(updater_narrow);
void updater_watch(const struct updater *u, int64_t row, const float *grad) AT_LEVEL(updater_watch);
void updater_adjust(const struct updater *u, int64_t row, float *grad) AT_LEVEL(updater_adjust);

/* Updates a row of a table that adjusts no gradients. */
ALWAYS_INLINE void updater_row_as_is(const struct updater *u, int64_t row, const float *grad) {
    if (u->table.watch && watch_has(u->table.watch, row)) updater_watch(u, row, grad);
    if (u->narrow)
        updater_narrow(u, row, grad);
    else
        u->update(u->step, &u->table, u->dim, row, grad);
}

/* Updates a row, and may change its summed gradient. */
ALWAYS_INLINE void updater_row(const struct updater *u, int64_t row, float *grad) {
    if (u->adjusts) updater_adjust(u, row, grad);
    updater_row_as_is(u, row, grad);
}

/* Updates the rows of `count` entries, whose positions are the numbers of their sums, sum[][dim]; it may change these.
 * begin: 0, 1, .. count. */
static inline void merged_update(const struct updater *u, float *sum, const uint64_t *entry,
                                 const uint32_t *begin, uint32_t count) {
    const uint32_t distance = updater_ahead(u);
    update_runs *const update_unit_runs = unit_runs_of(u, FP32);
    if (update_unit_runs) {
        const struct unit_runs x = {.grad = (const char *)sum,
                                    .stride = u->dim * (int64_t)sizeof *sum,
                                    .entry = entry,
                                    .shape = u->shape,
                                    .begin = begin,
                                    .count = count,
                                    .most = 2,
                                    .row_distance = distance,
                                    .grad_distance = (uint32_t)grads_ahead(FP32, u->dim)};
        update_unit_runs(u->step, &u->table, &x);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        if (k + distance < count)
            updater_prefetch(u, entry_row(entry[k + distance]), u->dim, prefetch_choice.rows.into);
        updater_row(u, entry_row(entry[k]), sum + (uint32_t)entry[k] * (int64_t)u->dim);
    }
}
