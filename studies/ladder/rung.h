/* SPDX-License-Identifier: MIT
 *
 * A rung of the technique ladder: cpu_fused without one technique.
 */
#include "kernels/host/fused.h"

#define DEFINE_RUNG(rung, technique, what, sentence)                                               \
    static size_t scratch_bytes(const struct batch *shape, int threads) {                          \
        return fused_lay_out(&(struct fused){0}, shape, threads, ALL_TECHNIQUES & ~technique,      \
                             NULL);                                                                \
    }                                                                                              \
    static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,  \
                   const struct launch *how) {                                                     \
        return fused_run(in, steps, io, how, ALL_TECHNIQUES & ~technique);                         \
    }                                                                                              \
    DEFINE_KERNEL(rung) = {.name = #rung,                                                          \
                           .label = what,                                                          \
                           .idea = sentence,                                                       \
                           .place = ON_HOST,                                                       \
                           .traits = DETERMINISTIC,                                                \
                           .accepts = accepts_32bit_rows_and_positions,                            \
                           .scratch_bytes = scratch_bytes,                                         \
                           .run = run}
