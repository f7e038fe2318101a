/* SPDX-License-Identifier: MIT
 *
 * The separate optimizer pass over a compact gradient [runs][stride], one row for each touched row.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/target.cuh"

/* Most rows that a batch of this shape can touch, padding counted as one. */
static inline int64_t touchable_rows(const struct batch *in) {
    int64_t rows = has_padding(in);
    for (int32_t t = 0; t < in->num_tables; t++) rows += table_touchable(in, t);
    return rows;
}

/* Enqueues the pass. */
cudaError_t compact_update(const struct compact *c, const struct target *to, const struct batch *in,
                           cudaStream_t stream);
