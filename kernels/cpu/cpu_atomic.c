/* SPDX-License-Identifier: MIT
 *
 * Atomic scatter: every lookup adds its gradient row atomically, then the touched rows are
 * updated. The direct translation of the GPU's first idea to a CPU.
 *
 * Who owns what: lookups are split evenly over threads. They mark the touched rows in a bitmap
 * with atomic ORs; the ranks of the bitmap number the rows; every float is added with an atomic.
 * Scratch and traffic: rows/4 bytes and [touched][dim] floats, zeroed, added to, read.
 * Not deterministic: the order in which threads meet at a row is the order of the sum.
 * Wins over the dense baseline where tables are far larger than what a batch touches; loses to all
 * others: a CPU has no float add in its memory system, only a compare-and-swap per float.
 */
#include "kernels/host/touched.h"

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return touched_plan_lay_out(&(struct touched_plan){0}, shape, threads, NULL);
}

ALWAYS_INLINE void mark(void *ctx, struct lookup l) {
    uint64_t *word = touched_word(ctx, l), bit = UINT64_C(1) << (l.row & 63), seen;
    /* A look first: a hot row's word is then shared between the cores' caches, not fought over. */
#pragma omp atomic read
    seen = *word;
    if (seen & bit) return;
#pragma omp atomic
    *word |= bit;
}

ALWAYS_INLINE void add(void *ctx, struct lookup l) {
    touched_add(ctx, l);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct touched_plan plan;
    touched_plan_prepare(&plan, in, how);
#pragma omp parallel num_threads(how->threads)
    touched_step(&plan, in, steps, io, how, true, mark, add);
    return 0;
}

DEFINE_KERNEL(cpu_atomic) = {
    .name = "cpu_atomic",
    .label = "atomic scatter",
    .idea =
        "Every lookup adds its gradient row atomically to a buffer of touched rows; then update.",
    .place = ON_HOST,
    .traits = 0,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
