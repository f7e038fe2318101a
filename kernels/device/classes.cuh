/* SPDX-License-Identifier: MIT
 *
 * Tables of different kinds. Of 32 lanes that cover a row of 256 columns, a row of 16 columns would use four, and a
 * kernel that updates rows has one rule. So the keys of tables of one kind are contiguous, and each such class has
 * launches of its own, for its part of the sorted entries. The host knows how many entries a class has, since each
 * class has a key for padding.
 */
#pragma once

#include "kernels/device/target.cuh"

enum { CLASSES_MOST = 64 };
static_assert((int)RULE_COUNT <= (int)CLASSES_MOST, "a class for each rule");

struct classes {
    int count;
    bool general; /* there are more kinds than classes, so a class has all tables of a rule */
    struct {
        int32_t dim;     /* the widest */
        int64_t entries; /* of its tables */
        int64_t padding; /* the key of padding */
        struct kind kind;
    } of[CLASSES_MOST];
};

/* Names the code that updates the rows of a batch, for the field `variant` of struct kernel. */
static inline const char *rows_variant(const struct batch *in) {
    int32_t general = 0;
    for (int32_t t = 0; t < in->num_tables; t++)
        general += kind_of(&in->tables[t], false).way == WAY_GENERAL;
    return general == 0 ? "lean" : general == in->num_tables ? "general" : "lean+general";
}

/* The class of a table; c.count if there is none. */
static __host__ __device__ inline int class_of(const struct classes &c,
                                               const struct table_shape *t) {
    const struct kind kind = kind_of(t, c.general);
    int k = 0;
    while (k < c.count && !(c.of[k].kind == kind)) k++;
    return k;
}

/* Classes are in the order of their first tables. */
static inline struct classes classes_of(const struct batch *in, bool general = false) {
    struct classes c = {};
    c.general = general;
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *table = &in->tables[t];
        const int k = class_of(c, table);
        if (k == CLASSES_MOST) return classes_of(in, true);
        if (k == c.count) c.of[c.count++] = {table->dim, 0, 0, kind_of(table, general)};
        c.of[k].padding += table->rows;
        if (table->dim > c.of[k].dim) c.of[k].dim = table->dim;
        c.of[k].entries += table->lookups;
    }
    for (int k = 1; k < c.count; k++) c.of[k].padding += c.of[k - 1].padding + 1;
    return c;
}
