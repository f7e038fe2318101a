/* SPDX-License-Identifier: MIT
 *
 * The rows of a list (runs.cuh) for the kernels that update them.
 */
#pragma once

#include "kernels/device/runs.cuh"

struct listed_row {
    bool there; /* otherwise nothing else counts */
    uint32_t row;
    int32_t table;
    const float *sum;
};

/* Row `number`, if it is wanted and of the launch's kind. */
static __device__ inline struct listed_row listed_at(const struct row_list &r, uint32_t number,
                                                     bool wanted) {
    struct listed_row x = {wanted && number < *r.count};
    const uint32_t key = x.there ? r.key[number] : 0;
    if (key == r.padding) x.there = false;
    if (!x.there) return x;
    const struct placed_table at = table_at(r.target, place_of_key(r.target, key));
    const struct table_shape *t = &r.target.tables[at.table];
    if (r.mixed && !(kind_of(t, r.general) == r.kind)) x.there = false;
    x.row = key - (uint32_t)at.first;
    x.table = at.table;
    if (r.first)
        x.sum = r.sums + r.first[at.table] + (int64_t)x.row * t->dim;
    else
        x.sum = r.sums + (int64_t)(r.place ? r.place[number] : number) * r.stride;
    return x;
}
