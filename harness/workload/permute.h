/* SPDX-License-Identifier: MIT
 *
 * A keyed bijection of [0, n): from popularity rank to row number, and from planned to shuffled
 * position. Without it hot rows are neighbours in memory, which flatters caches and TLB.
 *
 * A Feistel network (Luby and Rackoff, SIAM J. Comput. 1988) covers the smallest power of two >= n.
 * With cycle walking (Black and Rogaway, CT-RSA 2002), a value outside [0, n) passes the network
 * again, less than once on average. It needs no memory and computes any element alone.
 */
#pragma once

#include <stdint.h>
#include <stdlib.h>

#include "kernels/rng.h"

enum { PERMUTE_ROUNDS = 4 };

struct permute {
    uint64_t n;
    uint32_t key[PERMUTE_ROUNDS];
    int low_bits; /* a number is (high half, low half); the halves differ by at most one bit */
    uint32_t low_mask, high_mask;
};

/* 1 <= n <= 2^62. */
static inline struct permute permute_make(uint64_t key, int64_t n) {
    struct permute p = {.n = (uint64_t)n};
    int bits = 2; /* both halves need a bit */
    while ((uint64_t)1 << bits < p.n) bits++;
    p.low_bits = (bits + 1) / 2;
    p.low_mask = (uint32_t)(((uint64_t)1 << p.low_bits) - 1);
    p.high_mask = (uint32_t)(((uint64_t)1 << (bits - p.low_bits)) - 1);
    for (int r = 0; r < PERMUTE_ROUNDS; r++) p.key[r] = (uint32_t)rng_u64(key, (uint64_t)r);
    return p;
}

/* The image of x, 0 <= x < n. */
static inline int64_t permute_at(const struct permute *p, int64_t x) {
    uint64_t y = (uint64_t)x;
    do {
        uint32_t low = (uint32_t)y & p->low_mask, high = (uint32_t)(y >> p->low_bits);
        for (int r = 0; r < PERMUTE_ROUNDS; r += 2) {
            high ^= rng_u32(p->key[r], low) & p->high_mask;
            low ^= rng_u32(p->key[r + 1], high) & p->low_mask;
        }
        y = (uint64_t)high << p->low_bits | low;
    } while (y >= p->n);
    return (int64_t)y;
}

/* `count` distinct numbers below n in random order. The caller frees them; NULL: out of memory. */
static inline int64_t *permute_some(int64_t n, int64_t count) {
    int64_t *some = (int64_t *)malloc((size_t)count * sizeof *some);
    struct permute spread = permute_make(1, n);
    for (int64_t i = 0; some && i < count; i++) some[i] = permute_at(&spread, i);
    return some;
}
