/* SPDX-License-Identifier: MIT
 *
 * The initial values of weights and states: a function of (seed, table, array, row, column), where
 * enum table_array numbers the arrays. Host and device give the same values, so the harness can
 * restore touched rows and check untouched rows without a copy.
 */
#pragma once

#include "kernels/rng.h"
#include "kernels/kernel.h"
#include "kernels/rules.h"

/* The range of a state's initial values; see struct rule_state. */
struct initial_law {
    float low, high;
};
struct initial_laws {
    struct initial_law elem[RULE_ELEM_STATES], row[RULE_ROW_STATES];
};

static inline struct initial_laws initial_laws(enum rule_kind kind) {
    const struct rule_info *info = rule_info_of(kind); /* a copy for each row would take long */
    struct initial_laws laws;
    for (int k = 0; k < RULE_ELEM_STATES; k++)
        laws.elem[k].low = info->elem[k].low, laws.elem[k].high = info->elem[k].high;
    for (int k = 0; k < RULE_ROW_STATES; k++)
        laws.row[k].low = info->row[k].low, laws.row[k].high = info->row[k].high;
    return laws;
}

/* The key of row `row` of table number t, which may be a part of a larger table. */
RNG_FN uint32_t initial_key(uint64_t seed, int32_t t, const struct table_part *part, int array,
                            int64_t row) {
    enum { ARRAYS_EVER = 16 };
    const uint64_t stream =
        rng_key(seed, (uint64_t)(t + part->table) * ARRAYS_EVER + (uint64_t)array);
    return (uint32_t)rng_key(stream, (uint64_t)part_row(part, row));
}

/* Element d of a row of a part's array is this one in the whole table. */
RNG_FN int64_t initial_column(const struct table_part *part, int array, int64_t d) {
    return array == TABLE_ROW_STATE ? d : part->column + d;
}

/* Weights in [-1/2, 1/2). */
RNG_FN float initial_weight(uint32_t row_key, int64_t column) {
    return (float)(int32_t)rng_u32(row_key, (uint32_t)column) * 0x1p-32f;
}

/* The value before it is rounded to the type of the array. */
RNG_FN float initial_value(const struct initial_laws *laws, int array, uint32_t row_key,
                           int64_t column) {
    if (array == TABLE_WEIGHT) return initial_weight(row_key, column);
    const struct initial_law *law =
        array == TABLE_ROW_STATE ? &laws->row[column] : &laws->elem[array - TABLE_ELEM];
    float unit = (float)(int32_t)(rng_u32(row_key, (uint32_t)column) >> 8) * 0x1p-24f;
    return law->low + unit * (law->high - law->low);
}
