/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights: how the loss changes with the weight of each lookup. As
 * per_sample_weights.grad of torch.nn.EmbeddingBag and the gradient of indice_weights in FBGEMM, here
 * for every pooling of kernels/forward.h. With g, the gradient row of the lookup's bag (POOL_NONE: of the
 * lookup), and w, its row of the table as the forward saw it:
 *
 *   sum   <g, w>; 0 for padding, which the forward does not read
 *   mean  <g, w> times 1/n, for n lookups of the bag that are not padding; 0 for padding
 *   none  <g, w> of every lookup: the row of padding is a row like any other
 *
 * The weight itself is no factor: a lookup of weight 0 has a gradient, too. The product is
 * float[lookups] in the order of the ids, fp32 whatever the types. It is of rows before the step, so it comes first.
 *
 * <g, w> is in fp32, in the order of a sum over a row (kernels/adjust.h): ROW_LANES lanes from +0,
 * column d goes to lane d % ROW_LANES, the lanes are folded by halves. So every kernel gives the same
 * bits. The batch has per-sample weights.
 */
#pragma once

#include "kernels/adjust.h"
#include "kernels/kernel.h"
