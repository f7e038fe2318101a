/* SPDX-License-Identifier: MIT
 *
 * The code that cpu_fused and cpu_fused_planned share: see cpu_fused.c. A file that defines WITHOUT, a bit of enum
 * technique, before it includes this file leaves that technique out: so studies measure what each technique is worth.
 */
#pragma once

#include "kernels/cpu/bucket.h"
#include "kernels/cpu/hot.h"
#include "kernels/cpu/numbered.h"

enum technique {
    SMALL_TABLES = 1 << 0, /* get no index */
    HOT_ROWS = 1 << 1,     /* are summed during the walk over the lookups */
    ROW_PREFETCH = 1 << 2,
    GRAD_PREFETCH = 1 << 3,   /* except gradients of small tables and hot rows */
    CONSTANT_DIM = 1 << 4,    /* code for each common dim */
    HASH_BUCKETS = 1 << 5,    /* are not sorted: see hash_is_faster() */
    NUMBERED_TABLES = 1 << 6, /* get no index */
};

#ifndef WITHOUT
#define WITHOUT 0
#endif
enum { TECHNIQUES = ~(WITHOUT) };

/* When the index is built: in a step, or in a plan that steps take later. A plan reads no gradient. It lists the
 * lookups of hot rows instead of summing them. */
enum when { IN_STEP, IN_PLAN };

enum { LONG_RUN = 4096, PIECE = 2048 };

struct long_run {
    int64_t row;
    uint32_t begin, end; /* entries */
    int32_t table;
    int32_t first_piece;
};

struct fused {
    struct gather gather;
    struct partition partition;
    struct hot hot;
    struct small_tables small;
    struct numbered numbered;
    uint64_t *spare;           /* [partitioned lookups] second buffer of large buckets */
    struct bucket_space *own;  /* [threads] */
    int32_t *order;            /* [buckets] roughly from large to small */
    uint32_t *runs;            /* [buckets] runs of equal rows that a plan keeps: see keep_runs() */
    struct long_run *long_run; /* [most long runs] */
    int32_t *long_run_of_piece; /* [most pieces] */
    float *piece;               /* [most pieces][largest dim] */
    float *sum;                 /* [threads][largest dim] */
    int32_t long_runs, pieces;
    int32_t max_dim;
};

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
    return p->partition.buckets < 256 ? 1 : 4; /* threads take few buckets one by one */
}

/* Lays out scratch. A step (base is set, when is IN_STEP) looks at the ids here and numbers some tables: the lookups of
 * these need no entries, so a step takes the bytes of fused_scratch_bytes() or fewer. */
static inline size_t fused_lay_out(struct fused *p, const struct batch *in, int threads,
                                   enum when when, void *base) {
    struct scratch s = {base, 0};
    p->max_dim = (widest(in) + VEC - 1) / VEC * VEC;
    gather_lay_out(&p->gather, &s, in, true);
    p->small = (struct small_tables){0};
    if (TECHNIQUES & SMALL_TABLES) small_lay_out(&p->small, &s, in, threads);
    p->numbered = (struct numbered){0};
    if (TECHNIQUES & NUMBERED_TABLES && when == IN_STEP) {
        numbered_lay_out(&p->numbered, &s, in, threads);
        if (base) numbered_choose(&p->numbered, in);
    }
    partition_lay_out(&p->partition, &s, in, threads, BUCKET_BY_RANGE,
                      TECHNIQUES & SMALL_TABLES ? small_table : NULL, p->numbered.table);
    const int64_t lookups = p->partition.lookups;
    const int64_t most_long = lookups / LONG_RUN, most_pieces = lookups / PIECE + most_long;
    p->spare = scratch_take(&s, lookups, sizeof *p->spare);
    uint64_t *list = when == IN_PLAN ? scratch_take(&s, lookups, sizeof *list) : p->spare;
    hot_lay_out(&p->hot, &s, in, &p->partition, p->max_dim, threads, list);
    p->own = scratch_take(&s, threads, sizeof *p->own);
    p->order = scratch_take(&s, p->partition.buckets, sizeof *p->order);
    p->runs = scratch_take(&s, p->partition.buckets, sizeof *p->runs);
    p->long_run = scratch_take(&s, most_long, sizeof *p->long_run);
    p->long_run_of_piece = scratch_take(&s, most_pieces, sizeof *p->long_run_of_piece);
    p->piece = scratch_take(&s, most_pieces * p->max_dim, sizeof *p->piece);
    p->sum = scratch_take(&s, (int64_t)threads * p->max_dim, sizeof *p->sum);
    p->long_runs = p->pieces = 0;
    return s.used;
}

/* Serial: buckets above 4 times the mean size come first, so that no thread starts one last. */
static inline void order_buckets(const struct fused *p) {
    const struct partition *x = &p->partition;
    if (x->buckets == 0) return;
    int64_t large = 4 * (int64_t)(x->begin[x->buckets] / x->buckets + 1), n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t b = 0; b < x->buckets; b++)
            if ((x->begin[b + 1] - x->begin[b] > large) == (pass == 0)) p->order[n++] = (int32_t)b;
}

/* Lists run r of a bucket for update_long_runs(). `begin` is the bucket's first entry. The run's entries stay in the
 * partition. */
static inline void defer_long_run(struct fused *p, int32_t table, uint32_t begin, struct runs runs,
                                  uint32_t r) {
    uint64_t *const keep = p->partition.entry + begin + runs.begin[r];
    const uint64_t *const from = runs.entry + runs.begin[r];
    const uint32_t n = runs.begin[r + 1] - runs.begin[r], first = begin + runs.begin[r];
    int32_t slot;
    if (from != keep) memcpy(keep, from, n * sizeof *keep);
#pragma omp atomic capture
    slot = p->long_runs++;
    p->long_run[slot] = (struct long_run){entry_row(*keep), first, first + n, table, 0};
}

/* Groups the lookups of a bucket that is not empty by row. weight: see row_prefetch_of(). */
static inline struct runs index_bucket(struct fused *p, const struct array *weight, int64_t bucket,
                                       bool previous_had_duplicates) {
    const struct partition *x = &p->partition;
    const int32_t t = x->table_of[bucket];
    const uint32_t begin = x->begin[bucket], n = x->begin[bucket + 1] - begin;
    const int bits = x->table[t].shift;
    const bool hash = TECHNIQUES & HASH_BUCKETS && hash_is_faster(n, bits, previous_had_duplicates);
    const struct row_prefetch next_rows =
        row_prefetch_of(TECHNIQUES & ROW_PREFETCH ? weight : NULL, n);
    const struct runs runs = group_bucket(&p->own[omp_get_thread_num()], next_rows,
                                          x->entry + begin, p->spare + begin, n, bits, hash);
    for (uint32_t r = 0; n >= LONG_RUN && r < runs.count; r++)
        if (runs.begin[r + 1] - runs.begin[r] >= LONG_RUN) defer_long_run(p, t, begin, runs, r);
    return runs;
}

/* Where a plan keeps the runs of a bucket: the spare entries are free once it is grouped. */
static inline struct runs kept_runs(const struct fused *p, int64_t bucket) {
    const uint32_t begin = p->partition.begin[bucket];
    return (struct runs){p->partition.entry + begin, (uint32_t *)(p->spare + begin),
                         p->runs[bucket]};
}

struct fused_bucket {
    const struct fused *fused;
    struct runs runs;
    int32_t table;
    struct updater updater;
    float *sum; /* [largest dim] */
};

/* Sums and updates every run of a bucket except long ones. Only tables come here for which unit_runs_of() has no loop:
 * those with means, weights, adjustments, watched rows, several features, or a dim that is not common. If `common` is
 * set, dim is a constant, and compilers unroll the loops over a row. */
ALWAYS_INLINE void update_bucket(void *ctx, const int32_t given, const bool common) {
    const struct fused_bucket *b = ctx;
    const struct fused *p = b->fused;
    const struct updater u = b->updater;
    const int32_t dim = common ? given : u.dim;
    const struct gather_table from = p->gather.table[b->table];
    const uint64_t *e = b->runs.entry;
    const uint32_t *run = b->runs.begin, runs = b->runs.count, n = run[runs];
    const uint32_t row_distance = updater_ahead(&u),
                   grad_distance = (uint32_t)grads_ahead(from.type, dim);
    const enum prefetch_into rows_into = prefetch_choice.rows.into,
                             grads_into = prefetch_choice.grads.into;
    /* From these runs and entries on nothing is prefetched. */
    const uint32_t rows_end = TECHNIQUES & ROW_PREFETCH ? runs : 0;
    const uint32_t grads_end = TECHNIQUES & GRAD_PREFETCH ? n : 0;
    for (uint32_t r = 0; r < rows_end && r < row_distance; r++)
        updater_prefetch(&u, entry_row(e[run[r]]), dim, rows_into);
    for (uint32_t k = 0; k < grads_end && k < grad_distance; k++) {
        const struct summand next = gather_row(&p->gather, &from, (uint32_t)e[k]);
        prefetch_row_into(from.type, next.row, dim, grads_into);
    }
    for (uint32_t r = 0; r < runs; r++) {
        uint32_t first = run[r], length = run[r + 1] - first;
        int64_t row = entry_row(e[first]);
        if (r + row_distance < rows_end)
            updater_prefetch(&u, entry_row(e[run[r + row_distance]]), dim, rows_into);
        if (length >= LONG_RUN) continue;
        if (!common && length == 1 && from.unit_coefficients && from.type == FP32 && !u.adjusts) {
            const void *next = e;
            if (first + grad_distance < grads_end)
                next = gather_row(&p->gather, &from, (uint32_t)e[first + grad_distance]).row;
            prefetch_row_into(FP32, next, dim, grads_into);
            updater_row_as_is(&u, row, gather_row(&p->gather, &from, (uint32_t)e[first]).row);
        } else {
            int64_t follow = (int64_t)grads_end - (first + length);
            sum_entries(&p->gather, &from, e + first, length, follow, dim, common, b->sum);
            updater_row(&u, row, b->sum);
        }
    }
}

/* Updates the rows of a bucket of table t. */
static inline void fused_bucket(const struct fused *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io, int32_t t,
                                struct runs runs, float *sum) {
    struct fused_bucket b = {p, runs, t, updater_of(in, t, steps, io), sum};
    const struct gather_table *from = &p->gather.table[t];
    const unsigned all = CONSTANT_DIM | ROW_PREFETCH | GRAD_PREFETCH;
    const bool constant = TECHNIQUES & CONSTANT_DIM,
               lean = (TECHNIQUES & all) == all && from->unit_coefficients;
    update_runs *const update_unit_runs = lean ? unit_runs_of(&b.updater, from->type) : NULL;
    if (update_unit_runs) { /* the rule's own loop over runs has no branch and no call per row */
        const struct unit_runs x = {.grad_type = from->type,
                                    .grad = from->grad + from->base,
                                    .stride = from->stride,
                                    .entry = runs.entry,
                                    .shape = &in->tables[t],
                                    .begin = runs.begin,
                                    .count = runs.count,
                                    .most = LONG_RUN,
                                    .row_distance = updater_ahead(&b.updater),
                                    .grad_distance =
                                        (uint32_t)grads_ahead(from->type, b.updater.dim)};
        update_unit_runs(b.updater.step, &b.updater.table, &x);
        return;
    }
    if (!constant) b.updater.update = update_row_of(steps[t].rule.kind, 0);
    for_dim(constant ? b.updater.dim : 0, update_bucket, &b);
}

/* Cuts long runs into pieces, unless a plan did, sums each piece, adds the pieces of each run, and updates its row.
 * Every thread of the team calls this. */
static inline void update_long_runs(struct fused *p, const struct batch *in,
                                    const struct rule_step *steps, const struct table *io,
                                    enum when indexed) {
#pragma omp single
    if (indexed == IN_STEP) cut_long_runs(p);
#pragma omp for schedule(dynamic)
    for (int32_t k = 0; k < p->pieces; k++) {
        const struct long_run *x = &p->long_run[p->long_run_of_piece[k]];
        uint32_t begin = x->begin + (uint32_t)(k - x->first_piece) * PIECE;
        uint32_t n = x->end - begin < PIECE ? x->end - begin : PIECE;
        const struct entries of = {&p->gather, &p->gather.table[x->table],
                                   p->partition.entry + begin};
        sum_entries_any(&of, n, 0, in->tables[x->table].dim, p->piece + (int64_t)k * p->max_dim);
    }
#pragma omp for schedule(dynamic)
    for (int32_t r = 0; r < p->long_runs; r++) {
        const struct long_run *x = &p->long_run[r];
        int32_t dim = in->tables[x->table].dim,
                pieces = (int32_t)((x->end - x->begin + PIECE - 1) / PIECE);
        float *sum = p->piece + (int64_t)x->first_piece * p->max_dim;
        for (int32_t k = 1; k < pieces; k++)
            row_add(FP32, sum, sum + (int64_t)k * p->max_dim, 1, dim);
        const struct updater u = updater_of(in, x->table, steps, io);
        updater_row(&u, x->row, sum);
    }
}

/* Serial, O(buckets + features + tables). */
static inline void fused_prepare(const struct fused *p, const struct batch *in, int threads) {
    gather_prepare(&p->gather);
    if (p->small.units) small_prepare(&p->small, in, threads);
    partition_prepare(&p->partition, in);
}

/* Partitions the lookups. Every thread of the team calls this. */
static inline void fused_index(struct fused *p, const struct batch *in, enum when when) {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    gather_fill(&p->gather, thread, threads);
#pragma omp single
    if (TECHNIQUES & HOT_ROWS) hot_choose(&p->hot, in);
    if (p->hot.rows)
        hot_partition(&p->hot, &p->gather, when == IN_PLAN, thread, threads);
    else
        partition_build(&p->partition, &p->gather, thread, threads);
#pragma omp single
    order_buckets(p);
}

/* Prefetches the entries of the next bucket: they have left the core's caches since the partition wrote them. */
static inline void prefetch_entries(const struct partition *p, int64_t bucket) {
    const uint32_t n = p->begin[bucket + 1] - p->begin[bucket];
    if (n <= OWN_MOST) prefetch(p->entry + p->begin[bucket], n * sizeof *p->entry, INTO_L2);
}

/* Sums and updates. indexed says when buckets are indexed. IN_STEP: this function does it, and so finds the bucket's
 * entries in L1. Every thread of the team calls this. */
static inline void fused_update(struct fused *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                enum when indexed) {
    const int thread = omp_get_thread_num(), chunk = bucket_chunk(p);
    float *sum = p->sum + (int64_t)thread * p->max_dim;
    bool previous_had_duplicates = false;
    if (indexed == IN_PLAN && p->hot.rows)
        hot_sum(&p->hot, &p->gather, thread, omp_get_num_threads());
#pragma omp for schedule(dynamic) nowait
    for (int32_t k = 0; k < p->small.units; k++)
        small_step(&p->small, &p->gather, k, steps, io, thread);
#pragma omp for schedule(dynamic) nowait
    for (int32_t k = 0; k < p->numbered.units; k++)
        numbered_step(&p->numbered, &p->gather, numbered_unit_of(&p->numbered, in, k), steps, io,
                      thread);
#pragma omp for schedule(dynamic, chunk)
    for (int64_t k = 0; k < p->partition.buckets; k++) {
        const int64_t bucket = p->order[k];
        const int32_t t = p->partition.table_of[bucket];
        if (p->partition.begin[bucket] == p->partition.begin[bucket + 1]) continue;
        if (k + 1 < p->partition.buckets) prefetch_entries(&p->partition, p->order[k + 1]);
        const struct runs runs =
            indexed == IN_PLAN ? kept_runs(p, bucket)
                               : index_bucket(p, &io[t].weight, bucket, previous_had_duplicates);
        previous_had_duplicates = rows_come_often(runs);
        fused_bucket(p, in, steps, io, t, runs, sum);
    }
    if (p->long_runs) update_long_runs(p, in, steps, io, indexed);
    if (p->small.units) small_update(&p->small, in, steps, io);
    if (p->hot.rows) hot_update(&p->hot, in, steps, io);
}

static inline size_t fused_scratch_bytes(const struct batch *shape, int threads) {
    return fused_lay_out(&(struct fused){0}, shape, threads, IN_STEP, NULL);
}

/* A whole step. */
static inline int fused_run(const struct batch *in, const struct rule_step *steps,
                            const struct table *io, const struct launch *how) {
    struct fused f;
    fused_lay_out(&f, in, how->threads, IN_STEP, how->scratch);
    fused_prepare(&f, in, how->threads);
#pragma omp parallel num_threads(how->threads)
    {
        fused_index(&f, in, IN_STEP);
#pragma omp master
        stage_done(how, STAGE_INDEX);
        fused_update(&f, in, steps, io, IN_STEP);
    }
    stage_done(how, STAGE_UPDATE);
    return 0;
}
