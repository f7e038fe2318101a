/* SPDX-License-Identifier: MIT
 *
 * The one traffic model: compulsory bytes, what any implementation of the step must move even with
 * a perfect cache. Ids, offsets and lookup weights once; the gradient of every bag that is not
 * empty once (of every lookup, for POOL_NONE); every touched row and its state read and written
 * once. Nobody can win by counting a duplicate twice.
 */
#ifndef EMBFUSE_TRAFFIC_H
#define EMBFUSE_TRAFFIC_H

#include "harness/row_index.h"
#include "kernels/kernel.h"

int64_t compulsory_bytes(const struct batch *in, const struct row_index *index);

#endif
