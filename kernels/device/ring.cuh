/* SPDX-License-Identifier: MIT
 *
 * Gradient rows come to the lanes through a ring in shared memory: a lane copies the whole row of its item by one bulk
 * copy, for it knows the address. RING windows are in flight at once, twice as many rows as registers hold, without
 * shuffles of addresses. When a window has come, its rows go into registers as loaded ones do, and the window RING
 * windows ahead takes their place. So sums have the order, and the bits, of loaded rows.
 *
 * For groups of a warp or less. Rows are aligned and whole for bulk copies, and not of a max.
 */
#pragma once

#include "kernels/device/bulk.cuh"
#include "kernels/device/gathers.cuh"

enum {
    RING = 2, /* windows */
    RING_QUADS = (int)FLIGHT * SMALL_BLOCK,
    RING_WARPS = (int)SMALL_BLOCK / WARP,
    /* of a block: the windows, and a barrier of each warp for each of them */
    RING_BYTES =
        RING * (RING_QUADS * (int)sizeof(struct quad) + RING_WARPS * (int)sizeof(uint64_t)),
};

static __device__ inline struct quad *ring_here() {
    DYNAMIC_SHARED(struct quad, ring);
    return ring;
}

/* Of this warp, for window `number`. */
static __device__ inline uint64_t *ring_barrier(unsigned number) {
    uint64_t *first = (uint64_t *)(ring_here() + RING * RING_QUADS);
    return first + number % RING * RING_WARPS + threadIdx.x / WARP;
}

template <int TILES> struct copied_rows {
    enum { AHEAD = FLIGHT / TILES, WINDOWS_AHEAD = RING };

    /* The number of the window that begins at item `at`: windows have a power of two. */
    static __device__ __forceinline__ unsigned number_of(const struct lanes &g, int at) {
        return (unsigned)at >> (__ffs(window_items<AHEAD>(g)) - 1);
    }

    /* The row of item u in window `number` of this group. Rows u of all groups lie one after another. */
    static __device__ __forceinline__ struct quad *slot(const struct lanes &g, unsigned number,
                                                        int u) {
        const int group = (int)threadIdx.x - g.lane;
        return ring_here() + number % RING * RING_QUADS + (u * SMALL_BLOCK + group) * TILES;
    }

    template <int RULE, class Items>
    static __device__ __forceinline__ void begin(const struct runs &r, const struct lanes &g,
                                                 Items *items) {
        const int window = window_items<AHEAD>(g);
        if (threadIdx.x % WARP == 0)
            for (int k = 0; k < RING; k++)
                bulk_begin(ring_barrier((unsigned)k), WARP * window >> (__ffs(g.team) - 1));
        for (int k = 0; k < RING; k++) fetch<RULE>(r, g, items, k * window);
    }

    template <class Items>
    static __device__ __forceinline__ void take(const struct runs &r, const struct lanes &g,
                                                const Items &, const struct item &mine, int at,
                                                struct quad (&to)[AHEAD][TILES]) {
        const unsigned number = number_of(g, at);
        bulk_wait(ring_barrier(number), number / RING & 1);
        const struct window<AHEAD> w =
            window_of<AHEAD>(g, mine, [&](int u) { return (const char *)slot(g, number, u); });
        if (r.type == FP32)
            gather_whole<uint4, false>(r, g, w, to);
        else
            gather_whole<uint2, false>(r, g, w, to);
    }

    template <int RULE, class Items>
    static __device__ __forceinline__ void fetch(const struct runs &r, const struct lanes &g,
                                                 Items *items, int at) {
        const unsigned number = number_of(g, at);
        bulk_order(); /* all lanes have the rows that were there */
        if (g.me >= window_items<AHEAD>(g)) return;
        const struct item soon = items->get(r, at + g.me);
        bulk_copy(slot(g, number, g.me), items->row(r, soon.place),
                  (unsigned)(soon.dim * dtype_bytes(r.type)), ring_barrier(number),
                  policy_of_reads(r.read_once));
        if (RULE != NO_RULE && soon.ends) table_prefetch(&r.target.io[soon.table], soon.row);
    }
};
