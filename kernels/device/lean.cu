/* SPDX-License-Identifier: MIT
 *
 * The lean kernels of one rule, LEAN_RULE: sums of runs that update their rows at once, and updates of rows from a
 * list. And the rule's general kernels.
 */
#include "kernels/device/general.cuh"
#include "kernels/device/lean_sum.cuh"

#define PASTE(a, b) a##b
#define JOIN(a, b)  PASTE(a, b)
#define THE_RULE    JOIN(RULE_, LEAN_RULE)

/* --- rows of a list */

/* A warp takes r.each rows, and those of one table after another. */
template <enum rule_kind KIND, class L>
static __device__ __forceinline__ void update_listed(const struct row_list &r) {
    const unsigned warp = threadIdx.x / WARP, me = threadIdx.x % WARP;
    const struct place_of_lane p = place_of_me<L>(me);
    struct stack s = stack_here<L>();
    const uint32_t number = (blockIdx.x * LEAN_WARPS + warp) * r.each + me;
    const struct listed_row mine = listed_at(r, number, me < r.each);
    for (unsigned left = __ballot_sync(ALL_LANES, mine.there); left;) {
        const int32_t table = __shfl_sync(ALL_LANES, mine.table, __ffs((int)left) - 1);
        const unsigned rows = left & __ballot_sync(ALL_LANES, mine.table == table);
        const int32_t dim = r.target.tables[table].dim;
        table_put<L>(r.target, {0, table}, s);
        clear_idle_columns<L>(s.at, dim);
        for (unsigned each = rows; each; each &= each - 1) {
            const int of = __ffs((int)each) - 1;
            const char *row = (const char *)(uintptr_t)__shfl_sync(
                ALL_LANES, (unsigned long long)(uintptr_t)mine.sum, of);
            if (me == (unsigned)of) shared_put(s.at + L::ROWS_AT + 4 * s.top, mine.row);
            if ((unsigned)s.top % L::GROUPS == p.group)
#pragma unroll
                for (int j = 0; j < L::QUADS; j++)
                    if (quad_column<L>(p.lane, j) < dim)
                        shared_put(s.at + s.top * L::BYTES + (j * L::LANES + p.lane) * 16,
                                   *(const struct quad *)(row + (j * L::LANES + p.lane) * 16));
            if (++s.top == L::BATCH || !(each & (each - 1))) update_rest<KIND, L>(r.target, &s, me);
        }
        left &= ~rows;
    }
}

/* --- the kernels */

/* Blocks of an SM: what leaves registers for the rows of a batch. */
template <class L> static constexpr int lean_blocks() {
    if (!L::PLAIN) return 3;
    const bool sums = L::rule::before || L::rule::after, wide = L::QUADS > 1 || L::ROW_QUADS > 4;
    if (wide || (L::ROW_QUADS > 3 && (sums || L::rule::rates > 1))) return 4;
    return sums || L::ROW_QUADS > 3 ? 5 : 6;
}

template <int LANES, int QUADS, bool PLAIN>
using lean_of_rule = lean<THE_RULE, LANES, QUADS, PLAIN>;

template <int LANES, int QUADS, bool PLAIN>
static __global__ void __launch_bounds__(LEAN_BLOCK,
                                         (lean_blocks<lean_of_rule<LANES, QUADS, PLAIN>>()))
    sum_rows(const __grid_constant__ struct runs r) {
    sum_chunks<THE_RULE, lean_of_rule<LANES, QUADS, PLAIN>>(r);
}

template <int LANES, int QUADS, bool PLAIN>
static __global__ void __launch_bounds__(LEAN_BLOCK,
                                         (lean_blocks<lean_of_rule<LANES, QUADS, PLAIN>>()))
    update_rows(const __grid_constant__ struct row_list r) {
    update_listed<THE_RULE, lean_of_rule<LANES, QUADS, PLAIN>>(r);
}

template <int LANES, int QUADS, bool PLAIN>
static void enqueue_sum(const struct runs *r, cudaStream_t stream) {
    auto kernel = sum_rows<LANES, QUADS, PLAIN>;
    LAUNCH(kernel, blocks_for(r->tree.count[0], LEAN_BLOCK / LANES), LEAN_BLOCK, 0, stream, *r);
}

/* Few rows are spread over many warps. Many are taken up to 32 at a time, so that those of a table meet. */
template <int LANES, int QUADS, bool PLAIN>
static void enqueue_update(const struct row_list *list, int64_t most, cudaStream_t stream) {
    enum { BATCH = lean_of_rule<LANES, QUADS, PLAIN>::BATCH, WARPS = WARPS_ENOUGH / 4 };
    auto kernel = update_rows<LANES, QUADS, PLAIN>;
    struct row_list of = *list;
    of.each = (uint32_t)min64(WARP, max64(BATCH, most / WARPS));
    LAUNCH(kernel, blocks_for(most, (int64_t)of.each * LEAN_WARPS), LEAN_BLOCK, 0, stream, of);
}

static __global__ void __launch_bounds__(LEAN_BLOCK, 4)
    sum_rows_of_any_kind(const __grid_constant__ struct runs r) {
    sum_chunk_in_memory<THE_RULE>(r);
}

static __global__ void __launch_bounds__(LEAN_BLOCK, 4)
    update_rows_of_any_kind(const __grid_constant__ struct row_list r) {
    update_listed_in_memory<THE_RULE>(r);
}

static void enqueue_sum_general(const struct runs *r, cudaStream_t stream) {
    LAUNCH(sum_rows_of_any_kind, blocks_for(r->tree.count[0], LEAN_WARPS), LEAN_BLOCK, 0, stream,
           *r);
}

static void enqueue_update_general(const struct row_list *list, int64_t most, cudaStream_t stream) {
    LAUNCH(update_rows_of_any_kind, blocks_for(most, LEAN_WARPS), LEAN_BLOCK, 0, stream, *list);
}

#define OF_PLAIN(what, lanes, quads)                                                               \
    { what<lanes, quads, false>, what<lanes, quads, true> }
#define OF_COVERS(what)                                                                            \
    {                                                                                              \
        OF_PLAIN(what, 4, 1), OF_PLAIN(what, 8, 1), OF_PLAIN(what, 16, 1), OF_PLAIN(what, 32, 1),  \
            OF_PLAIN(what, 32, 2)                                                                  \
    }

extern const struct rule_kernels JOIN(rule_kernels_, LEAN_RULE);
const struct rule_kernels JOIN(rule_kernels_, LEAN_RULE) = {
    OF_COVERS(enqueue_sum), OF_COVERS(enqueue_update), enqueue_sum_general, enqueue_update_general};
