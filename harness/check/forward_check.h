/* SPDX-License-Identifier: MIT
 *
 * Is the output of a forward right? Every element of every output row must have the bits of the
 * plain fp32 loop of kernels/forward.h, and lie within the rounding errors of that loop from a sum
 * in double precision, where both are finite. A max and its winners must be exactly those of that loop.
 * Elements between output rows, and between rows of winners, must keep their bits.
 */
#pragma once

#include "harness/check/check.h"

struct forward_check {
    const struct batch *in;
    row_before before; /* a row's weights and states, see struct check */
    const void *before_ctx;
    const void *output; /* in host memory, with winners behind it: see forward_lay_out() */
    size_t bytes;       /* of output; may be more than this batch takes */
    int filled;         /* every byte of it before the kernel ran */
    bool in_parts;      /* sums of partial sums: only within the rounding errors of any order */
};

/* `wrong` counts output rows. Never unseen, never undecided. */
struct check_result forward_check_run(const struct forward_check *c);
