/* SPDX-License-Identifier: MIT
 *
 * The order of the tables by their classes.
 */
#pragma once

#include "kernels/device/classes.cuh"
#include "kernels/device/entries.cuh"
#include "kernels/device/scan.cuh"

struct rows_and_tables {
    int64_t rows;
    int32_t tables;
};

static __device__ inline struct rows_and_tables operator+(struct rows_and_tables x,
                                                          struct rows_and_tables y) {
    return {x.rows + y.rows, x.tables + y.tables};
}

/* One block: sets range[num_tables] and order[num_tables]. */
static __global__ void __launch_bounds__(SCAN_BLOCK)
    order_tables(const struct batch in, const struct classes c, struct key_range *range,
                 struct placed_table *order) {
    struct rows_and_tables before = {};
    for (int k = 0; k < c.count; k++) {
        const auto is_in = [&](int32_t t) { return class_of(c, &in.device_tables[t]) == k; };
        const auto get = [&](int32_t t) -> struct rows_and_tables {
            if (!is_in(t)) return {};
            return {in.device_tables[t].rows, 1};
        };
        const auto put = [&](int32_t t, struct rows_and_tables sum) {
            if (!is_in(t)) return;
            const struct rows_and_tables at = before + sum;
            range[t] = {at.rows, c.of[k].padding};
            order[at.tables] = {at.rows, t};
        };
        const struct rows_and_tables all =
            items_before<struct rows_and_tables>(in.num_tables, get, put);
        before = {c.of[k].padding + 1, before.tables + all.tables};
    }
}
