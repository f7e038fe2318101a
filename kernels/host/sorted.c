/* SPDX-License-Identifier: MIT
 *
 * The functions of sorted.h.
 */
#include "kernels/host/sorted.h"

#include <string.h>

#include "kernels/host/team.h"
#include "kernels/host/update.h"

enum {
    CHUNK = 256, /* a thread takes so many runs at a time */
};

/* Sets the counts of a thread to 0 and returns them. */
static uint32_t *sorted_clear(const struct sorted *p, int thread) {
    const size_t digits = (size_t)1 << p->digit_bits;
    return memset(p->next + (size_t)thread * digits, 0, digits * sizeof *p->next);
}

/* The first pass of the sort, over the lookups of one table. */
struct sorted_walk {
    int64_t first_row; /* of the table */
    bool per_lookup;
    uint32_t mask, *next; /* of digits */
    uint64_t *entry;
};

ALWAYS_INLINE void sorted_count(void *ctx, struct lookup l) {
    const struct sorted_walk *w = ctx;
    w->next[(w->first_row + l.row) & w->mask]++;
}

ALWAYS_INLINE void sorted_put(void *ctx, struct lookup l) {
    const struct sorted_walk *w = ctx;
    const int64_t row = w->first_row + l.row;
    entry_put(w->entry + w->next[row & w->mask]++,
              entry_pack(row, gather_position(w->per_lookup, l)));
}

/* Fills entry with the lookups that are not padding, by the lowest digit of their rows. */
static void sorted_pack(struct sorted *p, const struct batch *in, int thread, int threads) {
    const int64_t lo = part_begin(in->lookups, thread, threads);
    const int64_t hi = part_begin(in->lookups, thread + 1, threads);
    uint32_t *next = sorted_clear(p, thread);
    for (int pass = 0; pass < 2; pass++) {
        for (STRETCHES(s, in, lo, hi)) {
            struct sorted_walk w = {in->tables[s.table].first_row,
                                    p->gather.table[s.table].per_lookup, (1u << p->digit_bits) - 1,
                                    next, p->entry};
            if (pass == 0)
                walk_stretch(in, s, sorted_count, &w);
            else
                walk_stretch(in, s, sorted_put, &w);
        }
        if (pass == 0) team_cursors(p->next, 1 << p->digit_bits, p->first, threads);
    }
#pragma omp single
    p->entries = p->first[1 << p->digit_bits];
}

/* One stable pass over the digit at shift. */
static void sorted_pass(const struct sorted *p, const uint64_t *from, uint64_t *to, int shift,
                        int thread, int threads) {
    const int64_t lo = part_begin(p->entries, thread, threads);
    const int64_t hi = part_begin(p->entries, thread + 1, threads);
    const uint32_t mask = (1u << p->digit_bits) - 1;
    uint32_t *next = sorted_clear(p, thread);
    for (int64_t i = lo; i < hi; i++) next[from[i] >> shift & mask]++;
    team_cursors(p->next, 1 << p->digit_bits, NULL, threads);
    for (int64_t i = lo; i < hi; i++) entry_put(to + next[from[i] >> shift & mask]++, from[i]);
#pragma omp barrier
}

/* Finds the runs of equal rows in the sorted entries, and the first run of each table. */
static void sorted_runs(struct sorted *p, const struct batch *in, int thread, int threads) {
    int64_t lo = part_begin(p->entries, thread, threads);
    int64_t hi = part_begin(p->entries, thread + 1, threads);
    const uint64_t *e = p->entry;
    int64_t count = 0;
    for (int64_t i = lo; i < hi; i++) count += i == 0 || entry_row(e[i]) != entry_row(e[i - 1]);
    int64_t next = team_scan(p->part, count, thread, threads);
    int32_t t = lo > 0 ? 1 + table_of_row(in->tables, in->num_tables, entry_row(e[lo - 1])) : 0;
    for (int64_t i = lo; i < hi; i++) {
        if (i > 0 && entry_row(e[i]) == entry_row(e[i - 1])) continue;
        for (; t < in->num_tables && in->tables[t].first_row <= entry_row(e[i]); t++)
            p->first_run[t] = next;
        p->run[next++] = (uint32_t)i;
    }
    if (thread == threads - 1) { /* it has the last entry */
        for (; t <= in->num_tables; t++) p->first_run[t] = next;
        p->run[next] = (uint32_t)p->entries;
    }
#pragma omp barrier
}

void sorted_index(struct sorted *p, const struct batch *in, int thread, int threads) {
    gather_fill(&p->gather, thread, threads);
    sorted_pack(p, in, thread, threads);
    for (int shift = p->digit_bits; shift < bits_for(all_rows(in)); shift += p->digit_bits) {
        sorted_pass(p, p->entry, p->other, 32 + shift, thread, threads);
#pragma omp single
        {
            uint64_t *sorted = p->other;
            p->other = p->entry;
            p->entry = sorted;
        }
    }
    sorted_runs(p, in, thread, threads);
}

/* Runs first .. last - 1 of a table, counted from its first run. */
struct reduce {
    const struct sorted *sorted;
    int32_t table;
    int64_t first, last;
};

ALWAYS_INLINE void reduce_runs(void *ctx, const int32_t dim, const bool common) {
    const struct reduce *x = ctx;
    const struct sorted *p = x->sorted;
    const struct gather_table from = p->gather.table[x->table];
    const struct sparse_gradient *to = &p->gradient[x->table];
    const int64_t first_row = p->gather.in->tables[x->table].first_row;
    const int64_t first_run = p->first_run[x->table];
    const uint32_t *run = p->run + first_run, end = p->run[p->first_run[x->table + 1]];
    for (int64_t u = x->first; u < x->last; u++) {
        to->rows[u] = entry_row(p->entry[run[u]]) - first_row;
        sum_entries(&p->gather, &from, p->entry + run[u], run[u + 1] - run[u], end - run[u + 1],
                    dim, common, to->values + u * dim);
    }
}

void sorted_reduce(const struct sorted *p, const struct batch *in) {
    for (int32_t t = 0; t < in->num_tables; t++) {
        const int64_t runs = p->first_run[t + 1] - p->first_run[t];
#pragma omp single nowait
        *p->gradient[t].count = runs;
#pragma omp for schedule(dynamic) nowait
        for (int64_t u = 0; u < runs; u += CHUNK) {
            struct reduce x = {p, t, u, min64(u + CHUNK, runs)};
            for_dim(in->tables[t].dim, reduce_runs, &x);
        }
    }
#pragma omp barrier
}
