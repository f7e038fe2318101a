/* SPDX-License-Identifier: MIT
 *
 * A group of lanes applies a table's rule to a row whose gradients are summed.
 */
#ifndef EMBFUSE_DEVICE_UPDATE_CUH
#define EMBFUSE_DEVICE_UPDATE_CUH

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
                                                    struct quad b) {
    if (!several_warps || g.count <= WARP) {
        x->a = quad_sum(x->a, a);
        x->b = quad_sum(x->b, b);
        return;
    }
    SHARED(struct row_sums, part, LARGEST_BLOCK);
    part[g.lane].a = a;
    part[g.lane].b = b;
    __syncthreads();
    for (int w = 0; w < g.count / WARP && g.lane < WARP; w++) {
        x->a = quad_sum(x->a, part[w * WARP + g.lane].a);
        x->b = quad_sum(x->b, part[w * WARP + g.lane].b);
    }
    __syncthreads();
}

/* Gives `give` to the team's lane at distance `step`; returns `keep` plus what that lane gave. */
static __device__ inline float lane_add(const struct lanes &g, float keep, float give, int step) {
    return keep + __shfl_xor_sync(g.mask, give, step, g.team);
}

/* Folds a sum over the team's lanes. In the first two steps a lane gives two columns, then one, to
 * another lane; then each lane holds one column. The next steps fold each column over its lanes.
 * The last two steps add columns 2 apart and 1 apart, also between lanes. */
static __device__ inline float quad_fold(const struct lanes &g, const struct quad &q) {
    const int half = g.team / 2, quarter = g.team / 4;
    const bool upper = g.me & half, odd = g.me & quarter;
    const float x0 = q.x[0], x1 = q.x[1], x2 = q.x[2], x3 = q.x[3];
    const float even_column = lane_add(g, upper ? x2 : x0, upper ? x0 : x2, half);
    const float odd_column = lane_add(g, upper ? x3 : x1, upper ? x1 : x3, half);
    float sum =
        lane_add(g, odd ? odd_column : even_column, odd ? even_column : odd_column, quarter);
    for (int step = quarter / 2; step > 0; step /= 2) sum = lane_add(g, sum, sum, step);
    sum = lane_add(g, sum, sum, half);
    return lane_add(g, sum, sum, quarter);
}

/* Folds the rule's sums (1 or 2) into lane 0. */
static __device__ inline struct pair row_sums_fold(const struct lanes &g, const struct row_sums &x,
                                                   const int sums) {
    return {quad_fold(g, x.a), sums > 1 ? quad_fold(g, x.b) : 0};
}

/* A lane's part of one tile of a row: weights, summed gradient and states. */
struct row_tile {
    struct quad w, g, s[RULE_ELEM_STATES];
};

/* A row in memory. */
struct row_place {
    const struct table *io;
    int64_t row;
    int32_t dim;
    enum dtype type; /* of the weights */
};

static __device__ inline struct row_tile tile_load(const int elem_states,
                                                   const struct row_place &at, int32_t column) {
    struct row_tile x = {};
    x.w = quad_load_as(at.type, array_row(&at.io->weight, at.row), column, at.dim);
    for (int k = 0; k < elem_states; k++)
        x.s[k] = quad_load((const float *)array_row(&at.io->elem[k], at.row), column, at.dim);
    return x;
}

static __device__ inline void tile_store(const int elem_states, const struct row_place &at,
                                         int32_t column, const struct row_tile &x) {
    quad_store_as(at.type, array_row(&at.io->weight, at.row), column, at.dim, x.w);
    for (int k = 0; k < elem_states; k++)
        quad_store((float *)array_row(&at.io->elem[k], at.row), column, at.dim, x.s[k]);
}

/* A row in registers. */
template <int TILES> struct row_held {
    static constexpr bool several_warps = TILES == 4;
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
    static constexpr bool several_warps = TILES == 4;
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
    static constexpr bool several_warps = true;
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

/* Adds a lane's columns of a tile to the sums over the row, before the step or after it. */
static __device__ __forceinline__ void
tile_terms(const enum rule_kind kind, const struct lanes &lanes, const bool several_warps,
           const struct rule_step *step, const bool after, struct pair rate, int32_t column,
           int32_t dim, const struct row_tile &x, struct row_sums *sums) {
    struct row_sums term = {};
    for (int c = 0; c < LANE_COLUMNS; c++) {
        const struct element e = tile_element(step, rate, x, c);
        const struct pair both = after ? rule_after(kind, e) : rule_before(kind, e);
        if (column + c >= dim) continue;
        term.a.x[c] = both.a;
        term.b.x[c] = both.b;
    }
    row_sums_add(lanes, several_warps, sums, term.a, term.b);
}

/* The step of a lane's columns of a tile; leaves the weights to tile_weights() if the rule has sums
 * after the step. */
static __device__ __forceinline__ void tile_step(const enum rule_kind kind,
                                                 const struct rule_step *step, struct pair rate,
                                                 struct row_tile *x) {
    for (int c = 0; c < LANE_COLUMNS; c++) {
        struct element e = tile_element(step, rate, *x, c);
        e.s = rule_states(kind, e);
        for (int k = 0; k < RULE_ELEM_STATES; k++) x->s[k].x[c] = e.s.x[k];
        if (!rule_sums_after(kind)) x->w.x[c] = rule_weight(kind, e, 1);
    }
}

static __device__ __forceinline__ void tile_weights(const enum rule_kind kind,
                                                    const struct rule_step *step, struct pair rate,
                                                    float scale, struct row_tile *x) {
    for (int c = 0; c < LANE_COLUMNS; c++)
        x->w.x[c] = rule_weight(kind, tile_element(step, rate, *x, c), scale);
}

/* Applies a rule to a row. The whole group calls this. row_state: NULL if the rule has none. */
template <class Row>
static __device__ __forceinline__ void
row_apply(const enum rule_kind kind, const struct lanes &lanes, const struct rule_step *given,
          int32_t dim, float *row_state, Row *row) {
    const struct rule_step step = *given;
    struct pair rate = {0, 0};
    if (rule_sums_before(kind)) {
        struct row_sums sums = {};
#pragma unroll
        for (int j = 0; j < row->tiles(); j++)
            tile_terms(kind, lanes, Row::several_warps, &step, false, rate, tile_column(lanes, j),
                       dim, row->get(j), &sums);
        rate = row_sums_fold(lanes, sums, rule_sums_before(kind));
    }
    if (rule_sums_before(kind) || rule_row_states(kind) > 0) {
        if (lanes.lane == 0) rate = rule_row(kind, &step, rate, dim, row_state);
        rate = {lanes_first(lanes, rate.a), lanes_first(lanes, rate.b)};
    } else {
        rate = rule_row(kind, &step, rate, dim, NULL);
    }
#pragma unroll
    for (int j = 0; j < row->tiles(); j++) {
        struct row_tile x = row->get(j);
        tile_step(kind, &step, rate, &x);
        row->put(j, x);
    }
    if (!rule_sums_after(kind)) return;
    struct row_sums sums = {};
#pragma unroll
    for (int j = 0; j < row->tiles(); j++)
        tile_terms(kind, lanes, Row::several_warps, &step, true, rate, tile_column(lanes, j), dim,
                   row->get(j), &sums);
    const struct pair after = row_sums_fold(lanes, sums, rule_sums_after(kind));
    const float scale = lanes_first(lanes, rule_scale(kind, &step, rate, after, dim));
#pragma unroll
    for (int j = 0; j < row->tiles(); j++) {
        struct row_tile x = row->get(j);
        tile_weights(kind, &step, rate, scale, &x);
        row->put(j, x);
    }
}

static __device__ inline float *row_state_of(const enum rule_kind kind,
                                             const struct row_place &at) {
    return rule_row_states(kind) ? (float *)array_row(&at.io->row, at.row) : NULL;
}

template <int TILES>
static __device__ __forceinline__ void
row_update_as(const enum rule_kind kind, const struct lanes &lanes, const struct rule_step *step,
              const struct row_place &at, const struct strip<TILES> &g) {
    /* So many quads of weights, gradients and states fit. Otherwise weights and states stay in memory:
     * in rows of four tiles with a state, and of two tiles with three. With 12, sum_runs<4> takes 148
     * registers on sm_80; with 8 it takes 116. */
    enum { MOST_QUADS = 8 };
    const int states = rule_elem_states(kind);
    float *const row_state = row_state_of(kind, at);
    if (TILES * (2 + states) > MOST_QUADS) {
        struct row_half_held<TILES> half = {
            {lanes, states, at}, g
        };
        row_apply(kind, lanes, step, at.dim, row_state, &half);
        return;
    }
    struct row_held<TILES> held;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        held.tile[j] = tile_load(states, at, tile_column(lanes, j));
        held.tile[j].g = g.tile[j];
    }
    row_apply(kind, lanes, step, at.dim, row_state, &held);
#pragma unroll
    for (int j = 0; j < TILES; j++) tile_store(states, at, tile_column(lanes, j), held.tile[j]);
}

/* Applies the table's rule to a row with summed gradient g. The whole group calls this. */
template <int TILES>
static __device__ __forceinline__ void
row_update(const struct lanes &lanes, const struct rule_step *step, const struct row_place &at,
           const struct strip<TILES> &g) {
    switch (step->rule.kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: row_update_as(RULE_##rule, lanes, step, at, g); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

static __device__ __forceinline__ void
row_update_wide_as(const enum rule_kind kind, const struct lanes &lanes,
                   const struct rule_step *step, const struct row_place &at, const float *g) {
    struct row_wide wide = {{lanes, rule_elem_states(kind), at}, g};
    row_apply(kind, lanes, step, at.dim, row_state_of(kind, at), &wide);
}

/* As row_update(), for a row too wide for registers: its gradient g is in memory. */
static __device__ inline void row_update_wide(const struct lanes &lanes,
                                              const struct rule_step *step,
                                              const struct row_place &at, const float *g) {
    switch (step->rule.kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: row_update_wide_as(RULE_##rule, lanes, step, at, g); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

#endif
