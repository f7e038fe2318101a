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
 * for a mean divided by the number of lookups of the bag that are not padding. Values are fp32,
 * whatever the type of the gradients, and sums from +0: no value is -0.
 *
 * Only a linear rule may take an unmerged gradient entry by entry. Every other rule would step
 * several times for one row, which is another function.
 */
#pragma once

#include "kernels/scratch.h"
#include "kernels/shape.h"

/* The part of one table. Behind `count` entries, rows and values keep their bits. */
struct sparse_gradient {
    int64_t *count;
    int64_t *rows;    /* [capacity] ids, local to the table */
    float *values;    /* [capacity][dim] */
    int64_t capacity; /* the most entries that a batch of this shape can have */
};

/* Returns the bytes of a gradient of a batch of this shape. The unmerged form never has fewer.
 * of: [num_tables] receives the parts, in ascending places of the output; NULL: only counts. */
static inline size_t gradient_lay_out(const struct batch *in, bool merged, void *output,
                                      struct sparse_gradient *of) {
    struct scratch s = {(char *)output, 0};
    int64_t *count = (int64_t *)scratch_take(&s, in->num_tables, sizeof *count);
    for (int32_t t = 0; t < in->num_tables; t++) {
        struct sparse_gradient g;
        g.capacity = merged ? table_touchable(in, t) : in->tables[t].lookups;
        g.count = count ? count + t : NULL;
        g.rows = (int64_t *)scratch_take(&s, g.capacity, sizeof *g.rows);
        g.values = (float *)scratch_take(&s, g.capacity * in->tables[t].dim, sizeof *g.values);
        if (of) of[t] = g;
    }
    return s.used;
}
