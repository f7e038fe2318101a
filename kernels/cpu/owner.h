/* SPDX-License-Identifier: MIT
 *
 * Owner-computes: which thread owns a row. Blocks of 64 rows, so that a word of a bitmap over rows
 * has one owner, dealt by a hash, so that hot neighbours do not meet on one thread.
 */
#ifndef EMBFUSE_CPU_OWNER_H
#define EMBFUSE_CPU_OWNER_H

#include <stdint.h>

static inline int owner_of(int64_t row, int threads) {
    uint32_t hash = (uint32_t)(row >> 6) * 0x9e3779b1u;
    return (int)((uint64_t)hash * (uint32_t)threads >> 32);
}

#endif
