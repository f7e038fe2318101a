/* SPDX-License-Identifier: MIT
 *
 * cpu_fused with an index from the forward pass. The forward pass reads rows by the same ids, so a
 * system can build the index then, off the critical path of the backward pass. The time of the step is
 * only the sums and the updates; the time of the plan is reported separately, and an iteration
 * includes both. Do not compare its step with kernels that build their index in the step: it shows what
 * the index costs, and what a training system gains if it can hide the index.
 *
 * Who owns what: as cpu_fused.c. The plan partitions the lookups, groups every bucket, lists its runs
 * and cuts long ones, and lists the lookups of hot rows; it reads no gradient. So a step finds its
 * entries in memory, where cpu_fused has a bucket's still in L1. A plan serves any number of steps on
 * the same ids.
 * Scratch and traffic: those of cpu_fused, and 8 bytes per lookup for the lookups of hot rows.
 * Deterministic: the same sums as cpu_fused, in the same order.
 * Source: torchrec's Triton TBE, which moves the transpose into the forward pass; FBGEMM's proposed
 * preprocessing of backward indices.
 */
#include "kernels/cpu/fused.h"

/* Scratch begins with the plan's own variables. */
struct head {
    _Alignas(KERNEL_ALIGN) struct fused fused;
};

static size_t scratch_bytes(const struct batch *shape, int threads) {
    return sizeof(struct head) + fused_lay_out(&(struct fused){0}, shape, threads, IN_PLAN, NULL);
}

static void keep_runs(struct fused *p, int64_t bucket, struct runs runs) {
    const uint32_t begin = p->partition.begin[bucket];
    uint64_t *entry = p->partition.entry + begin;
    uint32_t *list = (uint32_t *)(p->spare + begin);
    if (runs.entry != entry) memcpy(entry, runs.entry, runs.begin[runs.count] * sizeof *entry);
    if (runs.begin != list) memcpy(list, runs.begin, (runs.count + 1) * sizeof *list);
    p->runs[bucket] = runs.count;
}

static int plan(const struct batch *in, const struct launch *how) {
    struct head *head = how->scratch;
    struct fused *p = &head->fused;
    fused_lay_out(p, in, how->threads, IN_PLAN, head + 1);
    fused_prepare(p, in, how->threads);
    const int chunk = bucket_chunk(p);
#pragma omp parallel num_threads(how->threads)
    {
        fused_index(p, in, IN_PLAN);
        bool previous_had_duplicates = false;
#pragma omp for schedule(dynamic, chunk)
        for (int64_t k = 0; k < p->partition.buckets; k++) {
            const int64_t bucket = p->order[k];
            if (p->partition.begin[bucket] == p->partition.begin[bucket + 1]) continue;
            const struct runs runs = index_bucket(p, NULL, bucket, previous_had_duplicates);
            previous_had_duplicates = rows_come_often(runs);
            keep_runs(p, bucket, runs);
        }
    }
    cut_long_runs(p);
    return 0;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    struct fused *p = &((struct head *)how->scratch)->fused;
    p->gather.in = in;
    gather_prepare(&p->gather); /* again: it holds where the gradients are */
#pragma omp parallel num_threads(how->threads)
    fused_update(p, in, steps, io, IN_PLAN);
    stage_done(how, STAGE_UPDATE);
    return 0;
}

DEFINE_KERNEL(cpu_fused_planned) = {
    .name = "cpu_fused_planned",
    .label = "fused, planned ahead",
    .idea = "As cpu_fused, with an index built ahead of the step: the step's time leaves it out.",
    .place = ON_HOST,
    .traits = DETERMINISTIC,
    .accepts = accepts_32bit_rows_and_positions,
    .scratch_bytes = scratch_bytes,
    .plan = plan,
    .run = run,
};
