/* SPDX-License-Identifier: MIT
 *
 * The forward: what a bag's output is. As torch.nn.functional.embedding_bag, modes sum and mean, and
 * torch.nn.functional.embedding (POOL_NONE), with per-sample weights for all of them.
 *
 *   sum   the sum over the bag's lookups of weight times row. Padding does not count
 *   mean  the same, divided by the number of lookups that are not padding
 *   none  weight times row of every lookup; the row of padding is a row like any other
 *
 * An output row lies where the gradient row of the same bag (or lookup) lies in batch.grad. A bag
 * without lookups gets zeros. Elements between output rows keep their bits. Sums are in fp32, in the
 * order of the lookups, from +0 (for POOL_NONE too: no output is -0). The output is rounded to the
 * gradients' type, to nearest. So every kernel gives the same bits.
 */
#pragma once

#include "kernels/kernel.h"

/* The first element of the output of a bag of a feature or, for POOL_NONE, of a lookup. */
HOST_DEVICE int64_t forward_row(const struct feature *f, int64_t row) {
    return f->grad_offset + row * f->grad_stride;
}
