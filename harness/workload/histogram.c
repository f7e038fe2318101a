/* SPDX-License-Identifier: MIT
 *
 * Shares: facebookresearch/dlrm_datasets (MIT), embedding_bag/{2021,2022}/locality_stats.txt,
 * "Ratio of index distribution at different column sizes"; 2021 is the histogram of the numbered files.
 *
 * Inside a bin the hits of a row are log-uniform, as under a power law of exponent 1. A bin with
 * too few lookups for one of its rows becomes one row with all its lookups. So a small batch cannot
 * fill the far bins, and the realised statistics show it.
 */
#include "harness/workload/histogram.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/rng.h"

const double *histogram_shares(enum ids_kind kind) {
    static const double shares_2021[HISTOGRAM_BINS] = {.056, .043, .075, .099, .112, .091,
                                                       .064, .052, .049, .050, .054, .058,
                                                       .061, .052, .038, .026, .020};
    static const double shares_2022[HISTOGRAM_BINS] = {.027, .023, .040, .068, .105, .120,
                                                       .099, .070, .059, .054, .040, .072,
                                                       .064, .047, .021, .017, .076};
    return kind == IDS_HISTOGRAM_2021 ? shares_2021 : shares_2022;
}

/* Hits of the next row of a bin with `left` lookups left. Its rows have low+1 .. 2*low hits (1 if
 * low is 0; the open bin also spans one octave). Never leaves a rest that is too small for a row.
 */
static int64_t next_hits(int64_t low, int64_t left, double u) {
    int64_t least = low + 1;
    if (left < 2 * least) return left;
    int64_t hits = (int64_t)ceil((double)low * exp2(u));
    if (hits < least) hits = least;
    return hits < left - least ? hits : left - least;
}

/* Rows at most: every lookup of bin 0 may need one, every row of bin b more than 2^(b-1) lookups.
 */
static int64_t most_rows(const int64_t upto[HISTOGRAM_BINS + 1]) {
    int64_t rows = upto[1];
    for (int b = 1; b < HISTOGRAM_BINS; b++)
        rows += (upto[b + 1] - upto[b]) / (((int64_t)1 << (b - 1)) + 1) + 1;
    return rows;
}

static void add_row(struct histogram_plan *p, int64_t hits) {
    p->first[p->rows + 1] = p->first[p->rows] + hits;
    p->rows++;
}

static void plan_runs(int64_t n, struct histogram_plan *out) {
    enum { OTHERS = 4 };
    int64_t p = 2;
    while (2 * 3 * 2 * p < n) p *= 2;
    for (int64_t hits = p + 1; hits >= p - 1 && 2 * 3 * p < n; hits--) add_row(out, hits);
    out->hot = out->rows;
    while (out->first[out->rows] < n)
        add_row(out, n - out->first[out->rows] < OTHERS ? n - out->first[out->rows] : OTHERS);
}

static void plan_bins(const int64_t upto[HISTOGRAM_BINS + 1], uint64_t key,
                      struct histogram_plan *out) {
    for (int b = HISTOGRAM_BINS - 1; b >= 0; b--) { /* hottest first */
        int64_t low = b ? (int64_t)1 << (b - 1) : 0;
        for (int64_t left = upto[b + 1] - upto[b]; left > 0;) {
            int64_t hits = next_hits(low, left, rng_unit(key, (uint64_t)out->rows));
            add_row(out, hits);
            left -= hits;
        }
        if (low == 32) out->hot = out->rows;
    }
}

int histogram_plan(enum ids_kind kind, int64_t n, int64_t table_rows, uint64_t key,
                   struct histogram_plan *out, struct error *err) {
    const double *share = histogram_shares(kind);
    int64_t upto[HISTOGRAM_BINS + 1] = {0}; /* lookups in the bins below b */
    double sum = 0.0, total = 0.0;
    for (int b = 0; b < HISTOGRAM_BINS; b++) total += share[b];
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        sum += share[b];
        upto[b + 1] = llrint(sum / total * (double)n);
    }

    *out = (struct histogram_plan){.table_rows = table_rows};
    const int64_t most = kind == IDS_RUNS ? n : most_rows(upto);
    out->first = malloc((size_t)(most + 1) * sizeof *out->first);
    if (!out->first) return fail(err, "out of memory for the plan of %lld lookups", (long long)n);
    out->first[0] = 0;
    if (kind == IDS_RUNS)
        plan_runs(n, out);
    else
        plan_bins(upto, key, out);
    if (out->rows <= table_rows) return 0;
    fail(err,
         "the histogram of %lld lookups hits %lld rows but the table has %lld; take more rows "
         "or a smaller batch",
         (long long)n, (long long)out->rows, (long long)table_rows);
    histogram_free(out);
    return -1;
}

void histogram_free(struct histogram_plan *p) {
    free(p->first);
    *p = (struct histogram_plan){0};
}

int64_t histogram_rank(const struct histogram_plan *p, int64_t r, int64_t k) {
    if (r < p->hot) return r;
    int64_t cold = p->rows - p->hot, room = p->table_rows - p->hot;
    return p->hot + (r - p->hot + k * cold) % room;
}
