/* SPDX-License-Identifier: MIT
 *
 * A model of a GPU's second-level cache: sets of lines of four sectors, the line that was used
 * least recently leaves first, written sectors go to memory when their line leaves. It counts the
 * sectors that move from and to memory, and the fate of every prefetched sector.
 *
 * A sector that stores fill is not read first. If a store leaves gaps, the sector is read when a
 * load wants it or its line leaves, as memory with error correction must. Set numbers are hashed.
 *
 * The model has no first-level cache, no compression and one point of coherence. The caches of
 * A100, H100 and B200 have two halves that may hold a line twice: a model of half the size is the
 * other extreme. The policy of the hardware is not published.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "extras/cuda/counts/request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In sectors, except requests. */
struct l2_counts {
    uint64_t requests;
    uint64_t hits, misses; /* of loads and atomics */
    uint64_t read, written;
    /* Prefetched: in time, or before its data can have come, or evicted before the use; and those
     * that memory did not have to fetch, because they were there. */
    uint64_t prefetched, present, timely, late, early;
};

struct l2;

/* late: requests that must lie between a prefetch and the use for its data to have come. */
struct l2 *l2_open(uint64_t bytes, int ways, uint64_t late);
void l2_close(struct l2 *l2);

/* One request of some warp. */
void l2_request(struct l2 *l2, const struct request *r);

struct l2_counts l2_counted(const struct l2 *l2);

/* Sectors that are in the cache and not in memory. */
uint64_t l2_dirty(const struct l2 *l2);

#ifdef __cplusplus
}
#endif
