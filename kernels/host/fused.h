/* SPDX-License-Identifier: MIT
 *
 * What cpu_fused and cpu_fused_planned have in common: see kernels/cpu/cpu_fused.c. The caller names the
 * techniques, so that studies/ladder/ can leave one out and measure what it is worth.
 */
#pragma once

#include "kernels/host/bucket.h"
#include "kernels/host/hot.h"
#include "kernels/host/numbered.h"

enum technique {
    SMALL_TABLES = 1 << 0, /* get no index */
    HOT_ROWS = 1 << 1,     /* are summed during the walk over the lookups */
    ROW_PREFETCH = 1 << 2,
    GRAD_PREFETCH = 1 << 3,   /* except gradients of small tables and hot rows */
    CONSTANT_DIM = 1 << 4,    /* code for each common dim */
    HASH_BUCKETS = 1 << 5,    /* instead of sorted ones: see hash_is_faster() */
    NUMBERED_TABLES = 1 << 6, /* get no index */
    ALL_TECHNIQUES = (1 << 7) - 1,
};

enum { LONG_RUN = 4096, PIECE = 2048 };

struct long_run {
    int64_t row;
    uint32_t begin, end; /* entries */
    int32_t table;
    int32_t first_piece;
};

struct fused {
    unsigned with; /* bits of enum technique */
    struct gather gather;
    struct partition partition;
    struct hot hot;
    struct small_tables small;
    struct numbered numbered;
    uint64_t *spare;            /* [partitioned lookups] second buffer of large buckets */
    struct bucket_space *own;   /* [threads] */
    int32_t *order;             /* [buckets] largest first, roughly */
    uint32_t *runs;             /* [buckets] of equal rows, of a plan: see keep_runs() */
    struct long_run *long_run;  /* [most long runs] */
    int32_t *long_run_of_piece; /* [most pieces] */
    float *piece;               /* [most pieces][largest dim] */
    float *sum;                 /* [threads][largest dim] */
    int32_t long_runs, pieces;
    int32_t max_dim;
};

/* ahead, here and below: for a plan, which keeps the list of hot lookups. */
size_t fused_lay_out(struct fused *p, const struct batch *in, int threads, unsigned with,
                     bool ahead, void *base) AT_LEVEL(fused_lay_out);

/* Serial, O(buckets + features + tables). */
void fused_prepare(const struct fused *p, const struct batch *in, int threads)
    AT_LEVEL(fused_prepare);

/* Partitions the lookups. ahead: reads no gradient, and lists the hot lookups instead of summing them.
 * Every thread of the team calls this. */
void fused_index(struct fused *p, const struct batch *in, bool ahead) AT_LEVEL(fused_index);

/* Groups the lookups of a bucket by row; it is not empty. weight: see row_prefetch_of(). */
struct runs index_bucket(struct fused *p, const struct array *weight, int64_t bucket, bool often)
    AT_LEVEL(index_bucket);

/* Sums and updates. ahead: a plan has indexed the buckets, otherwise each is indexed while it is in
 * L1. Every thread of the team calls this. */
void fused_update(struct fused *p, const struct batch *in, const struct rule_step *steps,
                  const struct table *io, bool ahead) AT_LEVEL(fused_update);

/* A whole step. */
int fused_run(const struct batch *in, const struct rule_step *steps, const struct table *io,
              const struct launch *how, unsigned with) AT_LEVEL(fused_run);

/* Serial: cuts the long runs into pieces. */
static inline void cut_long_runs(struct fused *p) {
    for (int32_t r = 0; r < p->long_runs; r++) {
        struct long_run *x = &p->long_run[r];
        x->first_piece = p->pieces;
        for (uint32_t at = x->begin; at < x->end; at += PIECE)
            p->long_run_of_piece[p->pieces++] = r;
    }
}

static inline int bucket_chunk(const struct fused *p) {
    return p->partition.buckets < 256 ? 1 : 4; /* few buckets are shared out one by one */
}
