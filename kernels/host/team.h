/* SPDX-License-Identifier: MIT
 *
 * Prefix sums over a team of threads. Every thread of the team calls these.
 */
#pragma once

#include <omp.h>
#include <stddef.h>
#include <stdint.h>

/* Exclusive prefix sum: every thread passes a count and gets the sum over the threads before it.
 * part[threads + 1]: its last element becomes the total. */
static inline int64_t team_scan(int64_t *part, int64_t count, int thread, int threads) {
    part[thread + 1] = count;
#pragma omp barrier
#pragma omp single
    {
        part[0] = 0;
        for (int k = 0; k < threads; k++) part[k + 1] += part[k];
    }
    return part[thread];
}

/* Replaces each count, [threads][buckets], by the index where the thread writes its first entry of
 * the bucket. begin[buckets + 1] gets the first index of each bucket; may be NULL. */
static inline void team_cursors(uint32_t *count, int64_t buckets, uint32_t *begin, int threads) {
#pragma omp barrier
#pragma omp single
    {
        uint32_t sum = 0;
        for (int64_t b = 0; b < buckets; b++) {
            if (begin) begin[b] = sum;
            for (int k = 0; k < threads; k++) {
                const uint32_t n = count[k * buckets + b];
                count[k * buckets + b] = sum;
                sum += n;
            }
        }
        if (begin) begin[buckets] = sum;
    }
}
