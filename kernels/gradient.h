/* SPDX-License-Identifier: MIT
 *
 * The gradient as a product: the looked-up rows of each table and their gradients, which a kernel
 * hands to an optimizer elsewhere. As Paddle's SelectedRows, PyTorch's sparse COO gradient
 * (sparse=True), and IndexedSlices of TensorFlow.
 *
 *   merged    each touched row once, ascending, with the sum of its gradients. As coalesce() of
 *             PyTorch, MergeAdd of Paddle
 *   unmerged  an entry for every lookup, in the order of the lookups
 *
 * Padding has no entry. The gradient of a lookup is its gradient row times its per-sample weight,
 * for a mean divided by the number of lookups of the bag that are not padding. With POOL_MAX it is 0 in
 * the columns that the lookup does not win; its row has an entry even if it wins none. Values are fp32,
 * whatever the type of the gradients, and sums from +0: no value is -0.
 *
 * Only a linear rule may take an unmerged gradient entry by entry. Every other rule would step
 * several times for one row, which is another function.
 */
#pragma once

#include "kernels/scratch.h"

/* The part of one table. Behind `count` entries, rows and values keep their bits. */
struct sparse_gradient {
    int64_t *count;
    int64_t *rows;    /* [capacity] ids, local to the table */
    float *values;    /* [capacity][dim] */
    int64_t capacity; /* the most entries that a batch of this shape can have */
};

/* The part of the next table; tables follow each other from the counts of all tables on. */
HOST_DEVICE struct sparse_gradient gradient_take(struct scratch *s, const struct table_shape *table,
                                                 bool merged, int64_t *count) {
    struct sparse_gradient g;
    g.count = count;
    g.capacity = merged && table->rows < table->lookups ? table->rows : table->lookups;
    g.rows = (int64_t *)scratch_take(s, g.capacity, sizeof *g.rows);
    g.values = (float *)scratch_take(s, g.capacity * table->dim, sizeof *g.values);
    return g;
}

/* Returns the bytes of a gradient of a batch of this shape. The unmerged form never has fewer.
 * of: [num_tables] receives the parts, in ascending places of the output; NULL: only counts. */
static inline size_t gradient_lay_out(const struct batch *in, bool merged, void *output,
                                      struct sparse_gradient *of) {
    struct scratch s = {(char *)output, 0};
    int64_t *count = (int64_t *)scratch_take(&s, in->num_tables, sizeof *count);
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct sparse_gradient g =
            gradient_take(&s, &in->tables[t], merged, count ? count + t : NULL);
        if (of) of[t] = g;
    }
    return s.used;
}

/* The part of table t alone, in O(t): a device computes it for itself. */
HOST_DEVICE struct sparse_gradient gradient_part(const struct table_shape *tables,
                                                 int32_t num_tables, bool merged, void *output,
                                                 int32_t t) {
    struct scratch s = {(char *)output, 0};
    int64_t *count = (int64_t *)scratch_take(&s, num_tables, sizeof *count);
    for (int32_t k = 0; k < t; k++) gradient_take(&s, &tables[k], merged, count + k);
    return gradient_take(&s, &tables[t], merged, count + t);
}
