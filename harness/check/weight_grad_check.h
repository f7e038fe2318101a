/* SPDX-License-Identifier: MIT
 *
 * Is a gradient of the per-sample weights (kernels/weight_grad.h) right? Every element must have the bits
 * of the plain loop in the stated order, and lie within the rounding errors of that loop from a dot in
 * double precision, where both are finite. Whatever lies behind the elements must keep its bits.
 */
#pragma once

#include "harness/check/check.h"

struct weight_grad_check {
    const struct batch *in;
    row_before before; /* a row's weights and states, see struct check */
    const void *before_ctx;
    const float *output; /* in host memory, see struct launch */
    size_t bytes;        /* of output; may be more than the lookups take */
    int filled;          /* every byte of it before the kernel ran */
};

/* `wrong` counts lookups. Never unseen, never undecided. */
struct check_result weight_grad_check_run(const struct weight_grad_check *c);
