/* SPDX-License-Identifier: MIT
 *
 * A group of lanes applies a table's rule to a row whose gradients are summed.
 */
#pragma once

#include "kernels/device/row.cuh"

/* Prefetches weights and element states of a row, but not its row states. */
static __device__ inline void table_prefetch(const struct table *io, int64_t row) {
    row_prefetch(array_row(&io->weight, row), io->weight.stride);
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        if (io->elem[k].data) row_prefetch(array_row(&io->elem[k], row), io->elem[k].stride);
}

/* The sums over a row. A group adds to them tile by tile, in the order of kernels/rules.h: lane l
 * of the first warp has the columns 4l .. 4l+3 modulo ROW_LANES. */
struct row_sums {
    struct quad a, b;
};

static_assert(ROW_LANES == WARP * LANE_COLUMNS, "a warp has a lane's columns of a row's sums");

/* The whole group calls this for every tile, in order. several_warps: the group may be so large. */
static __device__ __forceinline__ void row_sums_add(const struct lanes &g, const bool several_warps,
                                                    struct row_sums *x, struct quad a,
                                                    struct quad b, site at = here()) {
    if (!several_warps || g.count <= WARP) {
        x->a = quad_sum(x->a, a);
        x->b = quad_sum(x->b, b);
        return;
    }
    SHARED(struct row_sums, part, LARGEST_BLOCK);
    part[g.lane].a = a;
    part[g.lane].b = b;
    block_sync(at);
    for (int w = 0; w < g.count / WARP && g.lane < WARP; w++) {
        x->a = quad_sum(x->a, part[w * WARP + g.lane].a);
        x->b = quad_sum(x->b, part[w * WARP + g.lane].b);
    }
    block_sync(at);
}

/* Gives `give` to the team's lane at distance `step`; returns `keep` plus what that lane gave. */
static __device__ inline float lane_add(const struct lanes &g, float keep, float give, int step,
                                        site at) {
    return keep + __shfl_xor_sync(g.mask, give, step, g.team, at);
}

/* Folds a sum over the team's lanes. In the first two steps a lane gives two columns, then one, to
 * another lane; then each lane holds one column. The next steps fold each column over its lanes.
 * The last two steps add columns 2 apart and 1 apart, also between lanes. */
static __device__ inline float quad_fold(const struct lanes &g, const struct quad &q,
                                         site at = here()) {
    const int half = g.team / 2, quarter = g.team / 4;
    const bool upper = g.me & half, odd = g.me & quarter;
    const float x0 = q.x[0], x1 = q.x[1], x2 = q.x[2], x3 = q.x[3];
    const float even_column = lane_add(g, upper ? x2 : x0, upper ? x0 : x2, half, at);
    const float odd_column = lane_add(g, upper ? x3 : x1, upper ? x1 : x3, half, at);
    float sum =
        lane_add(g, odd ? odd_column : even_column, odd ? even_column : odd_column, quarter, at);
    for (int step = quarter / 2; step > 0; step /= 2) sum = lane_add(g, sum, sum, step, at);
    sum = lane_add(g, sum, sum, half, at);
    return lane_add(g, sum, sum, quarter, at);
}

/* Folds the rule's sums (1 or 2) into lane 0. */
static __device__ inline struct pair row_sums_fold(const struct lanes &g, const struct row_sums &x,
                                                   const int sums, site at = here()) {
    return {quad_fold(g, x.a, at), sums > 1 ? quad_fold(g, x.b, at) : 0};
}

/* A row in memory, in a step of its table. */
struct row_place {
    const struct table *io;
    const struct table_shape *shape;
    int64_t row, step;
    int32_t dim;
    enum dtype weight_type;
    unsigned bf16_states; /* bit k: elem[k] is bf16, not fp32 */
};

/* Four elements of an array of a type narrower than fp32 are loaded and stored by calls: otherwise every
 * update would contain the conversions for each of its arrays. Arguments are few and in registers. */
static __device__ __attribute__((noinline)) float4 load_narrow(enum dtype type, const void *row,
                                                               int32_t column, int32_t dim) {
    return float4_of(quad_load_as(type, row, column, dim));
}

static __device__ __attribute__((noinline)) void store_narrow(const struct table_shape *t,
                                                              const struct table *io, int64_t row,
                                                              int64_t step, int array,
                                                              int32_t column, float4 value) {
    const struct row_format f = row_format(t, step, array, row);
    const struct quad q = quad_of(value);
    struct quad_bits bits = {{0, 0, 0, 0}};
    for (int c = 0; c < LANE_COLUMNS; c++)
        quad_bits_put(f.type, &bits, c, row_format_bits(&f, column + c, q.x[c]));
    quad_put(f.type, array_row(&io->array[array], row), column, t->dim, bits);
}

static __device__ inline struct quad place_load(const struct row_place &at, int array,
                                                enum dtype type, int32_t column) {
    const void *row = array_row(&at.io->array[array], at.row);
    if (type == FP32) return quad_load((const float *)row, column, at.dim);
    return quad_of(load_narrow(type, row, column, at.dim));
}

static __device__ inline void place_store(const struct row_place &at, int array, enum dtype type,
                                          int32_t column, const struct quad &q) {
    if (type == FP32)
        quad_store((float *)array_row(&at.io->array[array], at.row), column, at.dim, q);
    else
        store_narrow(at.shape, at.io, at.row, at.step, array, column, float4_of(q));
}

static __device__ inline enum dtype state_type(const struct row_place &at, int k) {
    return at.bf16_states >> k & 1 ? BF16 : FP32;
}

/* A row's summed gradient in registers. */
template <int TILES> struct gradient_held {
    static constexpr bool several_warps = TILES == 4;
    struct strip<TILES> *g;
    __device__ int tiles() const {
        return TILES;
    }
    __device__ struct quad get(int j) const {
        return g->tile[j];
    }
    __device__ void put(int j, const struct quad &q) const {
        g->tile[j] = q;
    }
};

/* A row's summed gradient in memory. */
struct gradient_stored {
    static constexpr bool several_warps = true;
    const struct lanes &lanes;
    int32_t dim;
    float *g;
    __device__ int tiles() const {
        const int tile = lanes.count * LANE_COLUMNS;
        return (dim + tile - 1) / tile;
    }
    __device__ struct quad get(int j) const {
        return quad_load(g, tile_column(lanes, j), dim);
    }
    __device__ void put(int j, const struct quad &q) const {
        quad_store(g, tile_column(lanes, j), dim, q);
    }
};

/* As adjust_row(). The whole group calls this; each lane reads only the columns that it writes. */
template <class Gradient>
static __device__ __forceinline__ void
gradient_adjust(const struct lanes &lanes, const struct adjustment &a, const struct row_place &at,
                const Gradient &g) {
    struct row_sums squares = {};
#pragma unroll
    for (int j = 0; j < g.tiles(); j++) {
        struct quad q = g.get(j), square;
        for (int c = 0; c < LANE_COLUMNS; c++) {
            q.x[c] = adjust_clip(&a, q.x[c]);
            square.x[c] = q.x[c] * q.x[c];
        }
        g.put(j, q);
        if (a.clip_norm > 0) row_sums_add(lanes, Gradient::several_warps, &squares, square, {});
    }
    float factor = 1;
    if (a.clip_norm > 0)
        factor = lanes_first(lanes, adjust_norm(&a, row_sums_fold(lanes, squares, 1).a));
#pragma unroll
    for (int j = 0; j < g.tiles(); j++) {
        const struct quad w = place_load(at, TABLE_WEIGHT, at.weight_type, tile_column(lanes, j));
        struct quad q = g.get(j);
        for (int c = 0; c < LANE_COLUMNS; c++) q.x[c] = adjust_decay(&a, q.x[c], factor, w.x[c]);
        g.put(j, q);
    }
}

/* A lane's part of one tile of a row: weights, summed gradient and states. */
struct row_tile {
    struct quad w, g, s[RULE_ELEM_STATES];
};

static __device__ inline struct row_tile tile_load(const int elem_states,
                                                   const struct row_place &at, int32_t column) {
    struct row_tile x = {};
    x.w = place_load(at, TABLE_WEIGHT, at.weight_type, column);
    for (int k = 0; k < elem_states; k++)
        x.s[k] = place_load(at, TABLE_ELEM + k, state_type(at, k), column);
    return x;
}

static __device__ inline void tile_store(const int elem_states, const struct row_place &at,
                                         int32_t column, const struct row_tile &x) {
    place_store(at, TABLE_WEIGHT, at.weight_type, column, x.w);
    for (int k = 0; k < elem_states; k++)
        place_store(at, TABLE_ELEM + k, state_type(at, k), column, x.s[k]);
}

/* A row in registers. */
template <int TILES> struct row_held {
    static constexpr bool several_warps = TILES == 4, in_registers = true;
    struct row_tile tile[TILES];
    __device__ int tiles() const {
        return TILES;
    }
    __device__ struct row_tile get(int j) const {
        return tile[j];
    }
    __device__ void put(int j, const struct row_tile &x) {
        tile[j] = x;
    }
};

/* A row whose weights and states stay in memory: the row is too wide for registers, or its rule has
 * too many states. */
struct row_stored {
    const struct lanes &lanes;
    int elem_states;
    struct row_place at;
    __device__ struct row_tile get(int j) const {
        return tile_load(elem_states, at, tile_column(lanes, j));
    }
    __device__ void put(int j, const struct row_tile &x) const {
        tile_store(elem_states, at, tile_column(lanes, j), x);
    }
};

template <int TILES> struct row_half_held {
    static constexpr bool several_warps = TILES == 4, in_registers = false;
    struct row_stored row;
    const struct strip<TILES> &g;
    __device__ int tiles() const {
        return TILES;
    }
    __device__ struct row_tile get(int j) const {
        struct row_tile x = row.get(j);
        x.g = g.tile[j];
        return x;
    }
    __device__ void put(int j, const struct row_tile &x) const {
        row.put(j, x);
    }
};

struct row_wide {
    static constexpr bool several_warps = true, in_registers = false;
    struct row_stored row;
    const float *g;
    __device__ int tiles() const {
        const int tile = row.lanes.count * LANE_COLUMNS;
        return (row.at.dim + tile - 1) / tile;
    }
    __device__ struct row_tile get(int j) const {
        struct row_tile x = row.get(j);
        x.g = quad_load(g, tile_column(row.lanes, j), row.at.dim);
        return x;
    }
    __device__ void put(int j, const struct row_tile &x) const {
        row.put(j, x);
    }
};

static __device__ __forceinline__ struct element
tile_element(const struct rule_step *step, struct pair rate, const struct row_tile &x, int c) {
    struct states s;
    for (int k = 0; k < RULE_ELEM_STATES; k++) s.x[k] = x.s[k].x[c];
    return rule_element(step, rate, x.w.x[c], s, x.g.x[c]);
}

/* --- The phases of a rule on a lane's columns of one tile. A row's update is compiled once for each
 * number of states, not for each rule: a phase switches over the rules of that number. */

/* Calls phase(RULE_..., step, ...) for the rule of the step. Rules for which has(kind) is false, and those
 * with another number of states, leave no code. The copy of the step is local to a case, so a case loads
 * only what its rule needs. */
#define TILE_CASE(rule, STATES, has, phase, step, ...)                                             \
    case RULE_##rule:                                                                              \
        if (rule_elem_states(RULE_##rule) == STATES && has(RULE_##rule)) {                         \
            const struct rule_step own = *step;                                                    \
            phase(RULE_##rule, &own, __VA_ARGS__);                                                 \
        }                                                                                          \
        break;
#define TILE_PHASE(STATES, has, phase, step, ...)                                                  \
    switch ((step)->rule.kind) {                                                                   \
        RULES(TILE_CASE, STATES, has, phase, step, __VA_ARGS__)                                    \
    case RULE_COUNT: break;                                                                        \
    }

static __device__ constexpr bool every_rule(enum rule_kind) {
    return true;
}

static __device__ __forceinline__ void terms_of(const enum rule_kind kind,
                                                const struct rule_step *step, const bool after,
                                                struct pair rate, const struct row_tile &x,
                                                struct row_sums *term) {
    for (int c = 0; c < LANE_COLUMNS; c++) {
        const struct element e = tile_element(step, rate, x, c);
        const struct pair both = after ? rule_after(kind, e) : rule_before(kind, e);
        term->a.x[c] = both.a;
        term->b.x[c] = both.b;
    }
}

static __device__ __forceinline__ void step_of(const enum rule_kind kind,
                                               const struct rule_step *step, struct pair rate,
                                               struct row_tile *x) {
    for (int c = 0; c < LANE_COLUMNS; c++) {
        struct element e = tile_element(step, rate, *x, c);
        e.s = rule_states(kind, e);
        for (int k = 0; k < RULE_ELEM_STATES; k++) x->s[k].x[c] = e.s.x[k];
        if (!rule_sums_after(kind)) x->w.x[c] = rule_weight(kind, e, 1);
    }
}

static __device__ __forceinline__ void weights_of(const enum rule_kind kind,
                                                  const struct rule_step *step, struct pair rate,
                                                  float scale, struct row_tile *x) {
    for (int c = 0; c < LANE_COLUMNS; c++)
        x->w.x[c] = rule_weight(kind, tile_element(step, rate, *x, c), scale);
}

/* Adds a lane's columns of a tile to the sums over the row, before the step or after it. */
template <int STATES, bool AFTER>
static __device__ __forceinline__ void
tile_terms(const struct lanes &lanes, const bool several_warps, const struct rule_step *step,
           struct pair rate, int32_t column, int32_t dim, const struct row_tile &x,
           struct row_sums *sums, site at = here()) {
    struct row_sums term = {};
    if constexpr (AFTER)
        TILE_PHASE(STATES, rule_sums_after, terms_of, step, true, rate, x, &term)
    else
        TILE_PHASE(STATES, rule_sums_before, terms_of, step, false, rate, x, &term)
    for (int c = 0; c < LANE_COLUMNS; c++)
        if (column + c >= dim) term.a.x[c] = term.b.x[c] = 0;
    row_sums_add(lanes, several_warps, sums, term.a, term.b, at);
}

/* The step of a lane's columns of a tile; leaves the weights to tile_weights() if the rule has sums
 * after the step. */
template <int STATES>
static __device__ __forceinline__ void tile_step(const struct rule_step *step, struct pair rate,
                                                 struct row_tile *x) {
    TILE_PHASE(STATES, every_rule, step_of, step, rate, x)
}

template <int STATES>
static __device__ __forceinline__ void tile_weights(const struct rule_step *step, struct pair rate,
                                                    float scale, struct row_tile *x) {
    TILE_PHASE(STATES, rule_sums_after, weights_of, step, rate, scale, x)
}

/* Whether some rule with that many states has sums after the step. */
#define X(rule, STATES) || (rule##_info.elem_states == STATES && rule##_info.sums_after > 0)
template <int STATES> static constexpr bool SUMS_AFTER = false RULES(X, STATES);
#undef X

/* Applies a rule with that many states to a row. The whole group calls this. row_state: NULL if the
 * rule has none. With sums after the step, a row in memory keeps its old states until its weights
 * are known, and takes the step twice: a stored state may be rounded, and the weights need the
 * unrounded one. */
template <int STATES, class Row>
static __device__ __forceinline__ void row_apply(const struct lanes &lanes,
                                                 const struct rule_step *step, int32_t dim,
                                                 float *row_state, Row *row) {
    const enum rule_kind kind = step->rule.kind;
    struct pair rate = {0, 0};
    if (rule_sums_before(kind)) {
        struct row_sums sums = {};
#pragma unroll
        for (int j = 0; j < row->tiles(); j++)
            tile_terms<STATES, false>(lanes, Row::several_warps, step, rate, tile_column(lanes, j),
                                      dim, row->get(j), &sums);
        rate = row_sums_fold(lanes, sums, rule_sums_before(kind));
    }
    if (lanes.lane == 0) rate = rule_row(kind, step, rate, dim, row_state);
    rate = {lanes_first(lanes, rate.a), lanes_first(lanes, rate.b)};
    const bool after = SUMS_AFTER<STATES> && rule_sums_after(kind);
    if (Row::in_registers || !after) {
#pragma unroll
        for (int j = 0; j < row->tiles(); j++) {
            struct row_tile x = row->get(j);
            tile_step<STATES>(step, rate, &x);
            row->put(j, x);
        }
    }
    if (!after) return;
    const auto stepped = [&](int j) {
        struct row_tile x = row->get(j);
        if (!Row::in_registers) tile_step<STATES>(step, rate, &x);
        return x;
    };
    struct row_sums sums = {};
#pragma unroll
    for (int j = 0; j < row->tiles(); j++)
        tile_terms<STATES, true>(lanes, Row::several_warps, step, rate, tile_column(lanes, j), dim,
                                 stepped(j), &sums);
    const struct pair sum = row_sums_fold(lanes, sums, rule_sums_after(kind));
    const float scale = lanes_first(lanes, rule_scale(kind, step, rate, sum, dim));
#pragma unroll
    for (int j = 0; j < row->tiles(); j++) {
        struct row_tile x = stepped(j);
        tile_weights<STATES>(step, rate, scale, &x);
        row->put(j, x);
    }
}

static __device__ inline float *row_state_of(const enum rule_kind kind,
                                             const struct row_place &at) {
    return rule_row_states(kind) ? (float *)array_row(&at.io->row, at.row) : NULL;
}

template <int TILES, int STATES>
static __device__ __forceinline__ void
row_update_as(const struct lanes &lanes, const struct rule_step *step, const struct row_place &at,
              const struct strip<TILES> &g) {
    /* So many quads of weights, gradients and states fit. Otherwise weights and states stay in memory:
     * in rows of four tiles with a state, and of two tiles with three. */
    enum { MOST_QUADS = 8 };
    float *const row_state = row_state_of(step->rule.kind, at);
    if constexpr (TILES * (2 + STATES) > MOST_QUADS) {
        struct row_half_held<TILES> half = {
            {lanes, STATES, at}, g
        };
        row_apply<STATES>(lanes, step, at.dim, row_state, &half);
    } else {
        struct row_held<TILES> held;
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            held.tile[j] = tile_load(STATES, at, tile_column(lanes, j));
            held.tile[j].g = g.tile[j];
        }
        row_apply<STATES>(lanes, step, at.dim, row_state, &held);
#pragma unroll
        for (int j = 0; j < TILES; j++) tile_store(STATES, at, tile_column(lanes, j), held.tile[j]);
    }
}

static_assert(RULE_ELEM_STATES == 3, "the two functions below have a case for each number");

/* Applies the table's rule to a row with this summed gradient. The whole group calls this. */
template <int TILES>
static __device__ __forceinline__ void
row_update(const struct lanes &lanes, const struct rule_step *step, const struct row_place &at,
           const struct strip<TILES> &sum) {
    struct strip<TILES> g = sum;
    if (step->adjust.gradient) gradient_adjust(lanes, step->adjust, at, gradient_held<TILES>{&g});
    switch (rule_elem_states(step->rule.kind)) {
    case 0: return row_update_as<TILES, 0>(lanes, step, at, g);
    case 1: return row_update_as<TILES, 1>(lanes, step, at, g);
    case 2: return row_update_as<TILES, 2>(lanes, step, at, g);
    default: return row_update_as<TILES, 3>(lanes, step, at, g);
    }
}

template <int STATES>
static __device__ __forceinline__ void
row_update_wide_as(const struct lanes &lanes, const struct rule_step *step,
                   const struct row_place &at, const float *g) {
    struct row_wide wide = {{lanes, STATES, at}, g};
    row_apply<STATES>(lanes, step, at.dim, row_state_of(step->rule.kind, at), &wide);
}

/* As row_update(), for a row too wide for registers: its gradient g is in memory, and changes. */
static __device__ inline void row_update_wide(const struct lanes &lanes,
                                              const struct rule_step *step,
                                              const struct row_place &at, float *g) {
    if (step->adjust.gradient)
        gradient_adjust(lanes, step->adjust, at, gradient_stored{lanes, at.dim, g});
    switch (rule_elem_states(step->rule.kind)) {
    case 0: return row_update_wide_as<0>(lanes, step, at, g);
    case 1: return row_update_wide_as<1>(lanes, step, at, g);
    case 2: return row_update_wide_as<2>(lanes, step, at, g);
    default: return row_update_wide_as<3>(lanes, step, at, g);
    }
}
