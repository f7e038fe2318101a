/* SPDX-License-Identifier: MIT
 *
 * The lookup with prefetch: while a thread sums a row, the rows of later lookups are on their way.
 *
 * Who owns what, scratch, traffic, determinism: as cpu_lookup.
 * Wins where rows come from memory: the ids say early which rows come. Loses a little where they are
 * in L1.
 * Source: the prefetch in FBGEMM's EmbeddingSpMDM, 16 lookups ahead by default.
 */
#include "kernels/host/lookup.h"

enum { AHEAD = 16 }; /* lookups */

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)steps;
    return lookup_run(in, io, how, AHEAD);
}

DEFINE_KERNEL(cpu_lookup_ahead) = {
    .name = "cpu_lookup_ahead",
    .label = "lookup with prefetch",
    .idea = "A thread sums a bag's rows in registers, and prefetches the rows of later lookups.",
    .operation = OP_FORWARD,
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .run = run,
};
