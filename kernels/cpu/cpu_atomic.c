/* SPDX-License-Identifier: MIT
 *
 * Atomic scatter: every lookup adds its gradient row atomically, then a second pass updates the
 * touched rows. This is the simplest GPU method, on a CPU.
 *
 * Who owns what: lookups are split evenly over threads. The threads mark the touched rows in a
 * bitmap with atomic ORs; the ranks in the bitmap number the rows; every float add is atomic.
 * Scratch and traffic: rows/4 bytes and [touched][dim] floats, zeroed, added to, read.
 * Not deterministic: the order of a row's sum is the order in which threads reach the row.
 * Wins over the dense baseline if tables are far larger than the touched rows. Loses to all other
 * kernels: a CPU has no atomic float add, only a compare-and-swap per float.
 */
#include "kernels/host/touched.h"

ALWAYS_INLINE void mark(void *ctx, struct lookup l) {
    uint64_t *word = touched_word(ctx, l), bit = UINT64_C(1) << (l.row & 63), seen;
    /* Read first: a set bit needs no write, so the cores' caches can share a hot row's word. */
#pragma omp atomic read
    seen = *word;
    if (seen & bit) return;
#pragma omp atomic
    *word |= bit;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct touched touched;
    touched_prepare(&touched, in, how);
#pragma omp parallel num_threads(how->threads)
    touched_step(&touched, in, steps, io, how, true, mark, touched_add);
    return 0;
}

DEFINE_KERNEL(cpu_atomic) = {
    .name = "cpu_atomic",
    .label = "atomic scatter",
    .idea =
        "Every lookup adds its gradient row atomically to a buffer of touched rows; then update.",
    .place = ON_HOST,
    .traits = 0,
    .scratch_bytes = touched_scratch_bytes,
    .run = run,
};
