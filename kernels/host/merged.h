/* SPDX-License-Identifier: MIT
 *
 * The separate optimizer pass over a merged gradient.
 */
#pragma once

#include "kernels/gradient.h"
#include "kernels/host/update.h"

enum { MERGED_AHEAD = 16 }; /* distance of the prefetch, in rows */

/* Applies each table's rule once to every row of a merged gradient, of[num_tables]. May change the
 * values. Every thread of the team calls it; it ends without a barrier. */
static inline void merged_update(const struct batch *in, const struct sparse_gradient *of,
                                 const struct rule_step *steps, const struct table *io) {
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct updater update = updater_of(in, t, steps, io);
        const int64_t count = *of[t].count, *rows = of[t].rows;
        float *values = of[t].values;
#pragma omp for schedule(dynamic, 256) nowait
        for (int64_t u = 0; u < count; u++) {
            if (u + MERGED_AHEAD < count)
                updater_prefetch(&update, rows[u + MERGED_AHEAD], update.dim, INTO_L1);
            updater_row(&update, rows[u], values + u * update.dim);
        }
    }
}
