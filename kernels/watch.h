/* SPDX-License-Identifier: MIT
 *
 * A row monitor records how often a row is touched, when it was last touched, and the norm of its summed gradient. A
 * kernel sees each touched row once in a step, with the sum in registers or L1, so a step is the cheapest place to
 * look.
 *
 * A record for every row would cost another cache line for each touched row. So the default watches one row in
 * 2^shift: rows with row % 2^shift == first. Shares of rows are then estimates.
 */
#pragma once

#include <stdint.h>

#include "kernels/dtype.h"

struct watched_row {
    uint32_t touches;   /* steps that touched it; stays at its largest value */
    uint32_t last_step; /* the last step that touched it, modulo 2^32 */
    float last_norm;    /* L2 norm of the summed gradient in that step, as the rule got it */
    float largest_norm; /* over all steps */
};

/* Norms are counted in bins by the upper bits of an fp32: eight bins for each power of two. */
enum { NORM_SHIFT = 20, NORM_BINS = 1 << (31 - NORM_SHIFT) };

struct watch {
    int shift;
    int64_t first;
    struct watched_row *row; /* [row >> shift] */
    uint64_t *norms;         /* [NORM_BINS] counts of touches of watched rows, by norm */
};

HOST_DEVICE bool watch_has(const struct watch *w, int64_t row) {
    return (row & ((INT64_C(1) << w->shift) - 1)) == w->first;
}

static inline int norm_bin(float norm) {
    return (int)((float_bits(norm) & 0x7fffffff) >> NORM_SHIFT);
}

/* The lower end of a bin. */
static inline float norm_of_bin(int bin) {
    return bits_float((uint32_t)bin << NORM_SHIFT);
}

/* Records that a step touches a watched row. One thread of a step has the row; all threads share the bins. */
static inline void watch_touch(const struct watch *w, int64_t row, int64_t step, const float *grad,
                               int32_t dim) {
    struct watched_row *x = &w->row[row >> w->shift];
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int32_t d = 0; d < dim; d++) sum += grad[d] * grad[d];
    const float norm = sqrtf(sum);
    x->touches += x->touches != UINT32_MAX;
    x->last_step = (uint32_t)step;
    x->last_norm = norm;
    x->largest_norm = norm > x->largest_norm ? norm : x->largest_norm;
    __atomic_fetch_add(&w->norms[norm_bin(norm)], 1, __ATOMIC_RELAXED);
}
