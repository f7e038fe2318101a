/* SPDX-License-Identifier: MIT
 *
 * How the rows of a window of items come into registers: a lane loads its columns of all of them before it uses
 * one. Rows that are aligned and whole have a way without a branch between its loads.
 */
#pragma once

#include "kernels/device/items.cuh"
#include "kernels/device/update.cuh"

/* A window: AHEAD items of which lane u of the team has number u. */
template <int AHEAD> struct window {
    const char *row[AHEAD];
    uint32_t part[AHEAD];
    int32_t dim[AHEAD]; /* 0: no item */
};

/* Items of a window of a group. */
template <int AHEAD> static __device__ inline int window_items(const struct lanes &g) {
    return AHEAD < g.team ? AHEAD : g.team;
}

/* row(u): where the row of item u is. */
template <int AHEAD, class Row>
static __device__ __forceinline__ struct window<AHEAD>
window_of(const struct lanes &g, const struct item &mine, const Row &row) {
    struct window<AHEAD> w;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        w.row[u] = row(u);
        w.part[u] = team_get(g, mine.part, u);
        w.dim[u] = team_get(g, mine.dim, u);
        if (u >= g.team) w.dim[u] = 0;
    }
    return w;
}

/* Four elements of a row as they were loaded: fp32, or 16 bits. */
static __device__ inline struct quad
widen(enum dtype, const uint4 &x) {
    return quad_of(make_float4(bits_float(x.x), bits_float(x.y), bits_float(x.z), bits_float(x.w)));
}

static __device__ inline struct quad widen(enum dtype type, const uint2 &x) {
    return quad_widen(type, {{x.x, x.y, 0, 0}});
}

/* This lane's columns of the rows of a window, times their coefficients. All loads come before the first use of
 * one, so all are in flight at once. Bits: uint4 or uint2. The rows are aligned and whole. GRADIENTS: they are in
 * global memory, and no kernel of the step writes them. */
template <class Bits, bool GRADIENTS, int TILES, int AHEAD>
static __device__ __forceinline__ void gather_whole(const struct runs &r, const struct lanes &g,
                                                    const struct window<AHEAD> &w,
                                                    struct quad (&to)[AHEAD][TILES]) {
    const uint64_t policy = policy_of_reads(r.read_once);
    Bits bits[AHEAD][TILES];
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const char *at = w.row[u] + tile_column(g, j) / LANE_COLUMNS * (int)sizeof(Bits);
            bits[u][j] = {};
            if (tile_column(g, j) >= w.dim[u]) continue;
            if constexpr (GRADIENTS)
                load_under(policy, at, &bits[u][j]);
            else
                bits[u][j] = *(const Bits *)at;
        }
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
            to[u][j] = quad_scale(widen(r.type, bits[u][j]), __uint_as_float(w.part[u]));
}

/* Elements of such columns, one by one. Element: uint32_t or uint16_t. */
template <class Element, int TILES, int AHEAD>
static __device__ __forceinline__ void
load_elements(const struct lanes &g, const struct window<AHEAD> &w, const char *const (&row)[AHEAD],
              uint32_t (&to)[AHEAD][TILES][LANE_COLUMNS]) {
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                const int32_t column = tile_column(g, j) + c;
                to[u][j][c] = 0;
                if (column < w.dim[u]) to[u][j][c] = __ldg((const Element *)row[u] + column);
            }
}

/* The same for rows of any alignment and dim, element by element, and with MAX for batches with winners. All rows of
 * a window are in flight, and so are their winners. */
template <class Element, bool MAX, int TILES, int AHEAD>
static __device__ __forceinline__ void gather_any(const struct runs &r, const struct lanes &g,
                                                  const struct window<AHEAD> &w,
                                                  struct quad (&to)[AHEAD][TILES]) {
    uint32_t bits[AHEAD][TILES][LANE_COLUMNS], winner[AHEAD][TILES][LANE_COLUMNS] = {};
    load_elements<Element>(g, w, w.row, bits);
    if constexpr (MAX) {
        const char *winners[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            winners[u] = (const char *)r.winners +
                         (w.row[u] - (const char *)r.source) / (int)sizeof(Element) * 4;
        load_elements<uint32_t>(g, w, winners, winner);
    }
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
            for (int c = 0; c < LANE_COLUMNS; c++) {
                const float x = dtype_widen(r.type, bits[u][j][c]);
                float term = x * __uint_as_float(w.part[u]);
                if constexpr (MAX)
                    if (w.part[u] & PART_OF_MAX)
                        term = winner[u][j][c] == (w.part[u] & ~PART_OF_MAX) ? x : 0;
                to[u][j].x[c] = term;
            }
}

template <class Element, int TILES, int AHEAD>
static __device__ __forceinline__ void gather_elements(const struct runs &r, const struct lanes &g,
                                                       const struct window<AHEAD> &w,
                                                       struct quad (&to)[AHEAD][TILES]) {
    if (r.winners)
        gather_any<Element, true>(r, g, w, to);
    else
        gather_any<Element, false>(r, g, w, to);
}

/* --- how rows come to the lanes: what sum_items() asks of Rows */

/* By loads into registers. KIND: of all rows; ROWS_ANY: struct runs says which. */
template <int TILES, enum gradient_rows KIND = ROWS_ANY> struct loaded_rows {
    enum { AHEAD = FLIGHT / TILES, WINDOWS_AHEAD = 1 };

    /* Before the first window. All lanes of a warp call these. */
    template <int RULE, class Items>
    static __device__ __forceinline__ void begin(const struct runs &, const struct lanes &,
                                                 Items *) {}

    /* The rows of the window that begins at item `at`; mine: item at + g.me of all. */
    template <class Items>
    static __device__ __forceinline__ void take(const struct runs &r, const struct lanes &g,
                                                const Items &items, const struct item &mine, int,
                                                struct quad (&to)[AHEAD][TILES]) {
        const struct window<AHEAD> w = window_of<AHEAD>(
            g, mine, [&](int u) { return items.row(r, team_get(g, mine.place, u)); });
        if constexpr (!Items::are_lookups)
            gather_whole<uint4, false>(r, g, w, to);
        else if (KIND == ROWS_FP32 || r.rows == ROWS_FP32)
            gather_whole<uint4, true>(r, g, w, to);
        else if (r.rows == ROWS_16BIT)
            gather_whole<uint2, true>(r, g, w, to);
        else if (r.type == FP32)
            gather_elements<uint32_t>(r, g, w, to);
        else
            gather_elements<uint16_t>(r, g, w, to);
    }

    /* Afterwards, for the window that begins at item `at`, WINDOWS_AHEAD from there. */
    template <int RULE, class Items>
    static __device__ __forceinline__ void fetch(const struct runs &r, const struct lanes &g,
                                                 Items *items, int at) {
        if (RULE == NO_RULE || g.me >= window_items<AHEAD>(g)) return;
        const struct item soon = items->get(r, at + g.me);
        if (soon.ends) table_prefetch(&r.target.io[soon.table], soon.row);
    }
};
