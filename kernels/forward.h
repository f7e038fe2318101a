/* SPDX-License-Identifier: MIT
 *
 * The forward: what a bag's output is. As torch.nn.functional.embedding_bag, modes sum, mean and max,
 * and torch.nn.functional.embedding (POOL_NONE), with per-sample weights for all of them but max.
 *
 *   sum   the sum over the bag's lookups of weight times row. Padding does not count
 *   mean  the same, divided by the number of lookups that are not padding
 *   none  weight times row of every lookup; the row of padding is a row like any other
 *   max   in each column the largest element of the bag's rows. Padding does not count
 *
 * A column's winner is the first lookup of the bag that counts, until the element of a later one is
 * greater (>): of equal elements, -0 and +0 too, the first one wins. A NaN that comes first wins, a
 * later NaN does not. launch.winners has the winners, and the column's whole gradient goes to that
 * lookup. (PyTorch's kernels for the CPU do the same; its max_indices are ids, not numbers of lookups.)
 *
 * An output row lies where the gradient row of the same bag (or lookup) lies in batch.grad. A bag
 * without lookups that count gets zeros. Elements between output rows keep their bits. Sums are in
 * fp32, in the order of the lookups, from +0 (for POOL_NONE too: no sum is -0). A max is the winner's
 * element as it is, -0 too. The output is rounded to the gradients' type, to nearest. So every kernel
 * gives the same bits.
 */
#pragma once

#include "kernels/scratch.h"
#include "kernels/shape.h"

/* The first element of the output, and of the winners, of a bag of a feature or, for POOL_NONE, of a
 * lookup. */
HOST_DEVICE int64_t forward_row(const struct feature *f, int64_t row) {
    return f->grad_offset + row * f->grad_stride;
}

/* Returns the bytes of the output of a batch of this shape and of the winners behind it. *winners: where
 * they lie; NULL without POOL_MAX, or if output is NULL. */
static inline size_t forward_lay_out(const struct batch *in, void *output, int32_t **winners) {
    struct scratch s = {(char *)output, 0};
    scratch_take(&s, in->grad_elements, (size_t)dtype_bytes(in->grad_type));
    *winners = has_pooling(in, POOL_MAX)
                   ? (int32_t *)scratch_take(&s, in->grad_elements, sizeof **winners)
                   : NULL;
    return s.used;
}
