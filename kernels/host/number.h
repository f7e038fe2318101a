/* SPDX-License-Identifier: MIT
 *
 * Numbers the distinct rows of a bucket in the order of their first lookups, with a hash table that stays in L1:
 * linear probing, at most half full.
 */
#pragma once

#include "kernels/host/partition.h"

struct numbers {
    uint32_t *slot; /* [number_slots(n)] number + 1 of a row; 0: free */
    uint32_t *row;  /* [n] by number */
    uint32_t mask;
    uint32_t rows; /* numbered so far */
};

/* Slots of a table for n lookups: 2*n to 4*n. */
static inline uint32_t number_slots(uint32_t n) {
    return UINT32_C(2) << bits_for(n);
}

static inline struct numbers numbers_for(uint32_t n, uint32_t *slot, uint32_t *row) {
    memset(slot, 0, number_slots(n) * sizeof *slot);
    return (struct numbers){slot, row, number_slots(n) - 1, 0};
}

/* A new row gets the number that x->rows had. */
ALWAYS_INLINE uint32_t number_of(struct numbers *x, uint32_t row) {
    uint32_t h = row_hash(row) & x->mask;
    while (x->slot[h] && x->row[x->slot[h] - 1] != row) h = (h + 1) & x->mask;
    if (!x->slot[h]) {
        x->row[x->rows] = row;
        x->slot[h] = ++x->rows;
    }
    return x->slot[h] - 1;
}
