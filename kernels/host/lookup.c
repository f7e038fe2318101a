/* SPDX-License-Identifier: MIT
 *
 * The functions of lookup.h.
 */
#include "kernels/host/lookup.h"

#include "kernels/host/max.h"

/* The output row of `lookups` lookups. sum[dim]: scratch, for outputs narrower than fp32. */
ALWAYS_INLINE void lookup_row(const struct lookup_feature *f, const struct run *run,
                              const struct looked_up *from, int64_t row, const int32_t dim,
                              const bool max, float *sum) {
    const enum dtype type = f->in->grad_type;
    char *to = (char *)f->output + forward_row(f->feature, row) * dtype_bytes(type);
    float *x = type == FP32 ? (float *)to : sum;
    if (max)
        max_run(run, dim, x, f->winners + forward_row(f->feature, row));
    else
        sum_run(run, dim, x);
    if (f->feature->pooling == POOL_MEAN) {
        const float count = (float)counted(from, run->n);
        for (int32_t d = 0; d < dim; d++) x[d] /= count;
    }
    if (type != FP32) row_narrow(&(struct row_format){type, ROUND_NEAREST, 0}, x, dim, to);
}

/* This thread's part. type, plain, max: constants. */
ALWAYS_INLINE void lookup_bags(const struct lookup_feature *f, const int32_t dim,
                               const enum dtype type, const bool plain, const bool max) {
    const struct batch *in = f->in;
    const bool each = f->feature->pooling == POOL_NONE;
    const int64_t *offsets = in->offsets + f->first_bag;
    float sum[in->grad_type == FP32 ? 1 : dim];
    struct looked_up from = {.in = in,
                             .weight = &f->weight,
                             .padding = plain || each ? -1 : f->feature->padding_id,
                             .weighted = !plain && in->lookup_weights};
    struct run run = {
        .row = looked_up_row, .ctx = &from, .type = type, .gaps = !plain, .distance = f->distance};
    const int64_t last = lookup_part(f, f->thread + 1);
    for (int64_t u = lookup_part(f, f->thread); u < last; u++) {
        from.first = each ? offsets[0] + u : offsets[u];
        run.n = each ? 1 : offsets[u + 1] - offsets[u];
        run.ahead = f->distance ? offsets[in->bags] - from.first - run.n : 0;
        lookup_row(f, &run, &from, u, dim, max, sum);
    }
}

ALWAYS_INLINE void lookup_fp32(void *ctx, const int32_t dim, const bool common) {
    const struct lookup_feature *f = ctx;
    (void)common;
    if (!f->in->lookup_weights && f->feature->padding_id < 0) /* constants, as in sum_entries() */
        lookup_bags(f, dim, FP32, true, false);
    else
        lookup_bags(f, dim, FP32, false, false);
}

/* Not for each common dim: conversions fill the code, and compilers take minutes. */
NOINLINE void lookup_narrow(const struct lookup_feature *f) {
    switch (f->table->weight_type) {
    case BF16: lookup_bags(f, f->table->dim, BF16, false, false); break;
    case FP16: lookup_bags(f, f->table->dim, FP16, false, false); break;
    default: lookup_bags(f, f->table->dim, FP8, false, false);
    }
}

NOINLINE void lookup_max(const struct lookup_feature *f) {
    switch (f->table->weight_type) {
    case FP32: lookup_bags(f, f->table->dim, FP32, false, true); break;
    case BF16: lookup_bags(f, f->table->dim, BF16, false, true); break;
    case FP16: lookup_bags(f, f->table->dim, FP16, false, true); break;
    default: lookup_bags(f, f->table->dim, FP8, false, true);
    }
}

void lookup_part_of(struct lookup_feature *f) {
    if (f->feature->pooling == POOL_MAX)
        lookup_max(f);
    else if (f->table->weight_type == FP32)
        for_dim(f->table->dim, lookup_fp32, f);
    else
        lookup_narrow(f);
}
