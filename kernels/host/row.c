/* SPDX-License-Identifier: MIT
 *
 * The functions of row.h and update.h that are compiled once for each instruction set, not for each rule or kernel.
 */
#include "kernels/host/update.h"

ALWAYS_INLINE void row_add_masked_as(const enum dtype type, float *to, struct summand x,
                                     int32_t dim) {
    for (int32_t d = 0; d < dim; d++) {
        const float product = x.coefficient * dtype_get(type, x.row, d);
        to[d] += max_mask_counts(x.mask, d) ? product : 0;
    }
}

void row_add_masked(enum dtype type, float *to, struct summand x, int32_t dim) {
    switch (type) {
    case FP16: row_add_masked_as(FP16, to, x, dim); break;
    case BF16: row_add_masked_as(BF16, to, x, dim); break;
    default: row_add_masked_as(FP32, to, x, dim);
    }
}

/* The elements of a row = from[dim], rounded. */
ALWAYS_INLINE void narrow_as(const enum dtype type, const enum rounding rounding, uint32_t words,
                             const float *from, int32_t dim, void *row) {
    const struct row_format f = {type, rounding, words};
    int32_t begin = 0;
    for (; rounding == ROUND_NEAREST && begin + LANES <= dim; begin += LANES)
        row_put_lanes(type, row, begin, *(const lanes_at *)(from + begin));
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

void row_widen(enum dtype type, const void *row, int32_t dim, float *to) {
    row_widen_as(type, row, dim, to);
}

void row_narrow(const struct row_format *f, const float *from, int32_t dim, void *row) {
    if (f->rounding == ROUND_STOCHASTIC)
        narrow_in(ROUND_STOCHASTIC, f, from, dim, row);
    else
        narrow_in(ROUND_NEAREST, f, from, dim, row);
}

ALWAYS_INLINE void sum_of_type(const struct entries *of, int64_t n, int64_t lookahead, int32_t dim,
                               float *sum) {
    switch (of->table->type) {
    case BF16: sum_entries_as(BF16, of, n, lookahead, dim, sum); break;
    case FP16: sum_entries_as(FP16, of, n, lookahead, dim, sum); break;
    default: sum_entries_as(FP32, of, n, lookahead, dim, sum);
    }
}

void sum_entries_any(const struct entries *given, int64_t n, int64_t lookahead, int32_t dim,
                     float *sum) {
    struct gather_table from = *given->table;
    const struct entries of = {given->gather, &from, given->entry};
    if (from.masked) { /* a constant in each branch, as in sum_entries() */
        from.masked = true;
        sum_of_type(&of, n, lookahead, dim, sum);
    } else {
        from.masked = false;
        sum_of_type(&of, n, lookahead, dim, sum);
    }
}

/* --- updates of rows that need more than the rule */

void updater_prefetch_narrow(const struct updater *u, int64_t row, enum prefetch_into into) {
    updater_prefetch_as(u, row, true, u->dim, into);
}

/* Updates a row with arrays of narrower types: widens these, updates the copies, and rounds them
 * back. The copies are on the stack, so rows have a largest dim: see kernel_refuses(). */
void updater_narrow(const struct updater *u, int64_t row, const float *grad) {
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

void updater_watch(const struct updater *u, int64_t row, const float *grad) {
    watch_touch(u->table.watch, row, u->step->number, grad, u->dim);
}

void updater_adjust(const struct updater *u, int64_t row, float *grad) {
    adjust_row(&u->step->adjust, u->shape->weight_type, array_row(&u->table.weight, row), u->dim,
               grad);
}
