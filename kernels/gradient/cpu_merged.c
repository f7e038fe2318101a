/* SPDX-License-Identifier: MIT
 *
 * The merged gradient: sort the lookups by row, then sum the gradients of every run.
 *
 * Who owns what: see kernels/host/sorted.h. It reads the gradient row of a lookup where it lies: no
 * unmerged gradient comes first.
 * Scratch and traffic: 16 bytes per lookup for the sort; every gradient row is read once for each of
 * its lookups, and [touched][dim] floats are written once.
 * Deterministic: a row is summed in the order of its lookups.
 * Wins where rows repeat: it writes less than cpu_unmerged, and the optimizer reads less.
 * Source: coalesce() of a sparse tensor (PyTorch), SelectedRows with MergeAdd (Paddle); Tensor Casting
 * (Kwon et al. 2021) for the sum without an unmerged gradient before it.
 */
#include "kernels/host/sorted.h"

static size_t lay_out(struct sorted *p, const struct batch *in, int threads, void *base) {
    struct scratch s = {base, 0};
    sorted_lay_out(p, &s, in, threads);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return lay_out(&(struct sorted){0}, shape, threads, NULL);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct sorted sorted;
    (void)steps, (void)io;
    lay_out(&sorted, in, how->threads, how->scratch);
    gradient_lay_out(in, true, how->output, sorted.gradient);
    gather_prepare(&sorted.gather);
#pragma omp parallel num_threads(how->threads)
    {
        sorted_index(&sorted, in, omp_get_thread_num(), omp_get_num_threads());
#pragma omp master
        stage_done(how, STAGE_INDEX);
        sorted_reduce(&sorted, in);
    }
    stage_done(how, STAGE_REDUCE);
    return 0;
}

DEFINE_KERNEL(cpu_merged) = {
    .name = "cpu_merged",
    .label = "merged gradient",
    .idea = "Radix sort lookups by row, sum runs into rows and values.",
    .operation = OP_GRADIENT,
    .place = ON_HOST,
    .traits = DETERMINISTIC | OWN_LOOKUPS | MERGED,
    .accepts = accepts_32bit_rows_and_positions,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
