/* SPDX-License-Identifier: MIT
 *
 * The functions of lookup.h.
 */
#include "kernels/host/lookup.h"

/* --- the max of a bag's rows: a maximum and its winner for each column, in registers over the whole bag. No branch
 * asks which row is greater, so that hard-to-predict ids cost no more than others. */

enum { MAX_REGISTERS = REGISTERS / 2 }; /* columns need two: a maximum and a winner */

/* `vecs` vectors of columns from `column` on. The pass over the first columns prefetches. */
ALWAYS_INLINE void max_columns(const struct run *r, int32_t dim, int32_t column, const int vecs,
                               float *max, int32_t *winner) {
    lanes best[MAX_REGISTERS] = {{0}};
    lane_ints winners[MAX_REGISTERS];
    for (int v = 0; v < vecs; v++) winners[v] = (lane_ints){0} + NO_WINNER;
    for (int64_t k = 0; k < r->n; k++) {
        if (column == 0) run_prefetch(r, k, dim);
        const void *row = r->row(r->ctx, k).row;
        if (r->gaps && !row) continue;
        UNROLL(4)
        for (int v = 0; v < vecs; v++) {
            const lanes x = row_lanes(r->type, row, column + v * LANES);
            const lane_ints wins = (x > best[v]) | (winners[v] == NO_WINNER);
            best[v] = (lanes)choose_lanes(wins, (lane_ints)x, (lane_ints)best[v]);
            winners[v] = choose_lanes(wins, (lane_ints){0} + (int32_t)k, winners[v]);
        }
    }
    UNROLL(4)
    for (int v = 0; v < vecs; v++) {
        *(lanes_at *)(max + column + v * LANES) = best[v];
        *(lane_ints_at *)(winner + column + v * LANES) = winners[v];
    }
}

/* The same for a row that is shorter than a vector. */
ALWAYS_INLINE void max_short(const struct run *r, int32_t dim, float *max, int32_t *winner) {
    for (int32_t d = 0; d < dim; d++) max[d] = 0, winner[d] = NO_WINNER;
    for (int64_t k = 0; k < r->n; k++) {
        run_prefetch(r, k, dim);
        const void *row = r->row(r->ctx, k).row;
        if (r->gaps && !row) continue;
        for (int32_t d = 0; d < dim; d++) {
            const float x = dtype_get(r->type, row, d);
            const bool wins = x > max[d] || winner[d] == NO_WINNER;
            max[d] = wins ? x : max[d];
            winner[d] = wins ? (int32_t)k : winner[d];
        }
    }
}

/* max[dim], winner[dim] = those of the run; 0 and NO_WINNER if it has no row. */
ALWAYS_INLINE void max_run(const struct run *r, int32_t dim, float *max, int32_t *winner) {
    int32_t d = 0;
    for (; d + MAX_REGISTERS * LANES <= dim; d += MAX_REGISTERS * LANES)
        max_columns(r, dim, d, MAX_REGISTERS, max, winner);
    for (; d + LANES <= dim; d += LANES) max_columns(r, dim, d, 1, max, winner);
    if (dim % LANES == 0) return;
    if (dim > LANES)
        max_columns(r, dim, dim - LANES, 1, max,
                    winner); /* some columns twice, with the same bits */
    else
        max_short(r, dim, max, winner);
}

/* --- the forward of a feature */

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
    const int64_t *offsets = in->offsets + f->feature->first_bag;
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
        run.lookahead = f->distance ? offsets[f->feature->bags] - from.first - run.n : 0;
        lookup_row(f, &run, &from, u, dim, max, sum);
    }
}

ALWAYS_INLINE int64_t id_at(const void *ids, const bool wide, int64_t k) {
    return wide ? ((const int64_t *)ids)[k] : ((const int32_t *)ids)[k];
}

/* The sum of rows ids[0 .. n - 1], of which `lookahead` more follow: `columns` columns from `column` on, in registers.
 * The pass over the first columns prefetches. */
ALWAYS_INLINE void sum_rows(const struct array *weight, const void *ids, const bool wide, int64_t n,
                            int64_t lookahead, int64_t distance, const int32_t dim,
                            const int32_t column, const int32_t columns, float *sum) {
    lanes acc[REGISTERS] = {{0}};
    for (int64_t k = 0; k < n; k++) {
        if (column == 0 && distance) {
            const int64_t next = k + distance < n + lookahead ? k + distance : k;
            prefetch(array_row(weight, id_at(ids, wide, next)), dim * (int64_t)sizeof *sum,
                     INTO_L1);
        }
        const float *row = (const float *)array_row(weight, id_at(ids, wide, k)) + column;
        UNROLL(8)
        for (int v = 0; v < columns / LANES; v++) acc[v] += *(const lanes_at *)(row + v * LANES);
    }
    UNROLL(8)
    for (int v = 0; v < columns / LANES; v++) *(lanes_at *)(sum + column + v * LANES) = acc[v];
}

/* This thread's part, of a feature without weights and padding: each lookup is a load of its id and of its row. */
ALWAYS_INLINE void plain_bags(const struct lookup_feature *f, const int32_t dim, const bool wide) {
    const struct batch *in = f->in;
    const struct array weight = f->weight;
    const bool each = f->feature->pooling == POOL_NONE, mean = f->feature->pooling == POOL_MEAN;
    const int64_t *offsets = in->offsets + f->feature->first_bag;
    const int64_t last = lookup_part(f, f->thread + 1), distance = f->distance;
    for (int64_t u = lookup_part(f, f->thread); u < last; u++) {
        const int64_t first = each ? offsets[0] + u : offsets[u];
        const int64_t n = each ? 1 : offsets[u + 1] - first;
        const int64_t lookahead = offsets[f->feature->bags] - first - n;
        const void *ids = (const char *)in->ids + first * (wide ? 8 : 4);
        float *sum = (float *)f->output + forward_row(f->feature, u);
        const int32_t most = REGISTERS * LANES;
        for (int32_t d = 0; d < dim; d += most)
            sum_rows(&weight, ids, wide, n, lookahead, distance, dim, d,
                     dim - d < most ? dim - d : most, sum);
        for (int32_t d = 0; mean && n > 1 && d < dim; d++) sum[d] /= (float)n;
    }
}

ALWAYS_INLINE void lookup_fp32(void *ctx, const int32_t dim, const bool common) {
    const struct lookup_feature *f = ctx;
    const bool plain = !f->in->lookup_weights && f->feature->padding_id < 0;
    const bool lean = plain && common && dim % LANES == 0 && f->in->grad_type == FP32;
    if (lean && f->in->id_type == ID_INT64)
        plain_bags(f, dim, true);
    else if (lean)
        plain_bags(f, dim, false);
    else if (plain && !common) /* constants, as in sum_entries() */
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
