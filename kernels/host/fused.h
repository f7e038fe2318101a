/* SPDX-License-Identifier: MIT
 *
 * The code of cpu_fused and cpu_fused_planned: see kernels/cpu/cpu_fused.c. The caller names the
 * techniques, so that studies/ladder/ can leave one out and measure what it is worth.
 */
#pragma once

#include "kernels/host/hot.h"
#include "kernels/host/small.h"

enum technique {
    SMALL_TABLES = 1 << 0, /* get no index */
    HOT_ROWS = 1 << 1,     /* are summed during the walk over the lookups */
    ROW_PREFETCH = 1 << 2,
    GRAD_PREFETCH = 1 << 3, /* except gradients of small tables and hot rows */
    CONSTANT_DIM = 1 << 4,  /* code for each common dim */
    ALL_TECHNIQUES = (1 << 5) - 1,
};

enum {
    LONG_RUN = 4096,
    PIECE = 2048,
    DIGIT_BITS = 8,
    SMALL_SORT = 32, /* largest number of entries for insertion sort */
    OFTEN = 4,
};

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
    uint64_t *spare;            /* [partitioned lookups] second buffer of the bucket sorts */
    int32_t *order;             /* [buckets] largest first, roughly */
    uint32_t *runs;             /* [buckets] of equal rows: see index_bucket() */
    struct long_run *long_run;  /* [most long runs] */
    int32_t *long_run_of_piece; /* [most pieces] */
    float *piece;               /* [most pieces][largest dim] */
    float *sum;                 /* [threads][largest dim] */
    int32_t long_runs, pieces;
    int32_t max_dim;
};

/* ahead: for a plan, which keeps the list of hot lookups. */
static inline size_t fused_lay_out(struct fused *p, const struct batch *in, int threads,
                                   unsigned with, bool ahead, void *base) {
    struct scratch s = {base, 0};
    p->with = with;
    p->max_dim = (widest(in) + VEC - 1) / VEC * VEC;
    gather_lay_out(&p->gather, &s, in, true);
    p->small = (struct small_tables){0};
    if (with & SMALL_TABLES) small_lay_out(&p->small, &s, in, threads);
    partition_lay_out(&p->partition, &s, in, threads, BUCKET_BY_RANGE,
                      with & SMALL_TABLES ? small_table : NULL);
    const int64_t lookups = p->partition.lookups;
    const int64_t most_long = lookups / LONG_RUN, most_pieces = lookups / PIECE + most_long;
    p->spare = scratch_take(&s, lookups, sizeof *p->spare);
    uint64_t *list = ahead ? scratch_take(&s, lookups, sizeof *list) : p->spare;
    hot_lay_out(&p->hot, &s, in, &p->partition, p->max_dim, threads, list);
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
static void order_buckets(const struct fused *p) {
    const struct partition *x = &p->partition;
    if (x->buckets == 0) return;
    int64_t large = 4 * (int64_t)(x->begin[x->buckets] / x->buckets + 1), n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t b = 0; b < x->buckets; b++)
            if ((x->begin[b + 1] - x->begin[b] > large) == (pass == 0)) p->order[n++] = (int32_t)b;
}

static void insertion_sort(uint64_t *e, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        uint64_t x = e[i];
        uint32_t k = i;
        for (; k > 0 && entry_row(e[k - 1]) > entry_row(x); k--) e[k] = e[k - 1];
        e[k] = x;
    }
}

/* What the sort of a bucket prefetches of each row, since it leaves memory idle otherwise. */
struct sort_prefetch {
    const struct array *weight; /* NULL: nothing */
    int64_t bytes;              /* from the begin of the row on */
};
static const struct sort_prefetch no_prefetch = {NULL, 0};

/* Stable, least significant digit first. One read of the entries counts for all passes. The first pass
 * prefetches. */
ALWAYS_INLINE void radix_sort(struct sort_prefetch next_rows, uint64_t *e, uint64_t *spare,
                              uint32_t n, int bits, const int passes) {
    const int digit = (bits + passes - 1) / passes;
    const uint32_t mask = (1u << digit) - 1;
    uint32_t next[32 / DIGIT_BITS][1 << DIGIT_BITS];
    for (int pass = 0; pass < passes; pass++) memset(next[pass], 0, sizeof *next[0] << digit);
    for (uint32_t i = 0; i < n; i++)
        for (int pass = 0; pass < passes; pass++) next[pass][e[i] >> (32 + pass * digit) & mask]++;
    uint64_t *from = e, *to = spare;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = 32 + pass * digit;
        uint32_t sum = 0;
        for (uint32_t d = 0; d <= mask; d++) {
            uint32_t count = next[pass][d];
            next[pass][d] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (next_rows.weight && pass == 0)
                prefetch(array_row(next_rows.weight, entry_row(from[i])), next_rows.bytes, INTO_L2);
            to[next[pass][from[i] >> shift & mask]++] = from[i];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != e) memcpy(e, from, n * sizeof *e);
}

/* Stable sort of a bucket by the lowest `bits` bits of the row; the higher bits are equal. */
static void sort_bucket(struct sort_prefetch next_rows, uint64_t *e, uint64_t *spare, uint32_t n,
                        int bits) {
    if (bits == 0 || n < 2) return;
    if (n <= SMALL_SORT) {
        insertion_sort(e, n);
        return;
    }
    switch ((bits + DIGIT_BITS - 1) / DIGIT_BITS) {
    case 1: radix_sort(next_rows, e, spare, n, bits, 1); break;
    case 2: radix_sort(next_rows, e, spare, n, bits, 2); break;
    case 3: radix_sort(next_rows, e, spare, n, bits, 3); break;
    default: radix_sort(next_rows, e, spare, n, bits, 4);
    }
}

static void leave_over(struct fused *p, int32_t table, uint32_t begin, uint32_t end) {
    int32_t slot;
#pragma omp atomic capture
    slot = p->long_runs++;
    p->long_run[slot] =
        (struct long_run){entry_row(p->partition.entry[begin]), begin, end, table, 0};
}

/* Lists the first entry of each run of equal rows, without a branch; run[] has n + 1 elements. */
static uint32_t list_runs(const uint64_t *e, uint32_t n, uint32_t *run) {
    uint32_t runs = 0;
    int64_t before = -1;
    for (uint32_t i = 0; i < n; i++) {
        run[runs] = i;
        runs += entry_row(e[i]) != before;
        before = entry_row(e[i]);
    }
    run[runs] = n;
    return runs;
}

/* The bucket's spare entries are free once it is sorted, and hold the list of its runs. */
static uint32_t *runs_of(const struct fused *p, int64_t bucket) {
    return (uint32_t *)(p->spare + p->partition.begin[bucket]);
}

/* What to prefetch during the sort of a bucket of n lookups: as much of each row as the choice has room for. If
 * rows come `often`, most of these prefetches are in vain, and a line is enough. weight: of the rows that the
 * caller updates next; NULL: it does not. */
static struct sort_prefetch sort_prefetch_of(const struct array *weight, uint32_t n, bool often) {
    const int64_t most = prefetch_choice.sort_bytes / n / LINE * LINE;
    if (!weight || most == 0) return no_prefetch;
    return (struct sort_prefetch){weight, often ? LINE : min64(most, weight->stride)};
}

/* Sorts a bucket and lists its runs. next_rows: see sort_prefetch_of(). */
static void index_bucket(struct fused *p, struct sort_prefetch next_rows, int64_t bucket) {
    const struct partition *x = &p->partition;
    const int32_t t = x->table_of[bucket];
    const uint32_t begin = x->begin[bucket], n = x->begin[bucket + 1] - begin;
    if (n == 0) return; /* its spare entry is another bucket's */
    uint32_t *run = runs_of(p, bucket);
    sort_bucket(next_rows, x->entry + begin, p->spare + begin, n, x->table[t].shift);
    p->runs[bucket] = list_runs(x->entry + begin, n, run);
    for (uint32_t r = 0; n >= LONG_RUN && r < p->runs[bucket]; r++)
        if (run[r + 1] - run[r] >= LONG_RUN) leave_over(p, t, begin + run[r], begin + run[r + 1]);
}

struct fused_bucket {
    const struct fused *plan;
    int64_t bucket;
    int32_t table;
    struct updater updater;
    float *sum; /* [largest dim] */
};

/* Sums and updates every run of a bucket except long ones. common: dim is a constant, and the loops
 * over a row become unrolled. */
ALWAYS_INLINE void update_bucket(void *ctx, const int32_t given, const bool common) {
    const struct fused_bucket *b = ctx;
    const struct fused *p = b->plan;
    const struct updater u = b->updater;
    const int32_t dim = common ? given : u.dim;
    const struct gather_table from = p->gather.table[b->table];
    const uint32_t begin = p->partition.begin[b->bucket];
    const uint32_t n = p->partition.begin[b->bucket + 1] - begin;
    const uint64_t *e = p->partition.entry + begin;
    const uint32_t *run = runs_of(p, b->bucket), runs = p->runs[b->bucket];
    const uint32_t ahead = updater_ahead(&u), grads = (uint32_t)grads_ahead(from.type, dim);
    const enum prefetch_into rows_into = prefetch_choice.rows.into,
                             grads_into = prefetch_choice.grads.into;
    const uint32_t rows_end = p->with & ROW_PREFETCH ? runs : 0; /* no prefetch from here on */
    const uint32_t grads_end = p->with & GRAD_PREFETCH ? n : 0;
    const bool dots = p->gather.weight_grad != NULL;
    for (uint32_t r = 0; r < rows_end && r < ahead; r++)
        updater_prefetch(&u, entry_row(e[run[r]]), dim, rows_into);
    for (uint32_t k = 0; k < grads_end && k < grads; k++) {
        float c;
        prefetch_row_into(from.type, gather_row(&p->gather, &from, (uint32_t)e[k], &c), dim,
                          grads_into);
    }
    for (uint32_t r = 0; r < runs; r++) {
        uint32_t first = run[r], length = run[r + 1] - first;
        int64_t row = entry_row(e[first]);
        if (r + ahead < rows_end)
            updater_prefetch(&u, entry_row(e[run[r + ahead]]), dim, rows_into);
        if (length >= LONG_RUN) continue;
        if (dots) dots_of_row(&p->gather, b->table, row, e + first, length);
        if (!common && length == 1 && from.plain && from.type == FP32 && !u.adjusts) {
            float c;
            const void *next = e;
            if (first + grads < grads_end)
                next = gather_row(&p->gather, &from, (uint32_t)e[first + grads], &c);
            prefetch_row_into(FP32, next, dim, grads_into);
            updater_row_as_is(&u, row, gather_row(&p->gather, &from, (uint32_t)e[first], &c));
        } else {
            int64_t follow = (int64_t)grads_end - (first + length);
            sum_entries(&p->gather, &from, e + first, length, follow, dim, b->sum);
            updater_row(&u, row, b->sum);
        }
    }
}

/* Updates the rows of an indexed bucket. */
static void fused_bucket(const struct fused *p, const struct batch *in,
                         const struct rule_step *steps, const struct table *io, int64_t bucket,
                         float *sum) {
    const struct partition *x = &p->partition;
    const int32_t t = x->table_of[bucket];
    struct fused_bucket b = {p, bucket, t, updater_of(in, t, steps, io), sum};
    const bool constant = p->with & CONSTANT_DIM;
    if (!constant) b.updater.update = update_row_of(steps[t].rule.kind, 0);
    for_dim(constant ? b.updater.dim : 0, update_bucket, &b);
}

/* Serial: cuts the long runs into pieces. */
static void cut_long_runs(struct fused *p) {
    for (int32_t r = 0; r < p->long_runs; r++) {
        struct long_run *x = &p->long_run[r];
        x->first_piece = p->pieces;
        for (uint32_t at = x->begin; at < x->end; at += PIECE)
            p->long_run_of_piece[p->pieces++] = r;
    }
}

/* Sums the pieces, then adds each run's pieces and updates. Every thread of the team calls this. */
static void update_long_runs(const struct fused *p, const struct batch *in,
                             const struct rule_step *steps, const struct table *io) {
#pragma omp for schedule(dynamic)
    for (int32_t k = 0; k < p->pieces; k++) {
        const struct long_run *x = &p->long_run[p->long_run_of_piece[k]];
        uint32_t begin = x->begin + (uint32_t)(k - x->first_piece) * PIECE;
        uint32_t n = x->end - begin < PIECE ? x->end - begin : PIECE;
        if (p->gather.weight_grad)
            dots_of_row(&p->gather, x->table, x->row, p->partition.entry + begin, n);
        sum_entries(&p->gather, &p->gather.table[x->table], p->partition.entry + begin, n, 0,
                    in->tables[x->table].dim, p->piece + (int64_t)k * p->max_dim);
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

/* Partitions the lookups. ahead: reads no gradient, and lists the hot lookups instead of summing them.
 * Every thread of the team calls this. */
ALWAYS_INLINE void fused_index(struct fused *p, const struct batch *in, const bool ahead) {
    const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    gather_fill(&p->gather, thread, threads);
#pragma omp single
    if (p->with & HOT_ROWS) hot_choose(&p->hot, in);
    if (p->hot.rows)
        hot_partition(&p->hot, &p->gather, ahead, thread, threads);
    else
        partition_build(&p->partition, &p->gather, thread, threads);
#pragma omp single
    order_buckets(p);
}

static inline int bucket_chunk(const struct fused *p) {
    return p->partition.buckets < 256 ? 1 : 4; /* few buckets are shared out one by one */
}

/* Sums and updates. ahead: a plan has indexed the buckets, otherwise each is indexed while it is in
 * L1. Every thread of the team calls this. */
ALWAYS_INLINE void fused_update(struct fused *p, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                const bool ahead) {
    const int thread = omp_get_thread_num(), chunk = bucket_chunk(p);
    float *sum = p->sum + (int64_t)thread * p->max_dim;
    bool often = false; /* rows came OFTEN times or more, on average of the thread's last bucket */
    if (p->gather.weight_grad) dots_of_padding(&p->gather, thread, omp_get_num_threads());
#pragma omp for schedule(dynamic) nowait
    for (int32_t k = 0; k < p->small.units; k++)
        small_sum(&p->small, &p->gather, k, steps, io, thread);
#pragma omp for schedule(dynamic, chunk)
    for (int64_t k = 0; k < p->partition.buckets; k++) {
        const int64_t bucket = p->order[k];
        const uint32_t n = p->partition.begin[bucket + 1] - p->partition.begin[bucket];
        if (n == 0) continue;
        if (!ahead) {
            const struct array *weight = &io[p->partition.table_of[bucket]].weight;
            index_bucket(p, sort_prefetch_of(p->with & ROW_PREFETCH ? weight : NULL, n, often),
                         bucket);
            often = OFTEN * p->runs[bucket] < n;
        }
        fused_bucket(p, in, steps, io, bucket, sum);
    }
    if (!ahead) {
#pragma omp single
        cut_long_runs(p);
    }
    update_long_runs(p, in, steps, io);
    if (p->small.units) small_update(&p->small, in, steps, io);
    if (p->hot.rows) hot_update(&p->hot, in, steps, io);
}

static inline int fused_run(const struct batch *in, const struct rule_step *steps,
                            const struct table *io, const struct launch *how, unsigned with) {
    struct fused plan;
    fused_lay_out(&plan, in, how->threads, with, false, how->scratch);
    gather_want(&plan.gather, io, how);
    fused_prepare(&plan, in, how->threads);
#pragma omp parallel num_threads(how->threads)
    {
        fused_index(&plan, in, false);
#pragma omp master
        stage_done(how, STAGE_INDEX);
        fused_update(&plan, in, steps, io, false);
    }
    stage_done(how, STAGE_UPDATE);
    return 0;
}
