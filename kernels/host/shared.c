/* SPDX-License-Identifier: MIT
 *
 * What kernels call for a row, a run of it or many lookups, and not for each lookup. The Makefile compiles
 * it once for each instruction set, not once for each kernel.
 */
#include "kernels/host/accumulate.h"

/* row_add() of the columns that count. */
ALWAYS_INLINE void row_add_won_as(const enum dtype type, float *to, const void *from,
                                  float coefficient, struct won won, int32_t dim) {
    for (int32_t d = 0; d < dim; d++) {
        const float x = coefficient * dtype_get(type, from, d);
        to[d] += !won.winner || won.winner[d] == won.number ? x : 0;
    }
}

void row_add_won(enum dtype type, float *to, const void *from, float coefficient, struct won won,
                 int32_t dim) {
    switch (type) {
    case FP16: row_add_won_as(FP16, to, from, coefficient, won, dim); break;
    case BF16: row_add_won_as(BF16, to, from, coefficient, won, dim); break;
    default: row_add_won_as(FP32, to, from, coefficient, won, dim);
    }
}

ALWAYS_INLINE void sum_any(const bool max, const struct entries *of, int64_t n, int64_t ahead,
                           int32_t dim, float *sum) {
    switch (of->table->type) {
    case BF16: sum_entries_as(BF16, max, of, n, ahead, dim, sum); break;
    case FP16: sum_entries_as(FP16, max, of, n, ahead, dim, sum); break;
    default: sum_entries_as(FP32, max, of, n, ahead, dim, sum);
    }
}

void sum_entries_any(const struct entries *of, int64_t n, int64_t ahead, int32_t dim, float *sum) {
    if (of->table->max)
        sum_any(true, of, n, ahead, dim, sum);
    else
        sum_any(false, of, n, ahead, dim, sum);
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

/* The factor of a lookup's dot. t: its table. */
ALWAYS_INLINE float dot_scale(const struct gather *g, const struct gather_table *t,
                              uint32_t lookup) {
    if (!g->scale) return 1;
    const int64_t q = g->bag_of[lookup];
    const int64_t f = t->feature >= 0 ? t->feature : q / g->in->bags;
    return g->in->features[f].pooling == POOL_MEAN ? g->scale[q] : 1;
}

/* Lookups of one row. */
struct row_dots {
    const struct gather *gather;
    const struct gather_table *from;
    const float *row;
    const uint64_t *entry; /* their positions are lookups, because there are per-sample weights */
    int64_t n;
};

ALWAYS_INLINE void dots_as(const struct row_dots *x, const enum dtype type, const int32_t dim) {
    const int64_t ahead = grads_ahead(type, dim);
    float c;
    for (int64_t k = 0; k < x->n; k++) {
        const uint32_t lookup = (uint32_t)x->entry[k];
        if (k + ahead < x->n)
            prefetch_row(type, gather_row(x->gather, x->from, (uint32_t)x->entry[k + ahead], &c),
                         dim);
        const void *g = gather_row(x->gather, x->from, lookup, &c);
        x->gather->weight_grad[lookup] =
            row_dot(x->row, type, g, dim) * dot_scale(x->gather, x->from, lookup);
    }
}

ALWAYS_INLINE void dots_fp32(void *ctx, const int32_t dim, const bool common) {
    (void)common;
    dots_as(ctx, FP32, dim);
}

/* Writes the gradient of the weights of n lookups of a row. Nobody has updated the row yet. */
void dots_of_row(const struct gather *g, int32_t table, int64_t row, const uint64_t *entry,
                 int64_t n) {
    const struct table_shape *t = &g->in->tables[table];
    const void *w = array_row(&g->io[table].weight, row);
    const int32_t dim = t->dim;
    float wide[t->weight_type == FP32 ? 1 : dim];
    if (t->weight_type != FP32) {
        row_widen(t->weight_type, w, dim, wide);
        w = wide;
    }
    struct row_dots x = {g, &g->table[table], w, entry, n};
    switch (g->in->grad_type) {
    case BF16: dots_as(&x, BF16, dim); break;
    case FP16: dots_as(&x, FP16, dim); break;
    default: for_dim(dim, dots_fp32, &x);
    }
}

/* The distance of prefetches, for rows of so many floats. It is twice that of sums in registers. docs/kernels.md has
 * what that gave. */
ALWAYS_INLINE int32_t addends_ahead(int32_t dim) {
    const struct prefetch_ahead twice = {INTO_L1, 2 * prefetch_choice.grads.bytes};
    return (int32_t)rows_ahead(twice, dim * (int64_t)sizeof(float));
}

ALWAYS_INLINE void accumulate_from(const struct accumulate *a, const struct gather_table *from,
                                   const int32_t dim) {
    enum { SHORT = 128 }; /* a bag's longer row is prefetched once: the branch costs less then */
    const int32_t distance = addends_ahead(dim);
    for (int32_t k = 0; k < a->first; k++) {
        float c;
        int32_t ahead = k + distance;
        if (ahead < a->waiting &&
            (dim <= SHORT || a->wait[ahead].position != a->wait[ahead - 1].position))
            prefetch_row(from->type, gather_row(a->gather, from, a->wait[ahead].position, &c), dim);
        if (ahead < a->waiting && a->far)
            prefetch_row(FP32, a->sum + a->wait[ahead].number * a->stride, dim);
        const void *row = gather_row(a->gather, from, a->wait[k].position, &c);
        row_add(from->type, a->sum + a->wait[k].number * a->stride, row, c, dim);
    }
}

/* For a table with a max. */
static void accumulate_won(const struct accumulate *a) {
    const struct gather_table *from = a->from;
    const int32_t distance = addends_ahead(a->dim);
    for (int32_t k = 0; k < a->first; k++) {
        float c;
        const int32_t ahead = k + distance;
        if (ahead < a->waiting) {
            const uint32_t position = a->wait[ahead].position;
            prefetch_row(from->type, gather_row(a->gather, from, position, &c), a->dim);
            prefetch_row(FP32, gather_won(a->gather, from, position).winner, a->dim);
        }
        const uint32_t position = a->wait[k].position;
        const void *row = gather_row(a->gather, from, position, &c);
        row_add_won(from->type, a->sum + a->wait[k].number * a->stride, row, c,
                    gather_won(a->gather, from, position), a->dim);
    }
}

ALWAYS_INLINE void accumulate_as(void *ctx, const int32_t dim, const bool common) {
    const struct accumulate *a = ctx;
    struct gather_table from = *a->from;
    (void)common;
    if (from.plain && from.type == FP32) {
        from.plain = true, from.type = FP32; /* constants: see sum_entries() */
        accumulate_from(a, &from, dim);
    } else {
        accumulate_from(a, &from, dim);
    }
}

/* The gradients of the weights of the addends that are added now. */
static void accumulate_dots(const struct accumulate *a) {
    const struct gather *g = a->gather;
    const int32_t t = (int32_t)(a->from - g->table);
    const struct array *weight = &g->io[t].weight;
    const int64_t first_row = g->in->tables[t].first_row;
    const int32_t distance = addends_ahead(a->dim);
    for (int32_t k = 0; k < a->first; k++) {
        float c;
        const struct addend x = a->wait[k];
        const int64_t row = a->row ? a->row[x.number].row - first_row : x.number;
        if (k + distance < a->waiting) {
            const struct addend y = a->wait[k + distance];
            const int64_t ahead = a->row ? a->row[y.number].row - first_row : y.number;
            prefetch(array_row(weight, ahead), weight->stride, INTO_L1);
            prefetch_row(a->from->type, gather_row(g, a->from, y.position, &c), a->dim);
        }
        const uint64_t entry = entry_pack(row, x.position);
        dots_of_row(g, t, row, &entry, 1);
    }
}

/* Takes a copy: the address of the queue would keep it in memory during the walk. */
void accumulate_now(struct accumulate given, int32_t first) {
    struct accumulate a = given;
    a.first = first;
    if (a.gather->weight_grad) accumulate_dots(&a);
    if (a.from->max)
        accumulate_won(&a);
    else
        for_dim(a.dim, accumulate_as, &a);
}
