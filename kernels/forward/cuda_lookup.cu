/* SPDX-License-Identifier: MIT
 *
 * The lookup: a group of lanes per bag, with several rows in flight.
 *
 * Who owns what: as many lanes as a row's columns need, a warp at most, take a bag. A lane adds up
 * four columns, of IN_FLIGHT rows at a time: their loads do not wait for one another. Wider rows
 * take several rounds over the bag.
 * Scratch and traffic: none; every lookup reads its row, every output is written once.
 * Deterministic: a bag is summed in the order of its lookups.
 * Expected, not measured yet: the bytes of the rows decide, from L2 or from memory. A bag with most
 * of the lookups keeps one group busy and the others idle.
 * Source: cuEmbed (NVIDIA) and FBGEMM's split embedding forward, both a warp or a part of it per bag.
 */
#include "kernels/device/lookup.cuh"
#include "kernels/device/row.cuh"
#include "kernels/forward.h"

enum { IN_FLIGHT = 4 };

/* Where lookups of a feature read and write. */
struct source {
    const struct feature *feature;
    const struct array *weight;
    enum dtype type;
    int32_t dim;
    bool each, max; /* POOL_NONE, POOL_MAX */
};

static __device__ inline void output_put(const struct batch &in, void *output,
                                         const struct source &s, int64_t row, int32_t column,
                                         const struct quad &q) {
    const enum dtype type = in.grad_type;
    struct quad_bits bits = {{0, 0, 0, 0}};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(type, &bits, c, dtype_narrow(type, q.x[c], ROUND_NEAREST, 0));
    char *to = (char *)output + forward_row(s.feature, row) * dtype_bytes(type);
    quad_put(type, to, column, s.dim, bits);
}

/* Lookup number `number` of a bag: best takes the columns that it wins. */
static __device__ inline void quad_max(struct quad *best, struct quad_bits *winners,
                                       const struct quad &q, int32_t number) {
    for (int c = 0; c < LANE_COLUMNS; c++) {
        const bool wins = winners->x[c] == (uint32_t)NO_WINNER || q.x[c] > best->x[c];
        best->x[c] = wins ? q.x[c] : best->x[c];
        winners->x[c] = wins ? (uint32_t)number : winners->x[c];
    }
}

/* A lane's four columns of a bag: lookups begin .. end-1, output row `row`, or for POOL_NONE the rows
 * from there on. MAX: a feature of the batch has POOL_MAX. */
template <bool MAX>
static __device__ inline void lookup_columns(const struct batch &in, void *output, int32_t *winners,
                                             const struct source &s, int64_t begin, int64_t end,
                                             int64_t row, int32_t column) {
    const uint32_t none = (uint32_t)NO_WINNER;
    struct quad_bits won = {{none, none, none, none}};
    struct quad sum = {{0, 0, 0, 0}};
    int64_t counted = 0;
    for (int64_t first = begin; first < end; first += IN_FLIGHT) {
        struct quad_bits bits[IN_FLIGHT];
        struct quad q[IN_FLIGHT];
        const void *rows[IN_FLIGHT];
        bool counts[IN_FLIGHT];
        /* All loads come before the first use of one, so that all are in flight at once. */
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            const int64_t i = first + k, id = i < end ? batch_id(&in, i) : 0;
            counts[k] = i < end && (s.each || id != s.feature->padding_id);
            rows[k] = array_row(s.weight, id);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            bits[k] = quad_fetch<true>(s.type, rows[k], column, counts[k] ? s.dim : 0);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) q[k] = quad_widen(s.type, bits[k]);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (!counts[k]) continue;
            if (MAX && s.max) {
                quad_max(&sum, &won, q[k], (int32_t)(first + k - begin));
                continue;
            }
            if (in.lookup_weights) q[k] = quad_scale(q[k], in.lookup_weights[first + k]);
            sum = quad_sum(sum, q[k]);
            counted++;
            if (!s.each) continue;
            output_put(in, output, s, row + (first + k - begin), column, sum);
            sum = {{0, 0, 0, 0}};
        }
    }
    if (s.each) return;
    if (s.feature->pooling == POOL_MEAN && counted)
        for (int c = 0; c < LANE_COLUMNS; c++) sum.x[c] /= (float)counted;
    if (MAX && s.max) quad_put(FP32, winners + forward_row(s.feature, row), column, s.dim, won);
    output_put(in, output, s, row, column, sum);
}

template <bool MAX>
static __global__ void __launch_bounds__(LANES_BLOCK, 1)
    lookup_bags(const struct batch in, const struct table *io, void *output, int32_t *winners,
                int lanes) {
    const struct lanes g = lanes_here(lanes);
    const int64_t q = group_number(g);
    if (q >= in.flat_bags) return;
    const struct feature *x =
        in.device_features + feature_of_bag(in.device_features, in.num_features, q);
    const struct table_shape *t = &in.device_tables[x->table];
    const struct source s = {x,      &io[x->table].weight,    t->weight_type,
                             t->dim, x->pooling == POOL_NONE, x->pooling == POOL_MAX};
    const int64_t begin = in.offsets[q];
    const int64_t row = s.each ? begin - x->first_lookup : q - x->first_bag;
    for (int32_t column = g.lane * LANE_COLUMNS; column < s.dim; column += g.count * LANE_COLUMNS)
        lookup_columns<MAX>(in, output, winners, s, begin, in.offsets[q + 1], row, column);
}

static int run(const struct batch *in, const struct rule_step *, const struct table *io,
               const struct launch *how) {
    const int lanes = lanes_of_row(widest(in));
    auto kernel = how->winners ? lookup_bags<true> : lookup_bags<false>;
    LAUNCH(kernel, blocks_for(in->flat_bags, LANES_BLOCK / lanes), LANES_BLOCK, 0,
           (cudaStream_t)how->stream, *in, io, how->output, how->winners, lanes);
    return cudaGetLastError();
}

DEFINE_KERNEL(cuda_lookup) = {
    .name = "cuda_lookup",
    .label = "CUDA lookup",
    .idea = "A group of lanes sums the rows of a bag, several rows in flight.",
    .operation = OP_FORWARD,
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = NULL,
    .scratch_bytes = NULL,
    .plan = NULL,
    .run = run,
};
