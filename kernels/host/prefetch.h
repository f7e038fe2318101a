/* SPDX-License-Identifier: MIT
 *
 * Prefetches, and how far ahead of its work a host kernel prefetches rows.
 */
#pragma once

#include "kernels/host/walk.h"

enum { LINE = 64 };

/* The cache that a prefetch fills. More misses can be in flight into L2. L1 is better where little
 * other work hides the time to read L2. */
enum prefetch_into { INTO_L1, INTO_L2 };

ALWAYS_INLINE void prefetch(const void *p, int64_t bytes, const enum prefetch_into into) {
    const char *const end = (const char *)p + bytes;
    if (into == INTO_L1)
        for (const char *c = p; c < end; c += LINE) __builtin_prefetch(c, 0, 3);
    else
        for (const char *c = p; c < end; c += LINE) __builtin_prefetch(c, 0, 2);
}

/* How far ahead: as many rows as have so many bytes. */
struct prefetch_ahead {
    enum prefetch_into into;
    int32_t bytes;
};

/* The choice for all host kernels of a process, made before its first thread. It changes no result. The
 * defaults are parts of 32 KiB of L1 and 1 MiB of L2, as in Zen 4. Measured: rows 4 KiB ahead are slower with
 * row-wise Adagrad, 16 KiB with Adam; gradients 2 and 8 KiB ahead are slower at some dims. docs/kernels.md has
 * what else was tried. `make tune` tries the machine at hand; harness/prefetch_choice.h reads the environment. */
struct prefetch_choice {
    struct prefetch_ahead rows;  /* weights and states of the rows that are updated next */
    struct prefetch_ahead grads; /* the gradient rows that are summed next */
    int32_t sort_bytes; /* rows of a bucket, or the begin of each, into L2 while it is sorted */
};

#define PREFETCH_DEFAULT                                                                           \
    { .rows = {INTO_L2, 8192}, .grads = {INTO_L1, 4096}, .sort_bytes = 524288 }

extern struct prefetch_choice prefetch_choice;

/* Rows ahead, for rows of so many bytes. */
ALWAYS_INLINE int64_t rows_ahead(struct prefetch_ahead ahead, int64_t row_bytes) {
    enum { LEAST = 2, MOST = 32 };
    return max64(LEAST, min64(ahead.bytes / row_bytes, MOST));
}
