/* SPDX-License-Identifier: MIT
 *
 * The initial values of weights and states, a function of (seed, table, array, row, column): the
 * same on the host and on a device, so that a touched row can be restored, and a row that nobody
 * touched be checked, without a copy.
 */
#ifndef EMBFUSE_INITIAL_H
#define EMBFUSE_INITIAL_H

#include "harness/rng.h"
#include "kernels/rules.h"

/* The arrays of a table, in this order; also the streams of initial values. */
enum table_array {
    TABLE_WEIGHT,
    TABLE_ROW_STATE,
    TABLE_ELEM, /* and TABLE_ELEM + 1, ... */
    TABLE_ARRAYS = TABLE_ELEM + RULE_ELEM_STATES
};

RNG_FN uint64_t initial_stream(uint64_t seed, int32_t table, int array) {
    return rng_key(seed, (uint64_t)table * TABLE_ARRAYS + (uint64_t)array);
}

RNG_FN uint32_t initial_row_key(uint64_t stream, int64_t row) {
    return (uint32_t)rng_key(stream, (uint64_t)row);
}

/* Weights in [-1/2, 1/2). */
RNG_FN float initial_weight(uint32_t row_key, int64_t column) {
    return (float)(int32_t)rng_u32(row_key, (uint32_t)column) * 0x1p-32f;
}

/* States in [0, 1/16): an accumulator of squares is never negative. */
RNG_FN float initial_state(uint32_t row_key, int64_t column) {
    return (float)(int32_t)(rng_u32(row_key, (uint32_t)column) >> 8) * 0x1p-28f;
}

#endif
