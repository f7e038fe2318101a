/* SPDX-License-Identifier: MIT
 *
 * Prefetches, and the distance at which a host kernel prefetches rows.
 */
#pragma once

#include "kernels/host/walk.h"

enum { LINE = 64 };

/* The cache that a prefetch fills. More misses can be in flight into L2. L1 is better where little
 * other work hides the time to read L2. */
enum prefetch_into { INTO_L1, INTO_L2 };

ALWAYS_INLINE void prefetch(const void *p, int64_t bytes, const enum prefetch_into into) {
    const uintptr_t begin = (uintptr_t)p; /* p may be NULL */
    if (into == INTO_L1)
        for (int64_t k = 0; k < bytes; k += LINE)
            __builtin_prefetch((const void *)(begin + (uintptr_t)k), 0, 3);
    else
        for (int64_t k = 0; k < bytes; k += LINE)
            __builtin_prefetch((const void *)(begin + (uintptr_t)k), 0, 2);
}

/* The distance of a prefetch: as many rows as have `bytes` bytes. */
struct prefetch_ahead {
    enum prefetch_into into;
    int32_t bytes;
};

/* The choice for all host kernels of a process. harness/prefetch_choice.h makes it before the first thread starts. It
 * changes no result. kernels/cpu/tried.md lists measured choices, and `make tune` measures on the machine at hand. */
struct prefetch_choice {
    struct prefetch_ahead rows;  /* weights and states of the rows that are updated next */
    struct prefetch_ahead grads; /* the gradient rows that are summed next */
    int32_t sort_bytes;          /* bytes of a bucket's rows that go into L2 while it is grouped */
};

/* The choice for caches of l1 and l2 bytes. Measured: rows 4 KiB ahead are slower with row-wise Adagrad, 16 KiB with
 * Adam. On Zen 3 (32 KiB of L1, 512 KiB of L2) gradients 2 KiB ahead and 256 KiB in the sort take 0.90 to 0.98 of the
 * time of 4 KiB and 512 KiB. On Granite Rapids (48 KiB, 2 MiB) 2 and 4 KiB differ by 2 %, 512 KiB and 1 MiB by 1 %. */
#define PREFETCH_FOR(l1, l2)                                                                       \
    { .rows = {INTO_L2, 8192}, .grads = {INTO_L1, (l1) / 16}, .sort_bytes = (l2) / 2 }

extern struct prefetch_choice prefetch_choice;

enum { ROWS_AHEAD_LEAST = 2, ROWS_AHEAD_MOST = 32 };

/* How many rows of row_bytes bytes ahead the prefetch is. */
ALWAYS_INLINE int64_t rows_ahead(struct prefetch_ahead ahead, int64_t row_bytes) {
    return max64(ROWS_AHEAD_LEAST, min64(ahead.bytes / row_bytes, ROWS_AHEAD_MOST));
}
