/* SPDX-License-Identifier: MIT
 *
 * The set of touched rows as a bitmap over all rows. The rank of a row in the bitmap is its compact
 * slot. This gives a [touched][dim] accumulator without sort or hash, for rows/4 bytes.
 * touched_step() is a whole step on top of it: mark, rank, zero, add, update. The kernels that use
 * it differ in how threads share the marking and the adding.
 */
#pragma once

#include <omp.h>
#include <string.h>

#include "kernels/host/scatter.h"
#include "kernels/host/team.h"
#include "kernels/host/update.h"

struct touched_word {
    uint64_t bits; /* one per row, for 64 rows */
    int64_t rank;  /* touched rows in all earlier words */
};

struct touched {
    struct gather gather;
    int64_t words;
    struct touched_word *word; /* [words]; every table begins a new cache line */
    int64_t *first_word;       /* [num_tables + 1] */
    float **grad;  /* [num_tables + 1] -> [touched rows][dim], one table after another */
    float *pool;   /* memory of all grad[] */
    int64_t *part; /* [threads + 1] */
};

/* Words of a table's bitmap: whole cache lines, so that tables never share one. */
static inline int64_t words_of(int64_t rows) {
    return (rows + 511) / 512 * 8;
}

static inline size_t touched_lay_out(struct touched *x, const struct batch *in, int threads,
                                     void *base) {
    struct scratch s = {base, 0};
    gather_lay_out(&x->gather, &s, in, false);
    x->words = 0;
    for (int32_t t = 0; t < in->num_tables; t++) x->words += words_of(in->tables[t].rows);
    x->word = scratch_take(&s, x->words, sizeof *x->word);
    x->first_word = scratch_take(&s, in->num_tables + 1, sizeof *x->first_word);
    x->grad = scratch_take(&s, in->num_tables + 1, sizeof *x->grad);
    x->pool = scratch_take(&s, touchable_floats(in), sizeof *x->pool);
    x->part = scratch_take(&s, threads + 1, sizeof *x->part);
    return s.used;
}

static inline size_t touched_scratch_bytes(const struct batch *shape, int threads) {
    return touched_lay_out(&(struct touched){0}, shape, threads, NULL);
}

/* Serial, O(features + tables). */
static inline void touched_prepare(struct touched *x, const struct batch *in,
                                   const struct launch *how) {
    touched_lay_out(x, in, how->threads, how->scratch);
    gather_prepare(&x->gather);
    x->first_word[0] = 0;
    for (int32_t t = 0; t < in->num_tables; t++)
        x->first_word[t + 1] = x->first_word[t] + words_of(in->tables[t].rows);
}

/* Clears this thread's part of the bitmap. Every thread of the team calls this. */
static inline void touched_clear(const struct touched *x, int thread, int threads) {
    int64_t lo = part_begin(x->words, thread, threads),
            hi = part_begin(x->words, thread + 1, threads);
    memset(x->word + lo, 0, (size_t)(hi - lo) * sizeof *x->word);
}

/* Ranks the bits and sets grad[]. Every thread of the team calls this, between barriers. */
static inline void touched_rank(const struct touched *x, const struct batch *in, int thread,
                                int threads) {
    int64_t lo = part_begin(x->words, thread, threads),
            hi = part_begin(x->words, thread + 1, threads);
    int64_t count = 0;
    for (int64_t w = lo; w < hi; w++) count += __builtin_popcountll(x->word[w].bits);
    count = team_scan(x->part, count, thread, threads);
    for (int64_t w = lo; w < hi; w++) {
        x->word[w].rank = count;
        count += __builtin_popcountll(x->word[w].bits);
    }
#pragma omp barrier
#pragma omp single
    {
        float *next = x->pool;
        for (int32_t t = 0; t < in->num_tables; t++) {
            int64_t first = x->word[x->first_word[t]].rank;
            int64_t last =
                t + 1 < in->num_tables ? x->word[x->first_word[t + 1]].rank : x->part[threads];
            x->grad[t] = next;
            next += (last - first) * in->tables[t].dim;
        }
        x->grad[in->num_tables] = next;
    }
}

/* The accumulator of a touched row. */
static inline float *touched_grad(const struct touched *x, int32_t table, int64_t row,
                                  int32_t dim) {
    const struct touched_word *first = &x->word[x->first_word[table]], *word = first + (row >> 6);
    uint64_t below = word->bits & ((UINT64_C(1) << (row & 63)) - 1);
    int64_t slot = word->rank + __builtin_popcountll(below) - first->rank;
    return x->grad[table] + slot * dim;
}

/* Clears this thread's part of the accumulators. Every thread of the team calls this. */
static inline void touched_zero(const struct touched *x, const struct batch *in, int thread,
                                int threads) {
    int64_t floats = x->grad[in->num_tables] - x->pool;
    int64_t lo = part_begin(floats, thread, threads), hi = part_begin(floats, thread + 1, threads);
    memset(x->pool + lo, 0, (size_t)(hi - lo) * sizeof(float));
}

/* The separate optimizer pass over the touched rows. Every thread of the team calls this. The rows
 * of a word are neighbours in the accumulator but not in the table, so a thread prefetches the rows
 * of the next word while it updates those of this word. */
static inline void touched_update(const struct touched *x, const struct batch *in,
                                  const struct rule_step *steps, const struct table *io) {
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct touched_word *word = x->word + x->first_word[t];
        int64_t words = words_of(in->tables[t].rows);
        const struct updater u = updater_of(in, t, steps, io);
#pragma omp for schedule(dynamic, 64) nowait
        for (int64_t w = 0; w < words; w++) {
            if (!word[w].bits) continue;
            float *g = touched_grad(x, t, w * 64 + __builtin_ctzll(word[w].bits), u.dim);
            for (uint64_t ahead = w + 1 < words ? word[w + 1].bits : 0; ahead; ahead &= ahead - 1)
                updater_prefetch(&u, (w + 1) * 64 + __builtin_ctzll(ahead), u.dim, INTO_L1);
            for (uint64_t left = word[w].bits; left; left &= left - 1, g += u.dim)
                updater_row(&u, w * 64 + __builtin_ctzll(left), g);
        }
    }
}

/* The context of a thread's walk over the lookups. */
struct touched_walk {
    const struct touched *touched;
    const struct batch *in;
    int thread, threads;
    struct scatter scatter;
};

/* The bitmap word of a lookup's row. */
static inline uint64_t *touched_word(const struct touched_walk *w, struct lookup l) {
    const struct touched *x = w->touched;
    return &x->word[x->first_word[w->in->features[l.feature].table] + (l.row >> 6)].bits;
}

/* Adds a lookup's gradient to its row's accumulator. */
ALWAYS_INLINE void touched_add(void *ctx, struct lookup l) {
    struct touched_walk *w = ctx;
    int32_t t = w->in->features[l.feature].table, dim = w->in->tables[t].dim;
    scatter_push(&w->scatter, touched_grad(w->touched, t, l.row, dim), w->in->grad_type,
                 gather_at(&w->touched->gather, l.feature, l.q, l.i), dim);
}

/* One step. Every thread of the team calls this. mark and add get an equal part of the lookups if `split` is set, and
 * threads add atomically. Otherwise they get all lookups, and each owner picks its own. The parallel region is in the
 * caller: compilers turn a region into a separate function, which could not inline mark and add. */
ALWAYS_INLINE void touched_step(const struct touched *x, const struct batch *in,
                                const struct rule_step *steps, const struct table *io,
                                const struct launch *how, const bool split,
                                void (*mark)(void *, struct lookup),
                                void (*add)(void *, struct lookup)) {
    int thread = omp_get_thread_num(), threads = omp_get_num_threads();
    struct touched_walk w = {x, in, thread, threads, {.atomic = split}};
    int64_t lo = split ? part_begin(in->lookups, thread, threads) : 0;
    int64_t hi = split ? part_begin(in->lookups, thread + 1, threads) : in->lookups;
    gather_fill(&x->gather, thread, threads);
    touched_clear(x, thread, threads);
#pragma omp barrier
    walk(in, lo, hi, mark, &w);
#pragma omp barrier
    touched_rank(x, in, thread, threads);
#pragma omp master
    stage_done(how, STAGE_INDEX);

    touched_zero(x, in, thread, threads);
#pragma omp barrier
#pragma omp master
    stage_done(how, STAGE_ZERO);

    walk(in, lo, hi, add, &w);
    scatter_drain(&w.scatter);
#pragma omp barrier
#pragma omp master
    stage_done(how, STAGE_REDUCE);

    touched_update(x, in, steps, io);
#pragma omp barrier
#pragma omp master
    stage_done(how, STAGE_UPDATE);
}
