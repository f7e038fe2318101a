/* SPDX-License-Identifier: MIT
 *
 * The tree of runs.cuh behind the sums of chunks: a launch of its own, so that its registers are not theirs, and one
 * for all rules. A warp takes a node. It adds the heads and tails of the node's children in their order. A run that
 * ends in the node is finished: its sum goes to the compact gradient, or takes the place of its last summand, and its
 * row goes to a list, for an update of rows. What goes on into or out of the node becomes the node's own head and tail.
 * The last warp that arrives at the node's parent goes on there. The order of the list is that of arrival; no sum
 * depends on it.
 */
#include "kernels/device/chunk.cuh"
#include "kernels/device/lean.h"

enum { TREE_BLOCK = 128 };

static __device__ __forceinline__ float *part_of_run(const struct runs &r, int level, int64_t node,
                                                     int tail) {
    return r.partial + (2 * (r.tree.first[level] + node) + tail) * r.stride;
}

/* The children of a node: bit k of the masks is child k, and of `borders` the border on its left. */
struct children {
    unsigned borders; /* crossed by a run; FAN + 1 bits */
    unsigned through; /* one run comes in and goes out: all its entries are of that run */
};

static __device__ __forceinline__ struct children
children_at(const struct runs &r, const struct keys &keys, int level, int64_t node, unsigned me) {
    const int64_t span = (int64_t)r.tree.chunk << level * FAN_BITS, from = (node * FAN + me) * span;
    const bool there = me <= FAN && from < keys.count;
    const bool left = there && border_at(keys, (uint32_t)r.tree.chunk, (uint32_t)from).crosses;
    struct children c;
    c.borders = __ballot_sync(ALL_LANES, left);
    const bool both = c.borders >> me & 1 && me < FAN && c.borders >> (me + 1) & 1;
    c.through = __ballot_sync(ALL_LANES, both && keys.at[from] == keys.at[from + span - 1]);
    return c;
}

/* Sums a node's children and finishes the runs that end in it. All lanes of a warp call this. */
static __device__ __forceinline__ void sum_children(const struct runs &r, const struct keys &keys,
                                                    int level, int64_t node,
                                                    const struct children &c, unsigned me) {
    const int64_t span = (int64_t)r.tree.chunk << level * FAN_BITS, first = node * FAN;
    /* Lane k knows the run that ends in child k. One that began before the node ends in the first child that is not
     * through. */
    const unsigned all = c.borders & ~c.through & ((1u << FAN) - 1u),
                   ends = c.borders & 1 ? all & (all - 1) : all;
    float *finished = NULL;
    if (ends >> me & 1) {
        finished = part_of_run(r, level, first + me, 0);
        if (r.compact.grad) finished = compact_row(r.compact, (uint32_t)((first + me) * span));
    }
    for (int column = (int)me * LANE_COLUMNS; column - (int)me * LANE_COLUMNS < r.stride;
         column += (int)WARP * LANE_COLUMNS) {
        const bool mine = column < r.stride;
        struct quad sum = {};
        bool open = c.borders & 1; /* the run began before the node */
        for (int k = 0; k < FAN; k++) {
            const bool comes = c.borders >> k & 1, goes = c.borders >> (k + 1) & 1,
                       through = c.through >> k & 1;
            const float *head = part_of_run(r, level, first + k, 0) + column;
            float *to = (float *)(uintptr_t)__shfl_sync(ALL_LANES,
                                                        (unsigned long long)(uintptr_t)finished, k);
            if (comes) {
                if (mine) sum = quad_sum(sum, *(const struct quad *)head);
                if (!through && open) { /* the run ends in this child */
                    if (mine) *(struct quad *)(part_of_run(r, level + 1, node, 0) + column) = sum;
                    open = false;
                } else if (!through) {
                    if (mine) *(struct quad *)(to + column) = sum;
                }
                if (!through) sum = {};
            }
            if (goes && !through && mine)
                sum = quad_sum(sum, *(const struct quad *)(head + r.stride));
        }
        if (c.borders >> FAN & 1 && mine)
            *(struct quad *)(part_of_run(r, level + 1, node, open ? 0 : 1) + column) = sum;
    }
    if (finished && !r.compact.grad) {
        const uint32_t at = atomicAdd(r.listed, 1u);
        r.list_key[at] = keys.at[(first + me) * span];
        r.list_place[at] = (uint32_t)(2 * (r.tree.first[level] + first + me));
    }
}

/* True in the last of the warps that arrive. That warp sees all writes of the others. */
static __device__ __forceinline__ bool last_of(uint32_t *arrived, int expected, unsigned me) {
    bool last = false;
    __syncwarp(ALL_LANES);
    if (me == 0) {
        __threadfence();
        last = atomicAdd(arrived, 1u) + 1 == (unsigned)expected;
        if (last) __threadfence();
    }
    last = __shfl_sync(ALL_LANES, (int)last, 0, WARP);
    __syncwarp(ALL_LANES); /* what lane 0 acquired is there for all lanes */
    return last;
}

/* A warp for each node above the chunks. */
static __global__ void __launch_bounds__(TREE_BLOCK)
    sum_nodes(const __grid_constant__ struct runs r) {
    const unsigned me = threadIdx.x % WARP;
    const struct keys keys = keys_of(r);
    int64_t node = (int64_t)blockIdx.x * (TREE_BLOCK / (int)WARP) + threadIdx.x / WARP;
    if (node >= r.tree.count[1]) return;
    struct children c = children_at(r, keys, 0, node, me);
    for (int level = 0; c.borders; level++) {
        sum_children(r, keys, level, node, c, me);
        const bool crossed = c.borders & (1u | 1u << FAN);
        if (!crossed || level + 2 >= r.tree.levels) return;
        node /= FAN;
        c = children_at(r, keys, level + 1, node, me);
        uint32_t *arrived = r.arrived + r.tree.first[level + 2] - r.tree.count[0] + node;
        if (!last_of(arrived, __popc((c.borders | c.borders >> 1) & ((1u << FAN) - 1u)), me))
            return;
    }
}

void tree_enqueue(const struct runs *r, cudaStream_t stream) {
    LAUNCH(sum_nodes, blocks_for(r->tree.count[1], TREE_BLOCK / (int)WARP), TREE_BLOCK, 0, stream,
           *r);
}
