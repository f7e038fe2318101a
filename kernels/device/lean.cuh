/* SPDX-License-Identifier: MIT
 *
 * A warp of a lean kernel: GROUPS groups of LANES lanes, and in shared memory a stack of summed gradients with the
 * numbers of their rows, and the table of these rows. Columns behind a row's dim are 0 in the stack.
 */
#pragma once

#include "kernels/device/access.cuh"
#include "kernels/device/lean.h"

template <enum rule_kind RULE> struct rule_constants;
#define X(rule, ...)                                                                               \
    template <> struct rule_constants<RULE_##rule> {                                               \
        static constexpr int states = rule##_info.elem_states,                                     \
                             row_states = rule##_info.row_states,                                  \
                             before = rule##_info.sums_before, after = rule##_info.sums_after,     \
                             rates = rule##_info.rates;                                            \
        static constexpr bool before_of_g = rule##_info.before_of_g;                               \
    };
RULES(X)
#undef X

/* A table in shared memory, so that it takes registers only while a batch of rows is updated. */
enum {
    TABLE_WEIGHT_QUAD,
    TABLE_ROW_QUAD,
    TABLE_ELEM_QUAD,
    TABLE_PARAM_QUAD = 5,
    TABLE_DERIVED_QUAD = 7,
    TABLE_QUADS
};

/* How a warp is organized for a kind of tables. */
template <enum rule_kind RULE, int LANES_, int QUADS_, bool PLAIN_> struct lean {
    using rule = rule_constants<RULE>;
    static constexpr bool PLAIN = PLAIN_;
    static constexpr int LANES = LANES_, QUADS = QUADS_, GROUPS = (int)WARP / LANES;
    static constexpr int BYTES = 16 * LANES * QUADS; /* of a row of the stack */
    /* Quads of a row, its states and its gradient: at most 8 of a lane for all rows of a batch, or one row. */
    static constexpr int ROW_QUADS = (2 + rule::states) * QUADS;
    static constexpr int ROWS = ROW_QUADS <= 2 ? 4 : ROW_QUADS <= 4 ? 2 : 1;
    static constexpr int BATCH = ROWS * GROUPS, EACH = LANES / ROWS; /* lanes that fold a row */
    /* Gradient rows in flight for each group, and the room for their sums. */
    static constexpr int WINDOW = QUADS > 1 ? FLIGHT / 2 : LANES < FLIGHT ? LANES : (int)FLIGHT;
    static constexpr int SLOTS = (WINDOW * GROUPS + BATCH + 3) / 4 * 4;
    /* The shared memory of a warp: a stack of summed gradients, their row numbers, the table, what a
     * group seldom needs to know of its chunk, and of each lane's entry: value, coefficient, row number. */
    static constexpr int ROWS_AT = SLOTS * BYTES, TABLE_AT = ROWS_AT + SLOTS * 4,
                         CHUNKS_AT = TABLE_AT + TABLE_QUADS * 16, TILE_AT = CHUNKS_AT + GROUPS * 16,
                         MEMORY = TILE_AT + 3 * WARP * 4;
};

/* The part of a lane in its warp. */
struct place_of_lane {
    unsigned lane, group; /* number of the lane in its group, and of the group in the warp */
};

/* The place of a lane of the warp. With `again` nvcc computes what depends on it anew, and keeps nothing of it in
 * registers from an earlier use. */
template <class L>
static __device__ __forceinline__ struct place_of_lane place_of_me(unsigned me,
                                                                   bool again = false) {
#if defined(__CUDA_ARCH__)
    if (again) asm volatile("" : "+r"(me));
#else
    (void)again;
#endif
    return {me % L::LANES, me / L::LANES};
}

/* The warp's stack. */
struct stack {
    shared_address at; /* MEMORY bytes */
    int top;
};

template <class L> static __device__ __forceinline__ struct stack stack_here() {
    SHARED(struct quad, memory, (LEAN_WARPS * L::MEMORY / 16));
    return {shared_address_of(memory + threadIdx.x / WARP * (L::MEMORY / 16)), 0};
}

/* An array of a table: its first row. */
struct lean_array {
    char *data;
    uint32_t stride;       /* in bytes; in quads if the array is plain */
    uint32_t dim_or_table; /* of weights the row's dim, of row states the table's number */
};

/* A table for an update. Fields that a rule does not use cost nothing. */
template <int STATES> struct lean_table {
    struct lean_array weight, row, elem[STATES ? STATES : 1];
    int32_t dim;
    float param[RULE_PARAMS], derived[RULE_DERIVED];
    /* In global memory. */
    const struct table_shape *shape;
    const struct rule_step *step;
};

/* The column of a lane's quad j. */
template <class L> static __device__ __forceinline__ int quad_column(unsigned lane, int j) {
    return (j * L::LANES + (int)lane) * (int)LANE_COLUMNS;
}

/* --- the table of the stack */

static __device__ __forceinline__ struct lean_array shared_array_at(shared_address table, int quad,
                                                                    int token) {
    const uint4 q = shared_words(table + quad * 16, token);
    return {(char *)((uintptr_t)q.y << 32 | q.x), q.z, q.w};
}

/* Puts a table there. All lanes call this: each puts a quad. */
template <class L>
static __device__ __forceinline__ void table_put(const struct target &to, struct placed_table at,
                                                 const struct stack &s) {
    const int32_t table = at.table;
    const struct table *io = &to.io[table];
    const struct rule_step *step = &to.steps[table];
    const auto put = [&](int quad, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
        shared_put(
            s.at + L::TABLE_AT + quad * 16,
            quad_of(make_float4(bits_float(a), bits_float(b), bits_float(c), bits_float(d))));
    };
    const auto put_array = [&](int quad, const struct array &a, uint32_t dim_or_table) {
        put(quad, (uint32_t)(uintptr_t)a.data, (uint32_t)((uintptr_t)a.data >> 32),
            (uint32_t)a.stride / (L::PLAIN ? 16 : 1), dim_or_table);
    };
    __syncwarp(ALL_LANES);
    if (threadIdx.x % WARP == 0) {
        put_array(TABLE_WEIGHT_QUAD, io->weight, (uint32_t)to.tables[table].dim);
        put_array(TABLE_ROW_QUAD, io->row, (uint32_t)table);
        for (int k = 0; k < L::rule::states; k++) put_array(TABLE_ELEM_QUAD + k, io->elem[k], 0);
        const float *p = step->rule.param, *d = step->derived;
        for (int k = 0; k < RULE_PARAMS; k += 4)
            shared_put(s.at + L::TABLE_AT + (TABLE_PARAM_QUAD + k / 4) * 16,
                       {{p[k], p[k + 1], p[k + 2], p[k + 3]}});
        shared_put(s.at + L::TABLE_AT + TABLE_DERIVED_QUAD * 16,
                   {{d[0], d[1], d[2], bits_float((uint32_t)at.first)}});
    }
    __syncwarp(ALL_LANES);
}

static __device__ __forceinline__ int32_t dim_here(shared_address table, int token) {
    return (int32_t)shared_array_at(table, TABLE_WEIGHT_QUAD, token).dim_or_table;
}

/* The key of the table's first row. */
static __device__ __forceinline__ uint32_t first_here(shared_address table, int token) {
    return shared_words(table + TABLE_DERIVED_QUAD * 16, token).w;
}

/* The table for a lane. Lanes without columns have those of lane 0. */
template <class L>
static __device__ __forceinline__ struct lean_table<L::rule::states>
table_here(const struct target &to, const struct stack &s, unsigned lane) {
    struct lean_table<L::rule::states> t;
    t.weight = shared_array_at(s.at + L::TABLE_AT, TABLE_WEIGHT_QUAD, s.top);
    t.row = shared_array_at(s.at + L::TABLE_AT, TABLE_ROW_QUAD, s.top);
    t.dim = (int32_t)t.weight.dim_or_table;
    t.shape = &to.tables[t.row.dim_or_table];
    t.step = &to.steps[t.row.dim_or_table];
    const int own = quad_column<L>(lane, 0), column = own < t.dim ? own : 0;
    t.weight.data += column * (L::PLAIN ? 4 : (int)dtype_bytes(t.shape->weight_type));
    keep_sum(&t.weight.data);
    for (int k = 0; k < L::rule::states; k++) {
        t.elem[k] = shared_array_at(s.at + L::TABLE_AT, TABLE_ELEM_QUAD + k, s.top);
        t.elem[k].data +=
            column * (L::PLAIN ? 4 : (int)dtype_bytes(table_array_type(t.shape, TABLE_ELEM + k)));
        keep_sum(&t.elem[k].data);
    }
    for (int k = 0; k < RULE_PARAMS; k += 4) {
        const uint4 q = shared_words(s.at + L::TABLE_AT + (TABLE_PARAM_QUAD + k / 4) * 16, s.top);
        t.param[k] = bits_float(q.x), t.param[k + 1] = bits_float(q.y);
        t.param[k + 2] = bits_float(q.z), t.param[k + 3] = bits_float(q.w);
    }
    const uint4 q = shared_words(s.at + L::TABLE_AT + TABLE_DERIVED_QUAD * 16, s.top);
    t.derived[0] = bits_float(q.x), t.derived[1] = bits_float(q.y), t.derived[2] = bits_float(q.z);
    return t;
}

/* Clears the columns behind dim in the stack: no lane with columns writes there. */
template <class L>
static __device__ __forceinline__ void clear_idle_columns(shared_address sums, int32_t dim) {
    if (dim == L::BYTES / 4) return;
    for (int k = (int)threadIdx.x % WARP; k < L::ROWS_AT / 16; k += WARP)
        shared_put(sums + k * 16, quad{});
    __syncwarp(ALL_LANES);
}

/* Asks for the lines of a row of the table and of its states. */
template <class L>
static __device__ __forceinline__ void prefetch_row(const struct target &to, const struct stack &s,
                                                    uint32_t row) {
    enum { LINE = 128 };
    const struct lean_array w = shared_array_at(s.at + L::TABLE_AT, TABLE_WEIGHT_QUAD, (int)row),
                            r = shared_array_at(s.at + L::TABLE_AT, TABLE_ROW_QUAD, (int)row);
    const int dim = (int)w.dim_or_table,
              bytes =
                  dim * (L::PLAIN ? 4 : (int)dtype_bytes(to.tables[r.dim_or_table].weight_type));
    const uint64_t on = (uint64_t)row * w.stride * (L::PLAIN ? 16 : 1);
    const char *at = in_global(w.data + on);
#pragma unroll
    for (int k = 0; k < L::BYTES; k += LINE)
        if (k < bytes) prefetch_line(at + k);
    for (int n = 0; n < L::rule::states; n++) {
        const struct lean_array e =
            shared_array_at(s.at + L::TABLE_AT, TABLE_ELEM_QUAD + n, (int)row);
        const char *state = in_global(e.data + (L::PLAIN ? on : (uint64_t)row * e.stride));
#pragma unroll
        for (int k = 0; k < L::BYTES; k += LINE)
            if (k < dim * 4) prefetch_line(state + k);
    }
    if constexpr (L::rule::row_states > 0)
        prefetch_line(in_global((float *)r.data + (uint64_t)row * L::rule::row_states));
}
