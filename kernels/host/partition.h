/* SPDX-License-Identifier: MIT
 *
 * One pass that distributes the lookups of every table over buckets that fit in L1. The rest of the
 * index build, to sort or hash a bucket, then stays in the core. Ids arrive grouped by feature, so
 * each table has its own buckets, and these kernels need no sort by table number.
 *
 * Stable: the entries of a bucket are in the order of their lookups, for any number of threads.
 */
#pragma once

#include <omp.h>
#include <string.h>

#include "kernels/host/row.h"
#include "kernels/host/team.h"

enum {
    BUCKET_LOOKUPS = 1024, /* target size: 8 KiB of entries */
    BUCKETS_MAX = 8192,    /* over all tables: a thread writes to as many streams at once */
    /* A small batch has smaller buckets, so that each of several threads gets its share (kernels/cpu/tried.md). One
     * thread shares with no other: there small buckets take 1.06 of the time. */
    BUCKETS_OF_THREAD = 8,
    BUCKET_LOOKUPS_LEAST = 64,
};

/* How a row finds its bucket within its table. */
enum bucket_by { BUCKET_BY_RANGE, BUCKET_BY_HASH };

struct partition_table {
    int64_t first; /* first bucket */
    int log2;      /* of the number of buckets, by hash */
    int shift;     /* bits of a row number below those that choose the bucket, by range */
};

struct partition {
    enum bucket_by by;
    /* True for a table that the partition skips; NULL: it skips none. */
    bool (*leaves_out)(const struct batch *in, int32_t table);
    const uint8_t *left_out; /* [num_tables] 1: it skips the table, too; NULL: it skips no other */
    int threads;
    int64_t lookups; /* of the tables that the partition takes */
    int64_t buckets;
    struct partition_table *table; /* [num_tables] */
    int32_t *table_of;             /* [buckets] */
    uint32_t *next;                /* [threads][buckets]: counts, then write cursors */
    uint32_t *begin;               /* [buckets + 1] entries of a bucket */
    uint64_t *entry;               /* [lookups], see entry_pack() */
};

static inline bool partition_takes(const struct partition *p, const struct batch *in, int32_t t) {
    return !(p->leaves_out && p->leaves_out(in, t)) && !(p->left_out && p->left_out[t]);
}

static inline int64_t partition_lookups_per_bucket(const struct partition *p,
                                                   const struct batch *in) {
    const int64_t share = in->lookups / (BUCKETS_OF_THREAD * p->threads);
    const int64_t target = p->threads == 1 ? BUCKET_LOOKUPS : min64(share, BUCKET_LOOKUPS);
    return max64(in->lookups / BUCKETS_MAX, max64(target, BUCKET_LOOKUPS_LEAST));
}

static inline struct partition_table partition_of(const struct partition *p, const struct batch *in,
                                                  int32_t t) {
    if (!partition_takes(p, in, t)) return (struct partition_table){0};
    int log2 = bits_for(in->tables[t].lookups / partition_lookups_per_bucket(p, in));
    int row_bits = bits_for(in->tables[t].rows);
    if (log2 > row_bits) log2 = row_bits;
    struct partition_table x = {0, log2, row_bits - log2};
    if (p->by == BUCKET_BY_RANGE) x.first = ((in->tables[t].rows - 1) >> x.shift) + 1;
    if (p->by == BUCKET_BY_HASH) x.first = INT64_C(1) << log2;
    return x; /* first: the number of buckets, until partition_prepare numbers them */
}

static inline void partition_lay_out(struct partition *p, struct scratch *s, const struct batch *in,
                                     int threads, enum bucket_by by,
                                     bool (*leaves_out)(const struct batch *, int32_t),
                                     const uint8_t *left_out) {
    *p = (struct partition){
        .by = by, .leaves_out = leaves_out, .left_out = left_out, .threads = threads};
    for (int32_t t = 0; t < in->num_tables; t++) {
        p->buckets += partition_of(p, in, t).first;
        p->lookups += partition_takes(p, in, t) ? in->tables[t].lookups : 0;
    }
    p->table = scratch_take(s, in->num_tables, sizeof *p->table);
    p->table_of = scratch_take(s, p->buckets, sizeof *p->table_of);
    p->next = scratch_take(s, threads * p->buckets, sizeof *p->next);
    p->begin = scratch_take(s, p->buckets + 1, sizeof *p->begin);
    p->entry = scratch_take(s, p->lookups, sizeof *p->entry);
}

/* Serial, O(buckets). */
static inline void partition_prepare(const struct partition *p, const struct batch *in) {
    int64_t bucket = 0;
    for (int32_t t = 0; t < in->num_tables; t++) {
        struct partition_table x = partition_of(p, in, t);
        int64_t last = bucket + x.first;
        x.first = bucket;
        p->table[t] = x;
        while (bucket < last) p->table_of[bucket++] = t;
    }
}

/* The first lookup of part `part` of `parts` equal parts of the partitioned lookups. */
static inline int64_t partition_begin(const struct partition *p, const struct batch *in, int part,
                                      int parts) {
    int64_t k = part_begin(p->lookups, part, parts);
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        if (!partition_takes(p, in, x->table)) continue;
        if (k < x->lookups) return x->first_lookup + k;
        k -= x->lookups;
    }
    return in->lookups;
}

static inline struct stretch partition_stretch_at(const struct partition *p, const struct batch *in,
                                                  int64_t lo, int64_t hi) {
    struct stretch s = stretch_at(in, lo, hi);
    while (s.i < hi && !partition_takes(p, in, s.table)) s = stretch_at(in, s.end, hi);
    return s;
}

/* STRETCHES over partitioned lookups only. */
#define PARTITION_STRETCHES(s, p, in, lo, hi)                                                      \
    struct stretch s = partition_stretch_at(p, in, lo, hi);                                        \
    s.i < (hi);                                                                                    \
    s = partition_stretch_at(p, in, s.end, hi)

static inline uint32_t row_hash(int64_t row) {
    uint32_t h = (uint32_t)row * 0x9e3779b1u;
    return h ^ h >> 15;
}

/* The context of a walk over a stretch of a table's lookups. */
struct partition_walk {
    enum bucket_by by;
    struct partition_table table;
    bool per_lookup;
    uint32_t *next; /* of the table's first bucket */
    uint64_t *entry;
};

ALWAYS_INLINE struct partition_walk partition_walk_of(const struct partition *p,
                                                      const struct gather *g, int32_t t,
                                                      const enum bucket_by by, uint32_t *next) {
    return (struct partition_walk){by, p->table[t], g->table[t].per_lookup,
                                   next + p->table[t].first, p->entry};
}

ALWAYS_INLINE uint32_t *partition_cursor(const struct partition_walk *w, int64_t row) {
    if (w->by == BUCKET_BY_RANGE) return &w->next[row >> w->table.shift];
    return &w->next[(uint64_t)(row_hash(row) * 0x85ebca6bu) >> (32 - w->table.log2)];
}

ALWAYS_INLINE void partition_count(void *ctx, struct lookup l) {
    ++*partition_cursor(ctx, l.row);
}

ALWAYS_INLINE void partition_put(void *ctx, struct lookup l) {
    struct partition_walk *w = ctx;
    entry_put(w->entry + (*partition_cursor(w, l.row))++,
              entry_pack(l.row, gather_position(w->per_lookup, l)));
}

/* Sets the counts of a thread to 0 and returns them. */
static inline uint32_t *partition_clear(const struct partition *p, int thread) {
    return memset(p->next + thread * p->buckets, 0, (size_t)p->buckets * sizeof *p->next);
}

ALWAYS_INLINE void partition_pass(const struct partition *p, const struct gather *g, int64_t lo,
                                  int64_t hi, const enum bucket_by by, uint32_t *next,
                                  void (*visit)(void *, struct lookup)) {
    for (PARTITION_STRETCHES(s, p, g->in, lo, hi)) {
        struct partition_walk w = partition_walk_of(p, g, s.table, by, next);
        walk_stretch(g->in, s, visit, &w);
    }
}

ALWAYS_INLINE void partition_build_by(const struct partition *p, const struct gather *g,
                                      const enum bucket_by by, int thread, int threads) {
    int64_t lo = partition_begin(p, g->in, thread, threads);
    int64_t hi = partition_begin(p, g->in, thread + 1, threads);
    uint32_t *next = partition_clear(p, thread);
    partition_pass(p, g, lo, hi, by, next, partition_count);
    team_cursors(p->next, p->buckets, p->begin, threads);
    partition_pass(p, g, lo, hi, by, next, partition_put);
#pragma omp barrier
}

/* Every thread of the team calls this; it ends with a barrier. */
static inline void partition_build(const struct partition *p, const struct gather *g, int thread,
                                   int threads) {
    if (p->by == BUCKET_BY_RANGE)
        partition_build_by(p, g, BUCKET_BY_RANGE, thread, threads);
    else
        partition_build_by(p, g, BUCKET_BY_HASH, thread, threads);
}

/* --- the distinct rows of a bucket, numbered in the order of their first lookups: by a hash table that stays in L1,
 * with linear probing and at most half full */

struct numbers {
    uint32_t *slot; /* [number_slots(n)] number + 1 of a row; 0: free */
    uint32_t *row;  /* [n] by number */
    uint32_t mask;
    uint32_t rows; /* numbered so far */
};

/* Slots of a table for n lookups: 2*n to 4*n. */
static inline uint32_t number_slots(uint32_t n) {
    return UINT32_C(2) << bits_for(n);
}

static inline struct numbers numbers_for(uint32_t n, uint32_t *slot, uint32_t *row) {
    memset(slot, 0, number_slots(n) * sizeof *slot);
    return (struct numbers){slot, row, number_slots(n) - 1, 0};
}

/* A new row gets the number that x->rows had. */
ALWAYS_INLINE uint32_t number_of(struct numbers *x, uint32_t row) {
    uint32_t h = row_hash(row) & x->mask;
    while (x->slot[h] && x->row[x->slot[h] - 1] != row) h = (h + 1) & x->mask;
    if (!x->slot[h]) {
        x->row[x->rows] = row;
        x->slot[h] = ++x->rows;
    }
    return x->slot[h] - 1;
}
