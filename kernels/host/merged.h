/* SPDX-License-Identifier: MIT
 *
 * The update of rows whose gradients are summed in memory.
 */
#pragma once

#include "kernels/host/row.h"
#include "kernels/host/update.h"

/* Updates the rows of `count` entries, whose positions are the numbers of their sums, sum[][dim]; it may change these.
 * begin: 0, 1, .. count. */
static inline void merged_update(const struct updater *u, float *sum, const uint64_t *entry,
                                 const uint32_t *begin, uint32_t count) {
    const uint32_t ahead = updater_ahead(u);
    update_runs *const plain = plain_runs_of(u, FP32);
    if (plain) {
        const struct plain_runs x = {.grad = (const char *)sum,
                                     .stride = u->dim * (int64_t)sizeof *sum,
                                     .entry = entry,
                                     .shape = u->shape,
                                     .begin = begin,
                                     .count = count,
                                     .most = 2,
                                     .rows_ahead = ahead,
                                     .grads_ahead = (uint32_t)grads_ahead(FP32, u->dim)};
        plain(u->step, &u->table, &x);
        return;
    }
    for (uint32_t k = 0; k < count; k++) {
        if (k + ahead < count)
            updater_prefetch(u, entry_row(entry[k + ahead]), u->dim, prefetch_choice.rows.into);
        updater_row(u, entry_row(entry[k]), sum + (uint32_t)entry[k] * (int64_t)u->dim);
    }
}
