/* SPDX-License-Identifier: MIT
 *
 * The functions of dots.h.
 */
#include "kernels/host/dots.h"

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
