/* SPDX-License-Identifier: MIT
 *
 * Is the output of an operation other than a step right?
 *
 *   forward       (kernels/forward.h) every element of every output row must have the bits of the plain fp32
 *                 loop, and lie within the rounding errors of that loop from a sum in double precision, where
 *                 both are finite. A max and its winners must equal that loop's
 *   gradient      (kernels/gradient.h) the rows of every table must be exactly those of the batch, in their
 *                 order. The values must lie within the oracle's bound (for one lookup if the gradient is
 *                 unmerged); in exact mode they must have the bits of the exact sum
 *   weight_grad   (kernels/weight_grad.h) every element must have the bits of the plain loop in the stated
 *                 order, and lie within the rounding errors of that loop from a dot in double precision, where
 *                 both are finite
 *
 * All other bytes must keep their bits: between the rows of a forward, between the parts of a gradient and behind its
 * entries, and behind all of them.
 */
#pragma once

#include "harness/check/check.h"

struct output {
    const void *data; /* in host memory, see struct launch; a forward has its winners behind it */
    size_t bytes;     /* may be more than this batch takes */
    int filled;       /* every byte of it before the kernel ran */
    bool merged;      /* a gradient: the kernel has the trait MERGED */
    bool in_parts; /* a forward's sums are sums of partial sums: any order of additions is right */
};

/* Reads c->in, and for a gradient c->index and c->exact, for the other operations c->before. `wrong` counts output
 * rows, entries (and tables with a wrong count), or lookups. Never unseen; only a gradient is undecided. */
struct check_result output_check(enum operation operation, const struct check *c,
                                 const struct output *o);
