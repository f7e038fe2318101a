/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without one technique. The including file defines
 * WITHOUT, a bit of enum technique.
 */
#include "kernels/host/fused.h"

enum { WITH = ALL_TECHNIQUES & ~WITHOUT };

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return fused_lay_out(&(struct fused){0}, shape, threads, WITH, false, NULL);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    return fused_run(in, steps, io, how, WITH);
}

/* The fields of struct kernel that are equal in all rungs. */
#define RUNG                                                                                       \
    .place = ON_HOST, .traits = DETERMINISTIC, .accepts = accepts_32bit_rows_and_positions,        \
    .scratch_bytes = scratch_bytes, .run = run
