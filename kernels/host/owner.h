/* SPDX-License-Identifier: MIT
 *
 * Owner-computes: which thread owns a row. Rows are owned in blocks of 512, so a cache line of a
 * bitmap over rows has one owner. A hash assigns the blocks, so hot neighbours and tiny tables do
 * not all go to one thread.
 */
#pragma once

#include <stdint.h>

enum { OWNER_BLOCK = 512 };

static inline int owner_of(int32_t table, int64_t row, int threads) {
    uint32_t hash = ((uint32_t)(row / OWNER_BLOCK) + (uint32_t)table * 0x85ebca6bu) * 0x9e3779b1u;
    return (int)((uint64_t)hash * (uint32_t)threads >> 32);
}
