/* SPDX-License-Identifier: MIT
 *
 * Applies a table's rule to a row whose gradients are summed. Kernels sum the gradients; update.c
 * updates the row, in fp32. The Makefile compiles update.c once for each rule and instruction set, not
 * once for each kernel. Rows of narrower types are widened into a copy, updated there and rounded back.
 *
 * Tried without gain: 4, 8 or 16 rows per call. Memory is idle while a call prefetches no row, so
 * steps of Adam take 1.1 to 1.25 times as long.
 */
#pragma once

#include "kernels/host/row.h"
#include "kernels/watch.h"

/* Applies the table's rule once to a row of fp32 whose adjusted gradient is grad[dim]. */
typedef void update_row(const struct rule_step *step, const struct table *table, int32_t dim,
                        int64_t row, const float *grad);

/* A rule's functions, by dim class. */
struct update_functions {
    update_row *of[DIM_CLASSES];
};

/* LEVEL: suffix of the names of this instruction set's functions. */
#ifndef LEVEL
#define LEVEL
#endif
#define AT_LEVEL_(name, level) name##level
#define AT_LEVEL(name, level)  AT_LEVEL_(name, level)
#define UPDATE_OF(rule)        AT_LEVEL(update_##rule, LEVEL)

#define X(rule, ...) extern const struct update_functions UPDATE_OF(rule);
RULES(X)
#undef X

static inline update_row *update_row_of(enum rule_kind kind, int32_t dim) {
    static const struct update_functions *const all[] = {
#define X(rule, ...) &UPDATE_OF(rule),
        RULES(X)
#undef X
    };
    return all[kind]->of[dim_class(dim)];
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

/* Prefetches all that the rule reads of a row. dim: the table's, as a constant if possible. */
ALWAYS_INLINE void updater_prefetch(const struct updater *u, int64_t row, const int32_t dim,
                                    const enum prefetch_into into) {
    const struct table *x = &u->table;
    const int64_t bytes = dim * (int64_t)sizeof(float);
    prefetch(array_row(&x->weight, row), u->narrow ? x->weight.stride : bytes, into);
    for (int k = 0; k < RULE_ELEM_STATES; k++) /* a constant: becomes straight code */
        if (k < u->elem_states)
            prefetch(array_row(&x->elem[k], row), u->narrow ? x->elem[k].stride : bytes, into);
    if (u->row_states)
        prefetch(array_row(&x->row, row), u->row_states * (int64_t)sizeof(float), into);
    if (x->watch && watch_has(x->watch, row))
        prefetch(&x->watch->row[row >> x->watch->shift], sizeof *x->watch->row, into);
}

/* Rows to prefetch ahead, by weights and states. */
ALWAYS_INLINE uint32_t updater_ahead(const struct updater *u) {
    return (uint32_t)rows_ahead(prefetch_choice.rows,
                                u->dim * (int64_t)sizeof(float) * (1 + u->elem_states));
}

/* to[dim] = the elements of a row. */
ALWAYS_INLINE void widen_as(const enum dtype type, const void *row, int32_t dim, float *to) {
    int32_t begin = 0;
    for (; type == FP16 && begin + LANES <= dim; begin += LANES)
        *(lanes_at *)(to + begin) = fp16_lanes((const uint16_t *)row + begin);
#pragma omp simd
    for (int32_t d = begin; d < dim; d++) to[d] = dtype_get(type, row, d);
}

/* The elements of a row = from[dim], rounded. */
ALWAYS_INLINE void narrow_as(const enum dtype type, const enum rounding rounding, uint32_t words,
                             const float *from, int32_t dim, void *row) {
    const struct row_format f = {type, rounding, words};
    int32_t begin = 0;
    for (; type == FP16 && rounding == ROUND_NEAREST && begin + LANES <= dim; begin += LANES)
        fp16_put_lanes((uint16_t *)row + begin, *(const lanes_at *)(from + begin));
#pragma omp simd
    for (int32_t d = begin; d < dim; d++) dtype_put(type, row, d, row_format_bits(&f, d, from[d]));
}

ALWAYS_INLINE void narrow_in(const enum rounding rounding, const struct row_format *f,
                             const float *from, int32_t dim, void *row) {
    switch (f->type) {
    case FP16: narrow_as(FP16, rounding, f->words, from, dim, row); break;
    case BF16: narrow_as(BF16, rounding, f->words, from, dim, row); break;
    default: narrow_as(FP8, rounding, f->words, from, dim, row);
    }
}

NOINLINE void row_widen(enum dtype type, const void *row, int32_t dim, float *to) {
    switch (type) {
    case FP16: widen_as(FP16, row, dim, to); break;
    case BF16: widen_as(BF16, row, dim, to); break;
    default: widen_as(FP8, row, dim, to);
    }
}

NOINLINE void row_narrow(const struct row_format *f, const float *from, int32_t dim, void *row) {
    if (f->rounding == ROUND_STOCHASTIC)
        narrow_in(ROUND_STOCHASTIC, f, from, dim, row);
    else
        narrow_in(ROUND_NEAREST, f, from, dim, row);
}

/* Updates a row with arrays of narrower types: widens these, updates the copies, and rounds them
 * back. The copies are on the stack, so rows have a largest dim: see kernel_refuses(). */
NOINLINE void updater_narrow(const struct updater *u, int64_t row, const float *grad) {
    const int32_t dim = u->dim;
    float copy[1 + RULE_ELEM_STATES][(dim + VEC - 1) / VEC * VEC];
    struct table wide = u->table;
    for (int k = 0; k < u->narrow; k++) {
        const struct narrow_array *x = &u->narrow_array[k];
        row_widen(x->type, array_row(&u->table.array[x->array], row), dim, copy[k]);
        wide.array[x->array] = (struct array){copy[k], 0}; /* every row is the copy */
    }
    u->update(u->step, &wide, dim, row, grad);
    for (int k = 0; k < u->narrow; k++) {
        const struct narrow_array *x = &u->narrow_array[k];
        const struct row_format f = row_format(u->shape, u->step->number, x->array, row);
        row_narrow(&f, copy[k], dim, array_row(&u->table.array[x->array], row));
    }
}

NOINLINE void updater_watch(const struct updater *u, int64_t row, const float *grad) {
    watch_touch(u->table.watch, row, u->step->number, grad, u->dim);
}

/* Updates a row of a table that adjusts no gradients. */
ALWAYS_INLINE void updater_row_as_is(const struct updater *u, int64_t row, const float *grad) {
    if (u->table.watch && watch_has(u->table.watch, row)) updater_watch(u, row, grad);
    if (u->narrow)
        updater_narrow(u, row, grad);
    else
        u->update(u->step, &u->table, u->dim, row, grad);
}

NOINLINE void updater_adjust(const struct updater *u, int64_t row, float *grad) {
    adjust_row(&u->step->adjust, u->shape->weight_type, array_row(&u->table.weight, row), u->dim,
               grad);
}

/* Updates a row, and may change its summed gradient. */
ALWAYS_INLINE void updater_row(const struct updater *u, int64_t row, float *grad) {
    if (u->adjusts) updater_adjust(u, row, grad);
    updater_row_as_is(u, row, grad);
}
