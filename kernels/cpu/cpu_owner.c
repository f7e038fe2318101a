/* SPDX-License-Identifier: MIT
 *
 * Owner-computes: no sort, no atomics, a gradient of the touched rows only.
 *
 * Who owns what: blocks of 512 rows are dealt to threads by a hash. Every thread walks all ids
 * twice: to mark its rows in a bitmap, whose ranks number the touched rows, and to add the
 * gradients of its rows to their accumulators. Then all threads update the touched rows.
 * (Ownership with every thread scanning all ids: IPEX' merged embedding bag; "race-free" in
 * Kalamkar et al. 2020. They find the accumulator by hashing, here it is the rank.)
 * Scratch and traffic: rows/8 + rows/8 bytes and [touched][dim] floats, written and read once more
 * than in a fused kernel.
 * Deterministic: a row is summed in the order of its lookups.
 * Wins over the dense baseline where few of the rows are touched; loses to every grouping kernel,
 * and more so with more threads, as each scans all ids, or with one hot row, which has one owner.
 */
#include "kernels/host/owner.h"
#include "kernels/host/touched.h"

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return touched_plan_lay_out(&(struct touched_plan){0}, shape, threads, NULL);
}

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
    struct touched_plan plan;
    touched_plan_prepare(&plan, in, how);
#pragma omp parallel num_threads(how->threads)
    touched_step(&plan, in, steps, io, how, false, mark, add);
    return 0;
}

DEFINE_KERNEL(cpu_owner) = {
    .name = "cpu_owner",
    .label = "owner-computes",
    .idea = "Every thread scans all ids and adds the gradients of the rows it owns; then update.",
    .place = ON_HOST,
    .traits = DETERMINISTIC | OWN_LOOKUPS,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
