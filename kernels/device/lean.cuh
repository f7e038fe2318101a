/* SPDX-License-Identifier: MIT
 *
 * The update of a batch of rows by a rule, as the lean kernels have it.
 *
 * A warp has GROUPS groups of LANES lanes, and a stack of summed gradients in shared memory with the numbers of their
 * rows. When BATCH of them wait, each group takes ROWS of them. All loads of a batch are in flight at once. The lanes of
 * a group fold the sums over ROWS rows together, so that each lane ends with those of one row, and one root and one
 * division serve all rows of the warp. Columns behind a row's dim are 0 in the stack, and are never stored.
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

/* What a kind of tables makes of a warp. */
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

/* Where a lane works. */
struct place_of_lane {
    unsigned lane, group; /* of the row; of the warp */
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

/* An array of a table: its first row. */
struct lean_array {
    char *data;
    uint32_t stride,
        also; /* bytes, or quads of a plain array; of the weights the row's dim, of the row's states the table */
};

/* A table for an update: what it does not use costs nothing. */
template <int STATES> struct lean_table {
    struct lean_array weight, row, elem[STATES ? STATES : 1];
    int32_t dim;
    float param[RULE_PARAMS], derived[RULE_DERIVED];
    /* In global memory. */
    const struct table_shape *shape;
    const struct rule_step *step;
};

/* --- arrays narrower than fp32 */

template <class L> static __device__ __forceinline__ int quad_column(unsigned lane, int j) {
    return (j * L::LANES + (int)lane) * (int)LANE_COLUMNS;
}

static __device__ __forceinline__ struct quad load_quad(enum dtype type, const char *at) {
    if (type == FP32) return *(const struct quad *)at;
    struct quad_bits bits = {};
    if (type == FP8) {
        bits.x[0] = *(const uint32_t *)at;
    } else {
        const uint2 two = *(const uint2 *)at;
        bits.x[0] = two.x, bits.x[1] = two.y;
    }
    return quad_widen(type, bits);
}

static __device__ __forceinline__ void store_quad(const struct row_format &f, char *at,
                                                  int32_t column, const struct quad &q) {
    struct quad_bits bits = {};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(f.type, &bits, c, row_format_bits(&f, column + c, q.x[c]));
    if (f.type == FP32)
        *(struct quad *)at = q;
    else if (f.type == FP8)
        *(uint32_t *)at = bits.x[0];
    else
        *(uint2 *)at = make_uint2(bits.x[0], bits.x[1]);
}

/* --- sums over the columns of a row, in the order of kernels/rules.h */

/* Adds this lane's columns over the EACH lanes of a row; all of them get the sum. */
template <int EACH>
static __device__ __forceinline__ float fold_quad(const struct quad &q, unsigned lane,
                                                  site at = here()) {
    struct quad x = q;
    if constexpr (EACH >= 4) {
        constexpr int half = EACH / 2, quarter = EACH / 4;
        const bool upper = lane & half, odd = lane & quarter;
        const auto add = [&](float keep, float give, int step) {
            return keep + __shfl_xor_sync(ALL_LANES, give, step, WARP, at);
        };
        const float even = add(upper ? x.x[2] : x.x[0], upper ? x.x[0] : x.x[2], half),
                    uneven = add(upper ? x.x[3] : x.x[1], upper ? x.x[1] : x.x[3], half);
        float sum = add(odd ? uneven : even, odd ? even : uneven, quarter);
#pragma unroll
        for (int step = quarter / 2; step > 0; step /= 2) sum = add(sum, sum, step);
        sum = add(sum, sum, half);
        return add(sum, sum, quarter);
    } else {
        if constexpr (EACH == 2)
            for (int c = 0; c < LANE_COLUMNS; c++)
                x.x[c] += __shfl_xor_sync(ALL_LANES, x.x[c], 1, WARP, at);
        return (x.x[0] + x.x[2]) + (x.x[1] + x.x[3]);
    }
}

/* Sums over the columns of the group's ROWS rows. Lane l gets the sum of row l / EACH: it takes ROWS quads of that row,
 * quad(k) beside those of the other lanes. */
template <class L, class Quad>
static __device__ __forceinline__ float fold_row(unsigned lane, const Quad &quad,
                                                 site at = here()) {
    struct quad part[L::ROWS];
#pragma unroll
    for (int k = 0; k < L::ROWS; k++) part[k] = quad(k);
#pragma unroll
    for (int half = L::ROWS / 2; half > 0; half /= 2)
#pragma unroll
        for (int k = 0; k < half; k++) part[k] = quad_sum(part[k], part[k + half]);
    return fold_quad<L::EACH>(part[0], lane, at);
}

/* This lane's place of a row in the stack, for fold_row(): quad k lies k * EACH quads on. sums: of the group's first
 * row. */
template <class L>
static __device__ __forceinline__ shared_address folded_at(shared_address sums, unsigned lane) {
    return sums + lane / L::EACH * L::BYTES + lane % L::EACH * 16;
}

/* The same for terms of this lane's columns, by way of their places in the stack, where they take those of the sums. */
template <class L>
static __device__ __forceinline__ float fold_terms(const struct quad (&term)[L::ROWS],
                                                   shared_address sums, unsigned lane,
                                                   bool has_columns, site at = here()) {
    __syncwarp(ALL_LANES, at);
#pragma unroll
    for (int r = 0; r < L::ROWS; r++)
        if (has_columns) shared_put(sums + r * L::BYTES + lane * 16, term[r]);
    __syncwarp(ALL_LANES, at);
    const shared_address mine = folded_at<L>(sums, lane);
    return fold_row<L>(
        lane, [&](int k) { return shared_quad(mine + k * L::EACH * 16); }, at);
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
    const auto put_array = [&](int quad, const struct array &a, uint32_t also) {
        put(quad, (uint32_t)(uintptr_t)a.data, (uint32_t)((uintptr_t)a.data >> 32),
            (uint32_t)a.stride / (L::PLAIN ? 16 : 1), also);
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
    return (int32_t)shared_array_at(table, TABLE_WEIGHT_QUAD, token).also;
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
    t.dim = (int32_t)t.weight.also;
    t.shape = &to.tables[t.row.also];
    t.step = &to.steps[t.row.also];
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

/* --- the update */

/* The rows of a batch in registers. */
template <class L> struct batch_rows {
    struct quad w[L::ROWS][L::QUADS], g[L::ROWS][L::QUADS],
        s[L::ROWS][L::QUADS][L::rule::states > 0 ? L::rule::states : 1];
};

template <enum rule_kind RULE, class L>
static __device__ __forceinline__ struct element
element_of(const struct lean_table<L::rule::states> &t, struct pair rate,
           const struct batch_rows<L> &x, int r, int j, int c) {
    struct states s = {};
    for (int k = 0; k < L::rule::states; k++) s.x[k] = x.s[r][j][k].x[c];
    return {t.param, t.derived, rate, x.w[r][j].x[c], x.g[r][j].x[c], s, s};
}

/* The sums over the rows before the step or after it, of this lane's row. */
template <enum rule_kind RULE, class L, bool AFTER>
static __device__ __forceinline__ struct pair
sums_over(const struct lean_table<L::rule::states> &t, const struct pair (&rate)[L::ROWS],
          const struct batch_rows<L> &x, shared_address sums, unsigned lane) {
    constexpr int COUNT = AFTER ? L::rule::after : L::rule::before;
    struct pair all = {0, 0};
#pragma unroll
    for (int which = 0; which < COUNT; which++) {
        struct quad term[L::ROWS];
#pragma unroll
        for (int r = 0; r < L::ROWS; r++)
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                float sum = 0;
#pragma unroll
                for (int j = 0; j < L::QUADS; j++) {
                    const struct element e = element_of<RULE>(t, rate[r], x, r, j, c);
                    const struct pair both = AFTER ? rule_after(RULE, e) : rule_before(RULE, e);
                    const float one = which ? both.b : both.a;
                    if (j == 0)
                        sum = one;
                    else if (quad_column<L>(lane, j) < t.dim)
                        sum += one;
                }
                term[r].x[c] = sum;
            }
        (which ? all.b : all.a) = fold_terms<L>(term, sums, lane, quad_column<L>(lane, 0) < t.dim);
    }
    return all;
}

/* The sum over this lane's row of what `before` makes of the gradient alone: from the stack. */
template <enum rule_kind RULE, class L>
static __device__ __forceinline__ struct pair
sum_of_gradient(const struct lean_table<L::rule::states> &t, shared_address sums, unsigned lane) {
    const shared_address mine = folded_at<L>(sums, lane);
    return {fold_row<L>(lane,
                        [&](int k) {
                            struct quad all = {};
#pragma unroll
                            for (int j = 0; j < L::QUADS; j++) {
                                const struct quad g =
                                    shared_quad(mine + (k * L::EACH + j * L::LANES) * 16);
#pragma unroll
                                for (int c = 0; c < LANE_COLUMNS; c++) {
                                    const struct element e = {t.param, t.derived, {}, 0,
                                                              g.x[c],  {},        {}};
                                    const float one = rule_before(RULE, e).a;
                                    all.x[c] = j ? all.x[c] + one : one;
                                }
                            }
                            return all;
                        }),
            0};
}

/* adjust_row() for the group's rows of a batch: in registers. */
template <class L>
static __device__ __forceinline__ void adjust_rows(const struct adjustment &a,
                                                   struct batch_rows<L> *x, shared_address sums,
                                                   unsigned lane, int32_t dim) {
    float factor[L::ROWS];
    if (a.gradient) {
        for (int r = 0; r < L::ROWS; r++)
            for (int j = 0; j < L::QUADS; j++)
                for (int c = 0; c < LANE_COLUMNS; c++)
                    x->g[r][j].x[c] = adjust_clip(&a, x->g[r][j].x[c]);
        for (int r = 0; r < L::ROWS; r++) factor[r] = 1;
        if (a.clip_norm > 0) {
            struct quad square[L::ROWS];
            for (int r = 0; r < L::ROWS; r++)
                for (int c = 0; c < LANE_COLUMNS; c++) {
                    square[r].x[c] = x->g[r][0].x[c] * x->g[r][0].x[c];
                    for (int j = 1; j < L::QUADS; j++)
                        if (quad_column<L>(lane, j) < dim)
                            square[r].x[c] += x->g[r][j].x[c] * x->g[r][j].x[c];
                }
            const float mine =
                adjust_norm(&a, fold_terms<L>(square, sums, lane, quad_column<L>(lane, 0) < dim));
            for (int r = 0; r < L::ROWS; r++)
                factor[r] = __shfl_sync(ALL_LANES, mine, r * L::EACH, L::LANES);
        }
        for (int r = 0; r < L::ROWS; r++)
            for (int j = 0; j < L::QUADS; j++)
                for (int c = 0; c < LANE_COLUMNS; c++)
                    x->g[r][j].x[c] = adjust_decay(&a, x->g[r][j].x[c], factor[r], x->w[r][j].x[c]);
    }
    for (int r = 0; r < L::ROWS; r++)
        for (int j = 0; j < L::QUADS; j++)
            for (int c = 0; c < LANE_COLUMNS; c++) x->w[r][j].x[c] = a.keep * x->w[r][j].x[c];
}

/* The rows of a batch, in memory. */
template <class L> struct batch_place {
    char *w[L::ROWS], *s[L::ROWS][L::rule::states > 0 ? L::rule::states : 1];
    uint32_t number[L::ROWS]; /* of a plain row: its first quad's */
};

template <class L>
static __device__ __forceinline__ void load_rows(const struct lean_table<L::rule::states> &t,
                                                 const struct batch_place<L> &at,
                                                 struct batch_rows<L> *x, unsigned lane, int rows) {
#pragma unroll
    for (int r = 0; r < L::ROWS; r++)
#pragma unroll
        for (int j = 0; j < L::QUADS; j++) {
            const bool there = r < rows && (j == 0 || quad_column<L>(lane, j) < t.dim);
            if constexpr (L::PLAIN) {
                constexpr int next = 16 * L::LANES;
                x->w[r][j] = x->g[r][j] = {};
                if (there) x->w[r][j] = *(const struct quad *)(at.w[r] + j * next);
                for (int k = 0; k < L::rule::states; k++) {
                    x->s[r][j][k] = {};
                    if (there) x->s[r][j][k] = *(const struct quad *)(at.s[r][k] + j * next);
                }
            } else {
                x->w[r][j] = x->g[r][j] = {};
                const enum dtype type = t.shape->weight_type;
                const int next = 4 * L::LANES;
                if (there) x->w[r][j] = load_quad(type, at.w[r] + j * next * dtype_bytes(type));
                for (int k = 0; k < L::rule::states; k++) {
                    const enum dtype of = table_array_type(t.shape, TABLE_ELEM + k);
                    x->s[r][j][k] = {};
                    if (there)
                        x->s[r][j][k] = load_quad(of, at.s[r][k] + j * next * dtype_bytes(of));
                }
            }
        }
}

template <class L>
static __device__ __forceinline__ void
store_row(const struct lean_table<L::rule::states> &t, const struct batch_place<L> &at,
          const struct batch_rows<L> &x, unsigned lane, int r) {
#pragma unroll
    for (int j = 0; j < L::QUADS; j++) {
        const int32_t column = quad_column<L>(lane, j);
        if (column >= t.dim) continue;
        if constexpr (L::PLAIN) {
            constexpr int next = 16 * L::LANES;
            *(struct quad *)(at.w[r] + j * next) = x.w[r][j];
            for (int k = 0; k < L::rule::states; k++)
                *(struct quad *)(at.s[r][k] + j * next) = x.s[r][j][k];
        } else {
            const int next = 4 * L::LANES;
            const struct row_format f =
                row_format(t.shape, t.step->number, TABLE_WEIGHT, at.number[r]);
            store_quad(f, at.w[r] + j * next * dtype_bytes(f.type), column, x.w[r][j]);
            for (int k = 0; k < L::rule::states; k++) {
                const struct row_format s =
                    row_format(t.shape, t.step->number, TABLE_ELEM + k, at.number[r]);
                store_quad(s, at.s[r][k] + j * next * dtype_bytes(s.type), column, x.s[r][j][k]);
            }
        }
    }
}

/* Applies the rule to the last BATCH rows of the stack, or to fewer if FULL is false. All lanes call this, after a
 * barrier of the warp behind what they put. The rows stay in the stack, but not their sums. */
template <enum rule_kind RULE, class L, bool FULL>
static __device__ __forceinline__ void update_batch(const struct target &to, const struct stack &s,
                                                    unsigned me) {
    const struct place_of_lane p = place_of_me<L>(me, true);
    constexpr int STATES = L::rule::states, OF_ROW = L::rule::row_states;
    constexpr bool RATES = L::rule::before || OF_ROW;
    const int first = (FULL || s.top > L::BATCH ? s.top - L::BATCH : 0) + (int)p.group * L::ROWS;
    const struct lean_table<STATES> t = table_here<L>(to, s, p.lane);
    const int mine = first + (int)(p.lane / L::EACH); /* the row whose rate this lane computes */
    const uint32_t my_row = shared_word(s.at + L::ROWS_AT + 4 * (FULL || mine < s.top ? mine : 0));
    const bool keeps = (FULL || mine < s.top) && p.lane % L::EACH == 0; /* the row's own state */
    const shared_address sums = s.at + first * L::BYTES;
    float state[RULE_ROW_STATES] = {}, *of_row = NULL;
    if constexpr (OF_ROW > 0) {
        of_row = in_global((float *)t.row.data + (uint64_t)my_row * OF_ROW);
        if (keeps)
            for (int k = 0; k < OF_ROW; k++) state[k] = of_row[k];
    }
    struct batch_place<L> at;
    struct batch_rows<L> x;
    const uint32_t my_quads = L::PLAIN ? my_row * t.weight.stride : my_row;
#pragma unroll
    for (int r = 0; r < L::ROWS; r++) {
        at.number[r] = __shfl_sync(ALL_LANES, my_quads, r * L::EACH, L::LANES);
        const auto row = [&](const struct lean_array &a) {
            return in_global(a.data + (uint64_t)at.number[r] * (L::PLAIN ? 16 : a.stride));
        };
        at.w[r] = row(t.weight);
        for (int k = 0; k < STATES; k++) at.s[r][k] = row(t.elem[k]);
    }
    /* Another group may be storing the row that stands for one that is not there. */
    load_rows(t, at, &x, p.lane, FULL ? L::ROWS : s.top - first);
    const auto load_gradients = [&] {
#pragma unroll
        for (int r = 0; r < L::ROWS; r++)
#pragma unroll
            for (int j = 0; j < L::QUADS; j++)
                x.g[r][j] = shared_quad(sums + r * L::BYTES + (j * L::LANES + p.lane) * 16);
    };
    constexpr bool OF_G = L::PLAIN && L::rule::before == 1 && L::rule::before_of_g;
    if constexpr (!OF_G) load_gradients();
    if constexpr (!L::PLAIN) adjust_rows(t.step->adjust, &x, sums, p.lane, t.dim);
    struct pair rate[L::ROWS] = {}, my_rate, sum = {};
    if constexpr (OF_G)
        sum = sum_of_gradient<RULE, L>(t, sums, p.lane);
    else if constexpr (L::rule::before > 0)
        sum = sums_over<RULE, L, false>(t, rate, x, sums, p.lane);
    my_rate = rule_row_of(RULE, {t.param, t.derived, {0, 0}, sum, t.dim}, OF_ROW ? state : NULL);
    if constexpr (OF_ROW > 0)
        if (keeps)
            for (int k = 0; k < OF_ROW; k++) of_row[k] = state[k];
    if constexpr (OF_G) load_gradients();
#pragma unroll
    for (int r = 0; r < L::ROWS; r++) {
        rate[r] = my_rate;
        if constexpr (RATES) {
            rate[r].a = __shfl_sync(ALL_LANES, my_rate.a, r * L::EACH, L::LANES);
            if constexpr (L::rule::rates > 1)
                rate[r].b = __shfl_sync(ALL_LANES, my_rate.b, r * L::EACH, L::LANES);
        }
#pragma unroll
        for (int j = 0; j < L::QUADS; j++)
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                struct element e = element_of<RULE>(t, rate[r], x, r, j, c);
                e.s = rule_states(RULE, e);
                for (int k = 0; k < STATES; k++) x.s[r][j][k].x[c] = e.s.x[k];
                if (!L::rule::after) x.w[r][j].x[c] = rule_weight(RULE, e, 1);
            }
    }
    if constexpr (L::rule::after > 0) {
        sum = sums_over<RULE, L, true>(t, rate, x, sums, p.lane);
        const float my_scale = rule_scale_of(RULE, {t.param, t.derived, my_rate, sum, t.dim});
#pragma unroll
        for (int r = 0; r < L::ROWS; r++) {
            const float scale = __shfl_sync(ALL_LANES, my_scale, r * L::EACH, L::LANES);
#pragma unroll
            for (int j = 0; j < L::QUADS; j++)
#pragma unroll
                for (int c = 0; c < LANE_COLUMNS; c++)
                    x.w[r][j].x[c] =
                        rule_weight(RULE, element_of<RULE>(t, rate[r], x, r, j, c), scale);
        }
    }
#pragma unroll
    for (int r = 0; r < L::ROWS; r++)
        if (FULL || first + r < s.top) store_row(t, at, x, p.lane, r);
}

/* Updates all rows of the stack. */
template <enum rule_kind RULE, class L>
static __device__ __forceinline__ void update_rest(const struct target &to, struct stack *s,
                                                   unsigned me) {
    __syncwarp(ALL_LANES);
    if (s->top > 0) update_batch<RULE, L, false>(to, *s, me);
    __syncwarp(ALL_LANES);
    s->top = 0;
}
