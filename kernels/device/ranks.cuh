/* SPDX-License-Identifier: MIT
 *
 * A stable distribution by digits: a block takes a tile of items, a warp a part of it, in their order. The place of an
 * item is the first place of its digit, plus the items with that digit in earlier warps, plus those before it in its
 * own warp. All counts are exact, so the places depend only on the items.
 *
 * Source: the ranking by matches of a warp in Adinets and Merrill 2022, Onesweep (arXiv:2206.01784).
 */
#pragma once

#include "kernels/device/lanes.cuh"

constexpr int RANK_BLOCK = 256, RANK_WARPS = RANK_BLOCK / WARP;

enum : unsigned { NO_DIGIT = 0xffff, NO_PLACE = 0xffffffff };

/* What a lane knows of the ITEMS items of a tile that it takes: the digit of each, and its rank among the items of the
 * warp with that digit. In registers, with loops that are unrolled; or in shared memory, with loops that are not. */
template <int ITEMS> struct ranks_here {
    static constexpr int items = ITEMS, unrolled = ITEMS;
    uint32_t digit_and_rank[ITEMS];
    __device__ uint32_t &at(int r) {
        return digit_and_rank[r];
    }
};

template <int ITEMS> struct ranks_shared {
    static constexpr int items = ITEMS, unrolled = 1;
    uint32_t *digit_and_rank; /* [ITEMS][RANK_BLOCK] */
    __device__ uint32_t &at(int r) {
        return digit_and_rank[r * RANK_BLOCK + (int)threadIdx.x];
    }
};

/* The number in the tile of this lane's item r. */
template <int ITEMS> static __device__ inline int tile_item(int r) {
    const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
    return (warp * ITEMS + r) * WARP + lane;
}

/* Whether the warp has none of the tile's `count` items in turn r. */
template <int ITEMS> static __device__ inline bool tile_is_over(int r, int count) {
    return tile_item<ITEMS>(r) - (int)threadIdx.x % WARP >= count;
}

/* Sets counts[RANK_WARPS][digits] to the items with a digit in each warp, and the ranks. digit(r): of the lane's item
 * r; NO_DIGIT: it does not take part. A warp skips turns in which all its items are from `count` on. The block calls this. */
template <class Ranks, class Digit>
static __device__ __forceinline__ void tile_rank(Ranks *ranks, uint16_t *counts, int digits,
                                                 int count, const Digit &digit) {
    uint16_t *mine = counts + (int)threadIdx.x / WARP * digits;
    for (int k = (int)threadIdx.x; k < RANK_WARPS * digits; k += RANK_BLOCK) counts[k] = 0;
    __syncthreads();
#pragma unroll(Ranks::unrolled)
    for (int r = 0; r < Ranks::items; r++) {
        if (tile_is_over<Ranks::items>(r, count)) continue;
        const unsigned d = digit(r), peers = __match_any_sync(ALL_LANES, d),
                       before = peers & ((1u << threadIdx.x % WARP) - 1u);
        const unsigned earlier = d == NO_DIGIT ? 0 : mine[d];
        __syncwarp();
        if (d != NO_DIGIT && before == 0) mine[d] = (uint16_t)(earlier + (unsigned)__popc(peers));
        __syncwarp();
        ranks->at(r) = d << 16 | (earlier + (unsigned)__popc(before));
    }
    __syncthreads();
}

/* Turns counts into the items with a digit in earlier warps, and calls take(digit, items in all warps). */
template <class Take>
static __device__ inline void tile_add_warps(uint16_t *counts, int digits, const Take &take) {
    for (int d = (int)threadIdx.x; d < digits; d += RANK_BLOCK) {
        unsigned sum = 0;
        for (int w = 0; w < RANK_WARPS; w++) {
            const unsigned here = counts[w * digits + d];
            counts[w * digits + d] = (uint16_t)sum;
            sum += here;
        }
        take(d, sum);
    }
    __syncthreads();
}

/* Calls put(r, place) for the lane's item of each turn that tile_rank() did not skip; NO_PLACE: it does not take part.
 * first[digits]: the first place of each digit. The block calls this, and whole warps call put. */
template <class Ranks, class Put>
static __device__ __forceinline__ void tile_put(Ranks *ranks, const uint16_t *counts, int digits,
                                                int count, const uint32_t *first, const Put &put) {
    const uint16_t *mine = counts + (int)threadIdx.x / WARP * digits;
#pragma unroll(Ranks::unrolled)
    for (int r = 0; r < Ranks::items; r++) {
        if (tile_is_over<Ranks::items>(r, count)) continue;
        const unsigned d = ranks->at(r) >> 16, rank = ranks->at(r) & 0xffffu;
        put(r, d == NO_DIGIT ? NO_PLACE : first[d] + mine[d] + rank);
    }
    __syncthreads();
}
