/* SPDX-License-Identifier: MIT */
#include "harness/check/gradient_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/oracle.h"
#include "kernels/gradient.h"

/* The entries that a table must have. */
struct entries {
    int64_t count;
    const struct row_run *run;       /* merged: [count + 1] of the index; otherwise NULL */
    const struct row_lookup *lookup; /* merged: of the index; otherwise [count] in order */
};

static struct entries merged_entries(const struct row_index *x, int32_t t) {
    const int64_t first = row_index_find(x, t, 0), end = row_index_find(x, t + 1, 0);
    return (struct entries){end - first, x->run + first, x->lookup};
}

static int by_position(const void *a, const void *b) {
    const int64_t x = ((const struct row_lookup *)a)->lookup,
                  y = ((const struct row_lookup *)b)->lookup;
    return (x > y) - (x < y);
}

/* memory: room for all lookups of the index. */
static struct entries unmerged_entries(const struct row_index *x, int32_t t,
                                       struct row_lookup *memory) {
    const int64_t first = x->run[row_index_find(x, t, 0)].first,
                  end = x->run[row_index_find(x, t + 1, 0)].first;
    const size_t bytes = (size_t)(end - first) * sizeof *memory;
    if (bytes) memcpy(memory + first, x->lookup + first, bytes);
    qsort(memory + first, (size_t)(end - first), sizeof *memory, by_position);
    return (struct entries){end - first, NULL, memory + first};
}

static void judge_entry(const struct gradient_check *c, int32_t t, const struct sparse_gradient *g,
                        const struct entries *e, int64_t k, struct num *want,
                        struct check_result *r) {
    const int32_t dim = c->in->tables[t].dim;
    const struct row_lookup *lookups = e->lookup + (e->run ? e->run[k].first : k);
    const int64_t hits = e->run ? e->run[k + 1].first - e->run[k].first : 1;
    char text[sizeof r->message] = "";
    bool none = false;
    if (g->rows[k] != lookups->row)
        snprintf(text, sizeof text,
                 "table %" PRId32 " entry %" PRId64 ": got row %" PRId64 ", expected row %" PRId64,
                 t, k, g->rows[k], lookups->row);
    oracle_sum(c->in, lookups, hits, c->exact, dim, want);
    oracle_cancel(c->in, lookups, hits, dim, want);
    for (int32_t d = 0; d < dim && !text[0]; d++) {
        const float got = g->values[k * dim + d], exact = (float)want[d].value;
        const double off = fabs((double)got - want[d].value), bound = want[d].error;
        if (!isfinite(bound)) {
            none = true;
            r->no_value |= !isfinite(got);
            continue;
        }
        if (bound > 0 && off / bound > r->worst && isfinite(off)) r->worst = off / bound;
        if (c->exact ? memcmp(&got, &exact, sizeof got) == 0 : off <= bound) continue;
        snprintf(text, sizeof text,
                 "table %" PRId32 " entry %" PRId64 ", row %" PRId64 " (%" PRId64
                 " lookups) [%" PRId32 "]: got %.9g, expected %.9g, off by %.3g, allowed %.3g",
                 t, k, lookups->row, hits, d, (double)got, want[d].value, off, bound);
    }
    if (text[0] && r->wrong++ == 0) memcpy(r->message, text, sizeof text);
    r->undecided += none && !text[0];
}

static void judge_table(const struct gradient_check *c, int32_t t, const struct sparse_gradient *g,
                        const struct entries *e, struct check_result *all) {
    if (*g->count != e->count) {
        if (all->wrong++ == 0)
            snprintf(all->message, sizeof all->message,
                     "table %" PRId32 ": got %" PRId64 " entries, expected %" PRId64, t, *g->count,
                     e->count);
        return;
    }
#pragma omp parallel if (e->count > 1024)
    {
        struct check_result mine = {0};
        struct num *want = malloc((size_t)c->in->tables[t].dim * sizeof *want);
        if (!want) abort();
#pragma omp for schedule(dynamic, 64)
        for (int64_t k = 0; k < e->count; k++) judge_entry(c, t, g, e, k, want, &mine);
        free(want);
#pragma omp critical(gradient_result)
        {
            if (mine.wrong && !all->wrong) memcpy(all->message, mine.message, sizeof mine.message);
            all->wrong += mine.wrong;
            all->undecided += mine.undecided;
            all->no_value |= mine.no_value;
            if (mine.worst > all->worst) all->worst = mine.worst;
        }
    }
}

/* The first byte from `at` to `end` that lost its bits, or -1; at becomes `next`. */
static int64_t changed(const struct gradient_check *c, size_t *at, const void *end, size_t bytes) {
    const unsigned char *output = c->output;
    const size_t last = (size_t)((const unsigned char *)end - output);
    for (size_t b = *at; b < last; b++)
        if (output[b] != (unsigned char)c->filled) return (int64_t)b;
    *at = last + bytes;
    return -1;
}

/* The first byte outside of the entries that lost its bits, or -1. The counts are right. */
static int64_t changed_outside(const struct gradient_check *c, const struct sparse_gradient *of) {
    size_t at = (size_t)c->in->num_tables * sizeof *of->count;
    int64_t where = -1;
    for (int32_t t = 0; t < c->in->num_tables && where < 0; t++) {
        const size_t entries = (size_t)*of[t].count;
        where = changed(c, &at, of[t].rows, entries * sizeof *of->rows);
        if (where >= 0) break;
        where = changed(c, &at, of[t].values,
                        entries * (size_t)c->in->tables[t].dim * sizeof *of->values);
    }
    return where >= 0 ? where : changed(c, &at, (const char *)c->output + c->bytes, 0);
}

struct check_result gradient_check_run(const struct gradient_check *c) {
    const struct batch *in = c->in;
    struct check_result all = {0};
    struct sparse_gradient *of = malloc((size_t)in->num_tables * sizeof *of);
    struct row_lookup *memory =
        malloc((size_t)(c->merged ? 0 : c->index->lookups) * sizeof *memory + 1);
    if (!of || !memory) abort();
    gradient_lay_out(in, c->merged, (void *)c->output, of);
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct entries e =
            c->merged ? merged_entries(c->index, t) : unmerged_entries(c->index, t, memory);
        judge_table(c, t, &of[t], &e, &all);
    }
    const int64_t outside = all.wrong ? -1 : changed_outside(c, of);
    if (outside >= 0)
        snprintf(all.message, sizeof all.message,
                 "wrote byte %" PRId64 " of the output, which belongs to no entry", outside);
    else if (all.undecided && !all.wrong)
        snprintf(all.message, sizeof all.message,
                 "%" PRId64 " sums of gradients may overflow single precision%s", all.undecided,
                 all.no_value ? ", and some do: they have no finite value" : "");
    all.ok = all.wrong == 0 && outside < 0 && !all.undecided;
    free(memory);
    free(of);
    return all;
}
