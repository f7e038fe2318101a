/* SPDX-License-Identifier: MIT
 *
 * Tables of different kinds: lanes that cover a row of 256 columns leave a row of 16 four of 32, and a lean kernel has
 * one rule. So the keys of tables that are alike lie together, and each such class has launches of its own, for its part
 * of the sorted entries. How many entries a class has is known on the host, since each class has a key for padding.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/scan.cuh"
#include "kernels/device/target.cuh"

enum { CLASSES_MOST = 64 };

struct classes {
    int count;
    bool of_any_kind; /* there are more kinds than classes: tables of one cover are together */
    struct {
        int32_t dim;     /* the widest */
        int64_t entries; /* of its tables */
        int64_t padding; /* the key of padding */
        struct kind kind;
    } of[CLASSES_MOST];
};

static __host__ __device__ inline struct kind kind_in(const struct classes &c,
                                                      const struct table_shape *t) {
    const struct kind any = {ANY_KIND, false};
    return c.of_any_kind ? any : kind_of(t);
}

/* The class of a table; c.count if there is none. */
static __host__ __device__ inline int class_of(const struct classes &c,
                                               const struct table_shape *t) {
    const struct kind kind = kind_in(c, t);
    const struct cover cover = cover_of(t->dim);
    int k = 0;
    for (; k < c.count; k++) {
        const struct cover of = cover_of(c.of[k].dim);
        if (of.tiles == cover.tiles && of.count == cover.count && c.of[k].kind.rule == kind.rule &&
            c.of[k].kind.plain == kind.plain)
            break;
    }
    return k;
}

/* entries: of table t. Classes are in the order of their first tables. A table without entries is in the first class, if
 * no other table is like it. */
template <class Entries>
static inline struct classes classes_of(const struct batch *in, const Entries &entries,
                                        bool of_any_kind = false) {
    struct classes c = {};
    c.of_any_kind = of_any_kind;
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *table = &in->tables[t];
        if (entries(t) == 0) continue;
        const int k = class_of(c, table);
        if (k == CLASSES_MOST) return classes_of(in, entries, true);
        if (k == c.count) c.of[c.count++] = {table->dim, 0, 0, kind_in(c, table)};
        if (table->dim > c.of[k].dim) c.of[k].dim = table->dim;
        c.of[k].entries += entries(t);
    }
    if (c.count == 0) c.of[c.count++] = {widest(in), 0, 0, {ANY_KIND, false}};
    for (int32_t t = 0; t < in->num_tables; t++)
        c.of[class_of(c, &in->tables[t]) % c.count].padding += in->tables[t].rows;
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
        const auto is_in = [&](int32_t t) {
            return class_of(c, &in.device_tables[t]) % c.count == k;
        };
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
