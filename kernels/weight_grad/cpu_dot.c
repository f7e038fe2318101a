/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights in a pass of its own: the dot of each lookup's row with the
 * gradient row of its bag.
 *
 * Who owns what: a thread takes bags with about as many lookups as every other thread's. A bag's gradient
 * row stays in L1; the table rows of later lookups are prefetched.
 * Scratch and traffic: none; every lookup reads its row, every bag its gradient row once.
 * Deterministic: a dot has one order, see kernels/weight_grad.h.
 * The row of a lookup comes from memory here, and once more in the step. A step that wrote this gradient, too,
 * would need a branch per row and a second walk, over padding.
 * Source: FBGEMM's indice_weights gradient, an operation of its own that runs before the update.
 */
#include "kernels/host/lookup.h"
#include "kernels/weight_grad.h"

enum { AHEAD = 16 }; /* lookups whose rows are prefetched */

enum { DOT_PARTS = ROW_LANES / LANES };

/* `columns` products of a row's end, zeros behind them. */
ALWAYS_INLINE lanes dot_rest(const float *w, const enum dtype type, const void *g, int32_t column,
                             int32_t columns) {
    float x[LANES] = {0};
    for (int32_t k = 0; k < columns; k++) x[k] = dtype_get(type, g, column + k) * w[column + k];
    lanes all;
    memcpy(&all, x, sizeof all);
    return all;
}

/* <g, w> in the order of kernels/weight_grad.h. type: of g; a constant, and dim too if possible. */
ALWAYS_INLINE float row_dot(const float *w, const enum dtype type, const void *g,
                            const int32_t dim) {
    const int32_t whole = dim / LANES, parts = (dim + LANES - 1) / LANES;
    lanes sum[DOT_PARTS] = {{0}}, rest = {0};
    if (whole < parts) rest = dot_rest(w, type, g, whole * LANES, dim % LANES);
    UNROLL(32)
    for (int32_t j = 0; j < DOT_PARTS; j++) {
        for (int32_t k = j; k < whole; k += DOT_PARTS)
            sum[j] += row_lanes(type, g, k * LANES) * row_lanes(FP32, w, k * LANES);
        if (whole < parts && j == whole % DOT_PARTS) sum[j] += rest;
    }
    UNROLL(5)
    for (int32_t fold = DOT_PARTS / 2; fold > 0; fold /= 2) {
        UNROLL(16)
        for (int32_t j = 0; j < fold; j++)
            if (j + fold < parts) sum[j] += sum[j + fold];
    }
    float lane[LANES];
    memcpy(lane, sum, sizeof lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* One lookup: its row, or NULL for padding that has no gradient. copy[dim]: of a narrower row. */
ALWAYS_INLINE const float *row_of(const struct lookup_feature *f, int64_t i, float *copy) {
    const struct batch *in = f->in;
    const bool each = f->feature->pooling == POOL_NONE;
    const int64_t id = batch_id(in, i), ahead = i + AHEAD;
    if (ahead < f->feature->first_lookup + f->feature->lookups)
        prefetch(array_row(&f->weight, batch_id(in, ahead)), f->weight.stride, INTO_L1);
    if (!each && id == f->feature->padding_id) return NULL;
    const void *row = array_row(&f->weight, id);
    if (f->table->weight_type == FP32) return row;
    row_widen(f->table->weight_type, row, f->table->dim, copy);
    return copy;
}

/* This thread's part. type, of gradients, is a constant. */
ALWAYS_INLINE void dot_bags(const struct lookup_feature *f, const enum dtype type,
                            const int32_t dim) {
    const struct batch *in = f->in;
    const bool each = f->feature->pooling == POOL_NONE;
    const int64_t *offsets = in->offsets + f->feature->first_bag,
                  last = lookup_part(f, f->thread + 1);
    float copy[f->table->weight_type == FP32 ? 1 : dim], *to = f->output;
    for (int64_t u = lookup_part(f, f->thread); u < last; u++) {
        const int64_t begin = each ? f->feature->first_lookup + u : offsets[u],
                      end = each ? begin + 1 : offsets[u + 1];
        const char *g = (const char *)in->grad +
                        (f->feature->grad_offset + u * f->feature->grad_stride) * dtype_bytes(type);
        const struct looked_up bag = {.in = in, .first = begin, .padding = f->feature->padding_id};
        float scale = 1;
        if (f->feature->pooling == POOL_MEAN) scale = 1.0f / (float)counted(&bag, end - begin);
        for (int64_t i = begin; i < end; i++) {
            const float *row = row_of(f, i, copy);
            to[i] = row ? row_dot(row, type, g, dim) * scale : 0;
        }
    }
}

ALWAYS_INLINE void dot_fp32(void *ctx, const int32_t dim, const bool common) {
    (void)common;
    dot_bags(ctx, FP32, dim);
}

NOINLINE void dot_narrow(const struct lookup_feature *f) {
    if (f->in->grad_type == BF16)
        dot_bags(f, BF16, f->table->dim);
    else
        dot_bags(f, FP16, f->table->dim);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)steps;
#pragma omp parallel num_threads(how->threads)
    for (int32_t f = 0; f < in->num_features; f++) {
        struct lookup_feature mine = lookup_feature_of(in, f, io, how);
        if (in->grad_type == FP32)
            for_dim(mine.table->dim, dot_fp32, &mine);
        else
            dot_narrow(&mine);
    }
    return 0;
}

DEFINE_KERNEL(cpu_dot) = {
    .name = "cpu_dot",
    .label = "gradient of weights",
    .idea = "A thread takes the dots of a bag's rows with its gradient row, rows prefetched.",
    .operation = OP_WEIGHT_GRAD,
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .run = run,
};
