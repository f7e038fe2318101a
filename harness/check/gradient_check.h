/* SPDX-License-Identifier: MIT
 *
 * Is a gradient (kernels/gradient.h) right? The rows of every table must be exactly those of the
 * batch, in their order. The values must lie within the oracle's bound, which for an unmerged gradient
 * is that of one lookup; in exact mode they must have the bits of the exact sum. Whatever lies behind the
 * entries and between the parts must keep its bits.
 */
#pragma once

#include "harness/check/check.h"

struct gradient_check {
    const struct batch *in;
    const struct row_index *index; /* of in */
    bool exact;                    /* as in struct check */
    bool merged;
    const void *output; /* in host memory, see struct launch */
    size_t bytes;       /* of output; may be more than the gradient takes */
    int filled;         /* every byte of it before the kernel ran */
};

/* `wrong` counts entries, and tables with a wrong count. Never unseen. */
struct check_result gradient_check_run(const struct gradient_check *c);
