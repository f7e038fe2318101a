/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights on a device, in a pass of its own.
 *
 * Who owns what: a group of lanes takes a bag and multiplies its rows with the
 * bag's gradient row, DOTS_IN_FLIGHT rows at a time; a fold over the lanes ends each dot.
 * Scratch and traffic: none; every lookup reads its row; the gradient row comes from L1 after the first.
 * Deterministic: a dot has one order, see kernels/weight_grad.h.
 * Expected, not measured yet: the bytes of the rows decide, as in cuda_lookup. A bag with most of the
 * lookups keeps one group busy and the others idle.
 * Source: FBGEMM's indice_weights gradient, a warp per bag, before the update.
 */
#include "kernels/device/lookup.cuh"
#include "kernels/device/row.cuh"
#include "kernels/weight_grad.h"

enum {
    DOTS_IN_FLIGHT = 4,
    DOT_LANES = 4 /* least: quad_fold() folds four columns over four lanes */
};

/* Adds four columns of each lane over the lanes of the group, at least DOT_LANES; all of them get the sum, in the order
 * of kernels/rules.h. */
static __device__ inline float quad_fold(const struct lanes &g, const struct quad &q,
                                         site at = here()) {
    const int half = g.count / 2, quarter = g.count / 4;
    const bool upper = g.lane & half, odd = g.lane & quarter;
    const auto add = [&](float keep, float give, int step) {
        return keep + __shfl_xor_sync(ALL_LANES, give, step, g.count, at);
    };
    const float even = add(upper ? q.x[2] : q.x[0], upper ? q.x[0] : q.x[2], half),
                uneven = add(upper ? q.x[3] : q.x[1], upper ? q.x[1] : q.x[3], half);
    float sum = add(odd ? uneven : even, odd ? even : uneven, quarter);
    for (int step = quarter / 2; step > 0; step /= 2) sum = add(sum, sum, step);
    sum = add(sum, sum, half);
    return add(sum, sum, quarter);
}

/* A bag, and where its lookups read. */
struct dot_bag {
    int64_t begin, end;       /* lookups */
    int64_t padding;          /* the row without a gradient, or -1 */
    const char *grad;         /* the gradient row of the first lookup */
    int64_t grad_stride;      /* bytes from one lookup's to the next one's; 0: one for all */
    const struct array *rows; /* weights of the table */
    enum dtype type, grad_type;
    int32_t dim;
    float scale;
};

/* Lookups of the bag that are not padding. All lanes of a warp call this. */
static __device__ inline int64_t bag_count(const struct lanes &g, const struct batch &in,
                                           const struct dot_bag &b) {
    int64_t padding = 0;
    for (int64_t i = b.begin + g.lane; b.padding >= 0 && i < b.end; i += g.count)
        padding += batch_id(&in, i) == b.padding;
    for (int step = g.count / 2; step > 0; step /= 2)
        padding += __shfl_xor_sync(ALL_LANES, (long long)padding, step, g.count);
    return b.end - b.begin - padding;
}

/* Bag q. All lanes of a warp call this. */
static __device__ inline struct dot_bag dot_bag_at(const struct lanes &g, const struct batch &in,
                                                   const struct table *io, int64_t q) {
    const struct feature *x =
        in.device_features + feature_of_bag(in.device_features, in.num_features, q);
    const struct table_shape *t = &in.device_tables[x->table];
    const bool each = x->pooling == POOL_NONE;
    const int64_t bytes = dtype_bytes(in.grad_type), begin = in.offsets[q],
                  row = each ? begin - x->first_lookup : q - x->first_bag;
    struct dot_bag b = {begin,
                        in.offsets[q + 1],
                        each ? -1 : x->padding_id,
                        (const char *)in.grad + (x->grad_offset + row * x->grad_stride) * bytes,
                        each ? x->grad_stride * bytes : 0,
                        &io[x->table].weight,
                        t->weight_type,
                        in.grad_type,
                        t->dim,
                        1};
    const int64_t count = bag_count(g, in, b);
    if (x->pooling == POOL_MEAN) b.scale = 1.0f / (float)(count > 0 ? count : 1);
    return b;
}

/* The products of four columns of a lookup. */
static __device__ inline struct quad dot_quad(const struct dot_bag &b, int64_t i, int64_t id,
                                              int32_t column) {
    const char *grad = b.grad + (i - b.begin) * b.grad_stride;
    const struct quad g =
        quad_widen(b.grad_type, quad_fetch<true>(b.grad_type, grad, column, b.dim));
    struct quad w =
        quad_widen(b.type, quad_fetch<true>(b.type, array_row(b.rows, id), column, b.dim));
    for (int c = 0; c < LANE_COLUMNS; c++) w.x[c] *= g.x[c];
    return w;
}

/* A group of lanes per bag. */
static __global__ void __launch_bounds__(LANES_BLOCK, 1)
    dots_of_bags(const struct batch in, const struct table *io, float *to, int lanes) {
    const struct lanes g = lanes_here(lanes);
    const int64_t q = group_number(g), bags = in.flat_bags;
    struct dot_bag b = dot_bag_at(g, in, io, q < bags ? q : bags - 1);
    if (q >= bags) b.end = b.begin;
    for (int64_t first = b.begin; __any_sync(ALL_LANES, first < b.end); first += DOTS_IN_FLIGHT) {
        struct quad sum[DOTS_IN_FLIGHT] = {};
        for (int32_t column = g.lane * LANE_COLUMNS; column < b.dim;
             column += g.count * LANE_COLUMNS) {
            struct quad product[DOTS_IN_FLIGHT];
#pragma unroll
            for (int k = 0; k < DOTS_IN_FLIGHT; k++) {
                const int64_t i = first + k, id = i < b.end ? batch_id(&in, i) : b.padding;
                product[k] = {};
                if (i < b.end && id != b.padding) product[k] = dot_quad(b, i, id, column);
            }
#pragma unroll
            for (int k = 0; k < DOTS_IN_FLIGHT; k++) sum[k] = quad_sum(sum[k], product[k]);
        }
#pragma unroll
        for (int k = 0; k < DOTS_IN_FLIGHT; k++) {
            const float dot = quad_fold(g, sum[k]) * b.scale;
            if (g.lane == 0 && first + k < b.end) to[first + k] = dot;
        }
    }
}

static int run(const struct batch *in, const struct rule_step *, const struct table *io,
               const struct launch *how) {
    const int lanes = lanes_of_row(widest(in)) > DOT_LANES ? lanes_of_row(widest(in)) : DOT_LANES;
    LAUNCH(dots_of_bags, blocks_for(in->flat_bags, LANES_BLOCK / lanes), LANES_BLOCK, 0,
           (cudaStream_t)how->stream, *in, io, (float *)how->output, lanes);
    return cudaGetLastError();
}

DEFINE_KERNEL(cuda_dot) = {
    .name = "cuda_dot",
    .label = "CUDA gradient of weights",
    .idea = "A group of lanes takes the dots of a bag's rows with its gradient row.",
    .operation = OP_WEIGHT_GRAD,
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = NULL,
    .scratch_bytes = NULL,
    .plan = NULL,
    .run = run,
};
