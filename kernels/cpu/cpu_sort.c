/* SPDX-License-Identifier: MIT
 *
 * Sort-then-reduce: sort the lookups by row, sum the gradients of every run into a compact
 * [touched][dim] gradient, then apply the optimizer in a separate pass.
 *
 * Who owns what: the sort and the sums are those of cpu_merged (kernels/host/sorted.h). Threads take
 * rows of its gradient in small chunks for the update.
 * Scratch and traffic: as cpu_merged, whose output is scratch here and is read once more.
 * Deterministic: a row is summed in the order of its lookups.
 * Wins over hashing on batches of 10^5 lookups or more, loses to it with several threads on smaller ones, where passes
 * wait for all threads. Loses to the fused kernel by the round trip of the gradient through memory.
 * Source: coalesce() of a sparse tensor (PyTorch), SelectedRows with MergeAdd (Paddle).
 */
#include "kernels/host/sorted.h"
#include "kernels/host/update.h"

static size_t lay_out(struct sorted *p, const struct batch *in, int threads, void *base) {
    struct scratch s = {base, 0};
    sorted_lay_out(p, &s, in, threads);
    void *gradient = scratch_take(&s, (int64_t)gradient_lay_out(in, true, NULL, NULL), 1);
    gradient_lay_out(in, true, gradient, p->gradient);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return lay_out(&(struct sorted){0}, shape, threads, NULL);
}

enum { CHUNK = 1024 }; /* rows that a thread takes at a time */

/* Applies each table's rule once to every row of the merged gradient, of[num_tables]. Every thread of the team calls
 * this; it ends without a barrier. */
static void update(const struct batch *in, const struct sparse_gradient *of,
                   const struct rule_step *steps, const struct table *io) {
    uint64_t entry[CHUNK];
    uint32_t begin[CHUNK + 1];
    for (uint32_t k = 0; k <= CHUNK; k++) begin[k] = k;
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct updater u = updater_of(in, t, steps, io);
#pragma omp for schedule(dynamic) nowait
        for (int64_t first = 0; first < *of[t].count; first += CHUNK) {
            const uint32_t n = (uint32_t)min64(CHUNK, *of[t].count - first);
            for (uint32_t k = 0; k < n; k++) entry[k] = entry_pack(of[t].rows[first + k], k);
            merged_update(&u, of[t].values + first * u.dim, entry, begin, n);
        }
    }
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct sorted sorted;
    lay_out(&sorted, in, how->threads, how->scratch);
    gather_prepare(&sorted.gather);
#pragma omp parallel num_threads(how->threads)
    {
        sorted_index(&sorted, in, omp_get_thread_num(), omp_get_num_threads());
#pragma omp master
        stage_done(how, STAGE_INDEX);
        sorted_reduce(&sorted, in);
#pragma omp master
        stage_done(how, STAGE_REDUCE);
        update(in, sorted.gradient, steps, io);
    }
    stage_done(how, STAGE_UPDATE);
    return 0;
}

DEFINE_KERNEL(cpu_sort) = {
    .name = "cpu_sort",
    .label = "sort-then-reduce",
    .idea = "Radix sort lookups by row, sum runs into a compact gradient, update in a second pass.",
    .place = ON_HOST,
    .traits = DETERMINISTIC | OWN_LOOKUPS,
    .accepts = accepts_32bit_rows_and_positions,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
