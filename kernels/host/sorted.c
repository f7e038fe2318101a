/* SPDX-License-Identifier: MIT
 *
 * The functions of sorted.h.
 */
#include "kernels/host/sorted.h"

#include <string.h>

#include "kernels/host/team.h"

enum { DOT_ROWS_AHEAD = 8 }; /* distance of the prefetch of rows for dots, in runs */

struct sorted_walk {
    const struct sorted *sorted;
    const struct batch *in;
    int64_t next;
};

ALWAYS_INLINE void sorted_count(void *ctx, struct lookup l) {
    (void)l;
    ((struct sorted_walk *)ctx)->next++;
}

ALWAYS_INLINE void sorted_put(void *ctx, struct lookup l) {
    struct sorted_walk *p = ctx;
    int32_t t = p->in->features[l.feature].table;
    uint32_t position = gather_position(p->sorted->gather.table[t].per_lookup, l);
    p->sorted->entry[p->next++] = entry_pack(p->in->tables[t].first_row + l.row, position);
}

/* Fills entry with the lookups that are not padding, in their order. */
static void sorted_pack(struct sorted *p, const struct batch *in, int thread, int threads) {
    int64_t lo = part_begin(in->lookups, thread, threads);
    int64_t hi = part_begin(in->lookups, thread + 1, threads);
    struct sorted_walk k = {p, in, 0};
    walk(in, lo, hi, sorted_count, &k);
    k.next = team_scan(p->part, k.next, thread, threads);
#pragma omp single
    p->entries = p->part[threads];
    walk(in, lo, hi, sorted_put, &k);
}

/* One stable pass over the digit at shift. */
static void sorted_pass(const struct sorted *p, const uint64_t *from, uint64_t *to, int shift,
                        int thread, int threads) {
    int64_t lo = part_begin(p->entries, thread, threads);
    int64_t hi = part_begin(p->entries, thread + 1, threads);
    uint32_t *count = p->count[thread];
    memset(count, 0, sizeof p->count[thread]);
    for (int64_t i = lo; i < hi; i++) count[from[i] >> shift & (SORT_DIGITS - 1)]++;
    team_cursors(p->count[0], SORT_DIGITS, NULL, threads);
    for (int64_t i = lo; i < hi; i++)
        entry_put(to + count[from[i] >> shift & (SORT_DIGITS - 1)]++, from[i]);
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
        p->runs = next;
    }
#pragma omp barrier
}

void sorted_index(struct sorted *p, const struct batch *in, int thread, int threads) {
    const int bits = bits_for(all_rows(in));
    gather_fill(&p->gather, thread, threads);
    sorted_pack(p, in, thread, threads);
#pragma omp barrier
    for (int shift = 0; shift < bits; shift += SORT_BITS) {
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

/* The gradients of the weights of run u's lookups; the rows are those of table t. */
NOINLINE void sorted_dots(const struct sorted *p, int32_t t, int64_t u) {
    const struct gather *g = &p->gather;
    const int64_t first_row = g->in->tables[t].first_row;
    const uint32_t *run = p->run + u;
    const struct array *weight = &g->io[t].weight;
    if (u + DOT_ROWS_AHEAD < p->first_run[t + 1])
        prefetch(array_row(weight, entry_row(p->entry[run[DOT_ROWS_AHEAD]]) - first_row),
                 weight->stride, INTO_L1);
    dots_of_row(g, t, entry_row(p->entry[run[0]]) - first_row, p->entry + run[0], run[1] - run[0]);
}

void sorted_reduce(const struct sorted *p, const struct batch *in) {
    int32_t t = 0; /* only ascends: with a monotonic schedule a thread gets ascending runs */
#pragma omp single nowait
    for (int32_t k = 0; k < in->num_tables; k++)
        *p->gradient[k].count = p->first_run[k + 1] - p->first_run[k];
#pragma omp for schedule(monotonic : dynamic, 256)
    for (int64_t u = 0; u < p->runs; u++) {
        while (u >= p->first_run[t + 1]) t++;
        const struct table_shape *table = &in->tables[t];
        const struct sparse_gradient *to = &p->gradient[t];
        const uint32_t *run = p->run + u;
        const int64_t at = u - p->first_run[t];
        int64_t ahead = p->run[p->first_run[t + 1]] - run[1]; /* entries of the table */
        to->rows[at] = entry_row(p->entry[run[0]]) - table->first_row;
        if (p->gather.weight_grad) sorted_dots(p, t, u);
        sum_entries(&p->gather, &p->gather.table[t], p->entry + run[0], run[1] - run[0], ahead,
                    table->dim, false, to->values + at * table->dim);
    }
}
