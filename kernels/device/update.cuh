/* SPDX-License-Identifier: MIT
 *
 * Groups of lanes apply a table's rule to rows whose gradients are summed. A kernel leaves the sums in memory,
 * of the block or of the device, and calls rows_update() for the rows of one table. Each rule is a function of
 * its own: hyper-parameters and addresses are in registers for all rows of the call, and a kernel is as large
 * as its sums, not as all rules. A kernel of one rule has no calls (rows_update_by()).
 */
#pragma once

#include "kernels/device/fold.cuh"
#include "kernels/device/place.cuh"

/* --- the shared hyper-parameters */

/* As adjust_row(), for the rows of a call of rows_update(). */
template <int TILES>
static __device__ __attribute__((noinline)) void rows_adjust(const struct target to, int32_t table,
                                                             int count, struct summed<TILES> g,
                                                             int64_t row, unsigned rows) {
    const struct lanes lanes = lanes_here(count);
    const struct adjustment a = to.steps[table].adjust;
    struct place<0> at = place_of<0>(to, table, to.steps[table].rule.kind);
    const int tiles = g.tiles(lanes, at.dim);
    for (; warp_any(rows != 0); rows &= rows - 1, g.skip(1)) {
        place_next(lanes, &at, row, rows);
        struct row_sums squares[1] = {};
        for (int j = 0; j < tiles; j++) {
            struct quad q = at.active ? g.get(lanes, at.dim, j) : quad{}, square;
            for (int c = 0; c < LANE_COLUMNS; c++) {
                q.x[c] = adjust_clip(&a, q.x[c]);
                square.x[c] = q.x[c] * q.x[c];
            }
            if (at.active) g.put(lanes, at.dim, j, q);
            if (a.clip_norm > 0)
                row_sums_add(lanes, summed<TILES>::several_warps, squares, square, {});
        }
        float factor = 1;
        if (a.clip_norm > 0) {
            struct pair norm[1];
            row_sums_fold(lanes, summed<TILES>::several_warps, squares, 1, norm);
            factor = adjust_norm(&a, norm[0].a);
        }
        for (int j = 0; j < tiles; j++) {
            const struct quad w = place_load(at, 0, tile_column(lanes, j));
            struct quad q = at.active ? g.get(lanes, at.dim, j) : quad{};
            for (int c = 0; c < LANE_COLUMNS; c++)
                q.x[c] = adjust_decay(&a, q.x[c], factor, w.x[c]);
            if (at.active) g.put(lanes, at.dim, j, q);
        }
    }
}

/* --- a rule */

/* A lane's part of one tile of a row: weights, summed gradient and states. */
template <int STATES> struct row_tile { struct quad w, g, s[STATES ? STATES : 1]; };

template <int TILES, int STATES>
static __device__ __forceinline__ struct row_tile<STATES>
tile_load(const struct lanes &lanes, const struct place<STATES> &at, const struct summed<TILES> &g,
          int j) {
    struct row_tile<STATES> x = {};
    x.w = place_load(at, 0, tile_column(lanes, j));
    for (int k = 0; k < STATES; k++) x.s[k] = place_load(at, 1 + k, tile_column(lanes, j));
    if (at.active) x.g = g.get(lanes, at.dim, j);
    return x;
}

template <int STATES>
static __device__ __forceinline__ void tile_store(const struct lanes &lanes,
                                                  const struct place<STATES> &at, int j,
                                                  const struct row_tile<STATES> &x) {
    place_store(at, 0, tile_column(lanes, j), x.w);
    for (int k = 0; k < STATES; k++) place_store(at, 1 + k, tile_column(lanes, j), x.s[k]);
}

/* So many quads of a row's weights, gradient and states are kept in registers. Otherwise each tile is loaded
 * for each phase: of rows of four tiles with a state, and of two tiles with three. */
enum { MOST_QUADS = 8 };

template <int TILES, int STATES> struct row_held {
    static constexpr bool in_registers = TILES > 0 && TILES *(2 + STATES) <= MOST_QUADS;
    struct place<STATES> at;
    struct summed<TILES> g;
    struct row_tile<STATES> tile[in_registers ? TILES : 1];

    __device__ __forceinline__ void load(const struct lanes &lanes) {
        if constexpr (in_registers)
#pragma unroll
            for (int j = 0; j < TILES; j++) tile[j] = tile_load(lanes, at, g, j);
    }
    __device__ __forceinline__ struct row_tile<STATES> get(const struct lanes &lanes, int j) const {
        if constexpr (in_registers) return tile[j];
        return tile_load(lanes, at, g, j);
    } __device__ __forceinline__ void put(const struct lanes &lanes, int j,
                                          const struct row_tile<STATES> &x) {
        if constexpr (in_registers)
            tile[j] = x;
        else
            tile_store(lanes, at, j, x);
    }
    __device__ __forceinline__ void store(const struct lanes &lanes) const {
        if constexpr (in_registers)
#pragma unroll
            for (int j = 0; j < TILES; j++) tile_store(lanes, at, j, tile[j]);
    }
};

template <int STATES>
static __device__ __forceinline__ struct element
tile_element(const struct rule_step *step, struct pair rate, const struct row_tile<STATES> &x,
             int c) {
    struct states s = {};
    for (int k = 0; k < STATES; k++) s.x[k] = x.s[k].x[c];
    return rule_element(step, rate, x.w.x[c], s, x.g.x[c]);
}

/* Adds a lane's columns of a tile to the sums over the row, before the step or after it. */
template <enum rule_kind RULE, bool AFTER, int STATES>
static __device__ __forceinline__ void
tile_terms(const struct lanes &lanes, const bool several_warps, const struct rule_step *step,
           struct pair rate, int32_t column, int32_t dim, const struct row_tile<STATES> &x,
           struct row_sums *sums) {
    struct row_sums term = {};
    for (int c = 0; c < LANE_COLUMNS; c++) {
        const struct element e = tile_element(step, rate, x, c);
        const struct pair both = AFTER ? rule_after(RULE, e) : rule_before(RULE, e);
        term.a.x[c] = column + c < dim ? both.a : 0;
        term.b.x[c] = column + c < dim ? both.b : 0;
    }
    row_sums_add(lanes, several_warps, sums, term.a, term.b);
}

/* The step of a lane's columns of a tile; leaves the weights to tile_weights() if the rule has sums after the
 * step. */
template <enum rule_kind RULE, int STATES>
static __device__ __forceinline__ void tile_step(const struct rule_step *step, struct pair rate,
                                                 struct row_tile<STATES> *x) {
    for (int c = 0; c < LANE_COLUMNS; c++) {
        struct element e = tile_element(step, rate, *x, c);
        e.s = rule_states(RULE, e);
        for (int k = 0; k < STATES; k++) x->s[k].x[c] = e.s.x[k];
        if (!rule_sums_after(RULE)) x->w.x[c] = rule_weight(RULE, e, 1);
    }
}

template <enum rule_kind RULE, int STATES>
static __device__ __forceinline__ void tile_weights(const struct rule_step *step, struct pair rate,
                                                    float scale, struct row_tile<STATES> *x) {
    for (int c = 0; c < LANE_COLUMNS; c++)
        x->w.x[c] = rule_weight(RULE, tile_element(step, rate, *x, c), scale);
}

/* States of rows: lane k of a team has those of row k, and so have the lanes ROWS, 2 * ROWS ... further. */
struct row_states {
    float *memory; /* NULL: the group has no such row */
    float x[RULE_ROW_STATES];
};

static __device__ __forceinline__ struct row_states
row_states_load(const struct table *io, int64_t row, bool active, int states) {
    struct row_states s = {NULL, {}};
    if (states == 0 || !active) return s;
    s.memory = (float *)array_row(&io->row, row);
    for (int k = 0; k < states; k++) s.x[k] = s.memory[k];
    return s;
}

/* All lanes call this, after their loads. */
template <int ROWS>
static __device__ __forceinline__ void row_states_store(const struct lanes &lanes,
                                                        const struct row_states &s, int states) {
    if (states == 0) return;
    lanes_sync(lanes);
    for (int k = 0; s.memory && lanes.lane < ROWS && k < states; k++) s.memory[k] = s.x[k];
}

/* The rates of the rows' elements, from the sums over them. Roots and divisions are long, so a lane computes the rate
 * of one row. */
template <enum rule_kind RULE, int ROWS>
static __device__ __forceinline__ void
rows_rates(const struct lanes &lanes, const struct rule_step *step, int32_t dim,
           struct row_states *states, struct pair (&rate)[ROWS]) {
    const bool differ = rule_sums_before(RULE) || rule_row_states(RULE);
    struct pair mine = rate[0];
#pragma unroll
    for (int k = 1; k < ROWS; k++) {
        const float a = rate[k].a, b = rate[k].b; /* in registers, before the choice */
        if (lanes.me % ROWS == k) mine = {a, b};
    }
    mine = rule_row(RULE, step, mine, dim, rule_row_states(RULE) ? states->x : NULL);
#pragma unroll
    for (int k = 0; k < ROWS; k++) {
        rate[k] = mine;
        if (ROWS > 1 && differ) rate[k] = {team_get(lanes, mine.a, k), team_get(lanes, mine.b, k)};
    }
}

/* Applies the rule to rows of a table. With sums after the step, a row in memory keeps its old states until its weights
 * are known, and takes the step twice: a stored state may be rounded, and the weights need the unrounded
 * one. */
template <enum rule_kind RULE, int TILES, int STATES, int ROWS>
static __device__ __forceinline__ void
rows_apply(const struct lanes &lanes, const struct rule_step *step, int tiles,
           struct row_states *states, struct row_held<TILES, STATES> (&row)[ROWS]) {
    constexpr bool several_warps = summed<TILES>::several_warps,
                   in_registers = row_held<TILES, STATES>::in_registers;
    const int32_t dim = row[0].at.dim;
    const auto each_tile = [&](const auto &work) {
#pragma unroll
        for (int k = 0; k < ROWS; k++)
#pragma unroll(TILES ? TILES : 1)
            for (int j = 0; j < (TILES ? TILES : tiles); j++) work(k, j);
    };
    struct pair rate[ROWS] = {};
    if (rule_sums_before(RULE)) {
        struct row_sums sums[ROWS] = {};
        each_tile([&](int k, int j) {
            tile_terms<RULE, false>(lanes, several_warps, step, rate[k], tile_column(lanes, j), dim,
                                    row[k].get(lanes, j), &sums[k]);
        });
        row_sums_fold(lanes, several_warps, sums, rule_sums_before(RULE), rate);
    }
    rows_rates<RULE>(lanes, step, dim, states, rate);
    const bool after = rule_sums_after(RULE) > 0;
    if (in_registers || !after)
        each_tile([&](int k, int j) {
            struct row_tile<STATES> x = row[k].get(lanes, j);
            tile_step<RULE>(step, rate[k], &x);
            row[k].put(lanes, j, x);
        });
    if (!after) return;
    const auto stepped = [&](int k, int j) {
        struct row_tile<STATES> x = row[k].get(lanes, j);
        if (!in_registers) tile_step<RULE>(step, rate[k], &x);
        return x;
    };
    struct row_sums sums[ROWS] = {};
    each_tile([&](int k, int j) {
        tile_terms<RULE, true>(lanes, several_warps, step, rate[k], tile_column(lanes, j), dim,
                               stepped(k, j), &sums[k]);
    });
    struct pair sum[ROWS] = {};
    float scale[ROWS];
    row_sums_fold(lanes, several_warps, sums, rule_sums_after(RULE), sum);
#pragma unroll
    for (int k = 0; k < ROWS; k++) scale[k] = rule_scale(RULE, step, rate[k], sum[k], dim);
    each_tile([&](int k, int j) {
        struct row_tile<STATES> x = stepped(k, j);
        tile_weights<RULE>(step, rate[k], scale[k], &x);
        row[k].put(lanes, j, x);
    });
}

/* A rule's states per element. */
template <int RULE> struct states_of;
#define X(rule, ...)                                                                               \
    template <> struct states_of<RULE_##rule> {                                                    \
        enum { count = rule##_info.elem_states };                                                  \
    };
RULES(X)
#undef X

/* A kernel of one rule updates so many rows of a group together, if they fit in registers: their loads, exchanges,
 * roots and divisions overlap. */
enum { ROWS_TOGETHER = 2 };

/* ALONE: the kernel knows no other rule, and all arrays are fp32. */
template <enum rule_kind RULE, int TILES, bool ALONE>
static __device__ __forceinline__ void rows_step(const struct target &to, int32_t table, int count,
                                                 struct summed<TILES> g, int64_t row,
                                                 unsigned rows) {
    constexpr int STATES = states_of<RULE>::count,
                  TOGETHER = ALONE && (2 + STATES) * TILES * ROWS_TOGETHER <= MOST_QUADS
                                 ? ROWS_TOGETHER
                                 : 1;
    const struct lanes lanes = lanes_here(count);
    const struct rule_step step = to.steps[table];
    const int states = rule_row_states(RULE);
    struct place<STATES> at = place_of<STATES>(to, table, RULE);
    if constexpr (ALONE) at.weight_type = FP32, at.bf16_states = 0;
    while (warp_any(rows != 0)) {
        struct row_held<TILES, STATES> held[TOGETHER] = {};
        int64_t my_row = 0;
        bool active = false;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++, rows &= rows - 1, g.skip(1)) {
            place_next(lanes, &at, row, rows);
            held[k].at = at;
            held[k].g = g;
            if (lanes.me % TOGETHER == k) my_row = at.row, active = at.active;
        }
        struct row_states of_rows = row_states_load(at.io, my_row, active, states);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) held[k].load(lanes);
        rows_apply<RULE>(lanes, &step, g.tiles(lanes, at.dim), &of_rows, held);
        row_states_store<TOGETHER>(lanes, of_rows, states);
#pragma unroll
        for (int k = 0; k < TOGETHER; k++) held[k].store(lanes);
    }
}

/* A rule's function in kernels of all rules. */
template <enum rule_kind RULE, int TILES>
static __device__ __attribute__((noinline)) void
rows_step_apart(const struct target to, int32_t table, int count, struct summed<TILES> g,
                int64_t row, unsigned rows) {
    rows_step<RULE, TILES, false>(to, table, count, g, row, rows);
}

/* In place of a rule: that of each table, or none, where sums become a compact gradient. */
enum { ANY_RULE = RULE_COUNT, NO_RULE = -1 };

/* Rows of one table, whose number is the same in all lanes of the warp. */
template <int RULE, int TILES>
static __device__ __forceinline__ void table_update(const struct target &to, int32_t table,
                                                    int count, const struct summed<TILES> &g,
                                                    int64_t row, unsigned rows) {
    const struct rule_step *step = &to.steps[table];
    if (step->adjust.gradient) rows_adjust<TILES>(to, table, count, g, row, rows);
    if constexpr (RULE != ANY_RULE)
        return rows_step<(enum rule_kind)RULE, TILES, true>(to, table, count, g, row, rows);
    switch (step->rule.kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: return rows_step_apart<RULE_##rule, TILES>(to, table, count, g, row, rows);
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

/* Applies the rules of their tables to rows with these summed gradients. All lanes of a warp call this. rows: a
 * bit for each row of the group; 0 if it has none. The row of bit l is `row` of `table` in lane l of the team;
 * tables ascend. sums: of their gradients, in the order of the bits. RULE: of all rows, or ANY_RULE. */
template <int RULE, int TILES>
static __device__ __forceinline__ void rows_update_by(const struct target &to, int count,
                                                      struct summed<TILES> sums, int32_t table,
                                                      int64_t row, unsigned rows) {
    const struct lanes g = lanes_here(count);
    for (unsigned groups; (groups = __ballot_sync(ALL_LANES, rows != 0)) != 0;) {
        const int32_t first = team_get(g, table, rows ? __ffs((int)rows) - 1 : 0);
        const int32_t now = __shfl_sync(ALL_LANES, first, __ffs((int)groups) - 1);
        const unsigned here = rows & team_votes(g, table == now);
        table_update<RULE, TILES>(to, now, count, sums, row, here);
        sums.skip(__popc(here));
        rows &= ~here;
    }
}

/* The same for any rules, as a call. */
template <int TILES>
static __device__ __attribute__((noinline)) void
rows_update(const struct target to, int count, struct summed<TILES> sums, int32_t table,
            int64_t row, unsigned rows) {
    rows_update_by<ANY_RULE, TILES>(to, count, sums, table, row, rows);
}

/* As rows_update(), for one row of the group, or none if row < 0. Its gradient is in memory of the device, where
 * it changes if TILES is 0. */
template <int TILES, int BLOCK>
static __device__ __forceinline__ void row_update(const struct target &to, const struct lanes &g,
                                                  int32_t table, int64_t row, float *grad) {
    if constexpr (TILES == 0) {
        rows_update<0>(to, g.count, {grad}, table, row, row >= 0);
    } else {
        const struct summed<TILES> sums = { held_quads<BLOCK, TILES>() };
        for (int j = 0; row >= 0 && j < TILES; j++)
            sums.put(g, 0, j, quad_load(grad, tile_column(g, j), to.tables[table].dim));
        rows_update<TILES>(to, g.count, sums, table, row, row >= 0);
    }
}
