/* SPDX-License-Identifier: MIT
 *
 * The functions of update.h for all rules.
 */
#include "kernels/host/row.h"
#include "kernels/host/update.h"

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

void row_widen(enum dtype type, const void *row, int32_t dim, float *to) {
    switch (type) {
    case FP16: widen_as(FP16, row, dim, to); break;
    case BF16: widen_as(BF16, row, dim, to); break;
    default: widen_as(FP8, row, dim, to);
    }
}

void row_narrow(const struct row_format *f, const float *from, int32_t dim, void *row) {
    if (f->rounding == ROUND_STOCHASTIC)
        narrow_in(ROUND_STOCHASTIC, f, from, dim, row);
    else
        narrow_in(ROUND_NEAREST, f, from, dim, row);
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
