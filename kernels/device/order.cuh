/* SPDX-License-Identifier: MIT
 *
 * Tables of different widths: lanes that cover a row of 256 columns leave a row of 16 four of 32. So the keys of
 * tables that are covered alike lie together, and each such class has a launch of its own, for its part of the
 * sorted entries. How many entries a class has is known on the host, since each class has a key for padding.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/scan.cuh"
#include "kernels/device/target.cuh"

enum { CLASSES_MOST = 16 };

struct classes {
    int count;
    struct {
        int32_t dim;     /* the widest */
        int64_t entries; /* of its tables */
        int64_t padding; /* the key of padding */
    } of[CLASSES_MOST];
};

static __host__ __device__ inline bool same_cover(struct cover a, struct cover b) {
    return a.tiles == b.tiles && a.count == b.count;
}

/* The class of a table of that dim; 0 for one that has no entries. */
static __host__ __device__ inline int class_of(const struct classes &c, int32_t dim) {
    for (int k = 0; k < c.count; k++)
        if (same_cover(cover_of(c.of[k].dim), cover_of(dim))) return k;
    return 0;
}

/* entries: of table t. Classes are in the order of their first tables. */
template <class Entries>
static inline struct classes classes_of(const struct batch *in, const Entries &entries) {
    struct classes c = {};
    for (int32_t t = 0; t < in->num_tables; t++) {
        const int32_t dim = in->tables[t].dim;
        if (entries(t) == 0) continue;
        int k = class_of(c, dim);
        if (c.count == 0 || !same_cover(cover_of(c.of[k].dim), cover_of(dim))) k = c.count++;
        if (dim > c.of[k].dim) c.of[k].dim = dim;
        c.of[k].entries += entries(t);
    }
    if (c.count == 0) c.of[c.count++].dim = widest(in);
    for (int32_t t = 0; t < in->num_tables; t++)
        c.of[class_of(c, in->tables[t].dim)].padding += in->tables[t].rows;
    for (int k = 1; k < c.count; k++) c.of[k].padding += c.of[k - 1].padding + 1;
    return c;
}

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
        const auto is_in = [&](int32_t t) { return class_of(c, in.device_tables[t].dim) == k; };
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
