/* SPDX-License-Identifier: MIT */
#include "kernels/device/sums.cuh"

template <int TILES, bool UPDATES>
static __global__ void __launch_bounds__(BLOCK_OF<TILES>, blocks_at_once(TILES))
    sum_runs(const __grid_constant__ struct runs r, int count) {
    sum_tree<TILES, UPDATES ? ANY_RULE : NO_RULE, loaded_rows<TILES>>(r, count);
}

/* Rules with a kernel of their own, for the usual case: all tables have this rule, tables and gradients are fp32, rows
 * whole, aligned and of up to 128 columns. Each costs 20 s of compiling for three architectures. */
#define RULES_ALONE(X) X(sgd) X(adagrad) X(rowwise_adagrad) X(adam)

/* One block of an SM more than sum_runs has. */
#define X(rule)                                                                                    \
    static __global__ void __launch_bounds__(SMALL_BLOCK, blocks_at_once(1) + 1)                   \
        sum_runs_##rule(const __grid_constant__ struct runs r, int count) {                        \
        sum_tree<1, RULE_##rule, loaded_rows<1, ROWS_FP32>>(r, count);                             \
    }
RULES_ALONE(X)
#undef X

static enum gradient_rows rows_of(const struct runs *r, const struct batch *in) {
    const int whole = LANE_COLUMNS * dtype_bytes(r->type);
    if (r->winners || !rows_are_whole(r, in, whole)) return ROWS_ANY;
    return r->type == FP32 ? ROWS_FP32 : ROWS_16BIT;
}

/* The rule of all tables, if all their arrays are fp32; otherwise ANY_RULE. */
static int rule_of_all(const struct batch *in) {
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *s = &in->tables[t];
        if (s->rule != in->tables[0].rule || table_is_narrow(s)) return ANY_RULE;
    }
    return in->tables[0].rule;
}

typedef void sum_runs_fn(struct runs, int);

static sum_runs_fn *updating_kernel(const struct batch *in, int tiles, enum gradient_rows rows) {
    if (tiles == 1 && rows == ROWS_FP32) switch (rule_of_all(in)) {
#define X(rule)                                                                                    \
    case RULE_##rule: return sum_runs_##rule;
            RULES_ALONE(X)
#undef X
        }
    return OF_TILES(sum_runs, tiles, true);
}

static cudaError_t enqueue(const struct runs *x, const struct batch *in, bool updates,
                           cudaStream_t stream) {
    struct runs r = *x;
    const struct cover c = cover_of(r.dim);
    if (r.entries.count == 0) return cudaSuccess;
    r.rows = rows_of(&r, in);
    sum_runs_fn *sum =
        updates ? updating_kernel(in, c.tiles, r.rows) : OF_TILES(sum_runs, c.tiles, false);
    LAUNCH(sum, blocks_for(r.tree.count[0], groups_of_block(c.count)), block_of_lanes(c.count), 0,
           stream, r, c.count);
    return cudaGetLastError();
}

cudaError_t runs_update(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue(r, in, true, stream);
}

cudaError_t runs_reduce(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    return enqueue(r, in, false, stream);
}
