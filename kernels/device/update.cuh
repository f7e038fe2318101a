/* SPDX-License-Identifier: MIT
 *
 * The update of a batch of rows by a rule: the last BATCH rows of a warp's stack (lean.cuh). Each group takes ROWS of
 * them. All loads of a batch are in flight at once. The lanes of a group fold the sums over ROWS rows together, so that
 * each lane ends with those of one row, and one root and one division serve all rows of the warp. Columns behind a
 * row's dim are never stored.
 */
#pragma once

#include "kernels/device/fold.cuh"
#include "kernels/device/lean.cuh"

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

/* Takes the step of row r in registers: the states and, if the rule has no sums after the step, the weights. */
template <enum rule_kind RULE, class L>
static __device__ __forceinline__ void step_row(const struct lean_table<L::rule::states> &t,
                                                struct pair rate, struct batch_rows<L> *x, int r) {
#pragma unroll
    for (int j = 0; j < L::QUADS; j++)
#pragma unroll
        for (int c = 0; c < LANE_COLUMNS; c++) {
            struct element e = element_of<RULE>(t, rate, *x, r, j, c);
            e.s = rule_states(RULE, e);
            for (int k = 0; k < L::rule::states; k++) x->s[r][j][k].x[c] = e.s.x[k];
            if (!L::rule::after) x->w[r][j].x[c] = rule_weight(RULE, e, 1);
        }
}

/* The weights of row r, after the sums that give the scale. */
template <enum rule_kind RULE, class L>
static __device__ __forceinline__ void step_weights(const struct lean_table<L::rule::states> &t,
                                                    struct pair rate, struct batch_rows<L> *x,
                                                    int r, float scale) {
#pragma unroll
    for (int j = 0; j < L::QUADS; j++)
#pragma unroll
        for (int c = 0; c < LANE_COLUMNS; c++)
            x->w[r][j].x[c] = rule_weight(RULE, element_of<RULE>(t, rate, *x, r, j, c), scale);
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
        step_row<RULE>(t, rate[r], &x, r);
    }
    if constexpr (L::rule::after > 0) {
        sum = sums_over<RULE, L, true>(t, rate, x, sums, p.lane);
        const float my_scale = rule_scale_of(RULE, {t.param, t.derived, my_rate, sum, t.dim});
#pragma unroll
        for (int r = 0; r < L::ROWS; r++) {
            const float scale = __shfl_sync(ALL_LANES, my_scale, r * L::EACH, L::LANES);
            step_weights<RULE>(t, rate[r], &x, r, scale);
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
