/* SPDX-License-Identifier: MIT
 *
 * Owner-computes: no sort, no atomics, and a gradient of only the touched rows.
 *
 * Who owns what: a hash assigns blocks of 512 rows to threads. Every thread walks all ids twice:
 * first to mark its rows in a bitmap, whose ranks number the touched rows, then to add the
 * gradients of its rows to their accumulators. Then all threads update the touched rows.
 * Source: IPEX' merged embedding bag, "race-free" in Kalamkar et al. 2020, where also every thread
 * scans all ids. There a hash finds the accumulator, here the rank does.
 * Scratch and traffic: rows/8 bytes of bits, rows/8 bytes of ranks, and [touched][dim] floats, which
 * are written and read once more than in a fused kernel.
 * Deterministic: a row is summed in the order of its lookups.
 * Wins over the dense baseline if few of the rows are touched. Loses to every grouping kernel. It
 * loses the most with many threads, because each scans all ids, and with one hot row, because one
 * thread owns it.
 */
#include "kernels/host/owner.h"
#include "kernels/host/touched.h"

static bool mine(const struct touched_walk *w, struct lookup l) {
    return owner_of(w->in->features[l.feature].table, l.row, w->threads) == w->thread;
}

ALWAYS_INLINE void mark(void *ctx, struct lookup l) {
    struct touched_walk *w = ctx;
    if (mine(w, l)) *touched_word(w, l) |= UINT64_C(1) << (l.row & 63);
}

ALWAYS_INLINE void add(void *ctx, struct lookup l) {
    struct touched_walk *w = ctx;
    if (mine(w, l)) touched_add(w, l);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct touched touched;
    touched_prepare(&touched, in, how);
#pragma omp parallel num_threads(how->threads)
    touched_step(&touched, in, steps, io, how, false, mark, add);
    return 0;
}

DEFINE_KERNEL(cpu_owner) = {
    .name = "cpu_owner",
    .label = "owner-computes",
    .idea = "Every thread scans all ids and adds the gradients of the rows it owns; then update.",
    .place = ON_HOST,
    .traits = DETERMINISTIC | OWN_LOOKUPS,
    .scratch_bytes = touched_scratch_bytes,
    .run = run,
};
