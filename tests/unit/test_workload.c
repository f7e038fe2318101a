/* SPDX-License-Identifier: MIT
 *
 * Generated workloads: the same for any number of threads and at any time (golden fingerprints),
 * with the lengths, reuse and hits that the spec asks for.
 */
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/histogram.h"
#include "harness/workload/id_stats.h"
#include "harness/workload/lengths.h"

#include "tests/support/generate.h"

static struct id_stats stats_of(const struct batch *in) {
    struct row_index x = row_index_build(in);
    struct id_stats s = id_stats(in, &x);
    row_index_free(&x);
    return s;
}

/* FNV-1a of everything in a batch. */
static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++) h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_batch(const struct batch *in) {
    size_t id = in->id_type == ID_INT32 ? 4 : 8, n = (size_t)in->lookups;
    uint64_t h = hash_bytes(0xcbf29ce484222325u, in->ids, n * id);
    h = hash_bytes(h, in->offsets, (size_t)(in->flat_bags + 1) * 8);
    if (in->lookup_weights) h = hash_bytes(h, in->lookup_weights, n * 4);
    if (in->winners) h = hash_bytes(h, in->winners, (size_t)in->grad_elements * 4);
    return hash_bytes(h, in->grad, (size_t)(in->grad_elements * dtype_bytes(in->grad_type)));
}

/* --- a batch does not depend on the number of threads, nor on the number of later batches. These workloads are so
 * large that every parallel loop does run in parallel. */

static const char *const parallel_specs[] = {
    "workload zipf\nbatch 70000\nrows 1e6\ndim 3\nlength uniform 0 4\nfeatures 2\nreuse 0.3\n"
    "weighted 1\n",
    "workload powerlaw\nbatch 70000\nrows 1000\ndim 2\nids powerlaw\nlength negbin 2 1.5\n"
    "pooling none\nid_type int32\n",
    "workload max\nbatch 70000\nrows 1000\ndim 3\nlength uniform 0 4\nfeatures 2\npooling max\n"
    "padding 3\n",
    "workload histogram\nbatch 5000\nrows 1e5\ndim 20\nlength fixed 20\nids histogram-2021\n",
};

static void same_for_any_threads(void **state) {
    static const int threads[] = {3, 2, 1}; /* falling: LLVM's libomp leaks if a team grows */
    int before = omp_get_max_threads();
    (void)state;
    for (size_t s = 0; s < sizeof parallel_specs / sizeof *parallel_specs; s++) {
        uint64_t first[2] = {0};
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            omp_set_num_threads(threads[t]);
            struct workload w = generate(parallel_specs[s], 2 + (int)t, GRAD_REAL);
            for (int k = 0; k < 2; k++) {
                uint64_t h = hash_batch(&w.batches[k]);
                if (t == 0) first[k] = h;
                assert_true(h == first[k]);
            }
            assert_true(first[0] != first[1]);
            workload_free(&w);
        }
    }
    omp_set_num_threads(before);
}

struct golden {
    const char *test, *text;
    uint64_t fingerprint[2];
};

static const struct golden goldens[] = {
    {"golden zipf",
     "workload a\nbatch 64\nrows 1000\ndim 8\nlength uniform 0 9\nalpha 1.05\nfeatures 2\n",
     {0x3e5c345fbb908def, 0x09aeddb504c3288d}},
    {"golden histogram",
     "workload b\nbatch 64\ntables 2\nrows 2000\ndim 4\nlength negbin 5 1\nids histogram-2022\n"
     "seed 7\nid_type int32\n",
     {0x09cb1e238e39a795, 0x6d34e5e34d412fba}},
};

static void fingerprint_as_ever(void **state) {
    const struct golden *c = *state;
    struct workload w = generate(c->text, 2, GRAD_EXACT);
    for (int k = 0; k < 2; k++) {
        uint64_t seen = stats_of(&w.batches[k]).fingerprint;
        if (seen != c->fingerprint[k])
            fail_msg("batch %d: 0x%016llx instead of 0x%016llx", k, (unsigned long long)seen,
                     (unsigned long long)c->fingerprint[k]);
    }
    workload_free(&w);
}

/* One step for K batches is one step for a batch that is K times as large. */
static void micro_batches(void **state) {
    struct workload a = generate("workload w\nbatch 12\nmicro_batches 5\nrows 100\n", 1, GRAD_REAL);
    struct workload b = generate("workload w\nbatch 60\nrows 100\n", 1, GRAD_REAL);
    (void)state;
    assert_true(hash_batch(&a.batches[0]) == hash_batch(&b.batches[0]));
    workload_free(&a);
    workload_free(&b);
}

/* Each column shard of a table has the table's lookups and per-sample weights, and the gradient of its own columns. */
static void column_shards(void **state) {
#define WHOLE "workload w\nbatch 40\ntables 2\nrows 100\ndim 7\nweighted 1\nreuse 0.5\n"
    struct workload a = generate(WHOLE, 2, GRAD_REAL),
                    b = generate(WHOLE "column_shards 2\n", 2, GRAD_REAL);
    const struct batch *x = &a.batches[1], *y = &b.batches[1];
    (void)state;
    assert_true(b.num_tables == 4 && b.tables[2].dim == 3 && b.tables[3].dim == 4);
    assert_memory_equal(x->grad, y->grad, (size_t)x->grad_elements * sizeof(float));
    for (int f = 0; f < 4; f++) {
        const int64_t from = x->features[f / 2].first_lookup, to = y->features[f].first_lookup,
                      count = x->features[f / 2].lookups;
        assert_int_equal(y->features[f].lookups, count);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(batch_id(x, from + i), batch_id(y, to + i));
            assert_true(x->lookup_weights[from + i] == y->lookup_weights[to + i]);
        }
    }
    workload_free(&a);
    workload_free(&b);
}

/* --- lengths */

struct length_case {
    const char *test, *text;
    double mean, cv, empty;
};

static const struct length_case length_cases[] = {
    {"length fixed 7", "fixed 7", 7, 0, 0},
    {"length uniform 0 3", "uniform 0 3", 1.5, 0.7454, 0.25},
    {"length negbin 13.6 1", "negbin 13.6 1", 13.6, 1, 0.0587}, /* p^r = 13.6^-1.0794 */
    {"length negbin 20 2", "negbin 20 2", 20, 2, 0.3297},
};

static void lengths_as_asked(void **state) {
    const struct length_case *c = *state;
    enum { BAGS = 40000 };
    char text[200];
    double sum = 0, squares = 0, empty = 0;
    struct lengths lengths;
    struct error err = {""};
    snprintf(text, sizeof text, "workload w\nlength %s\n", c->text);
    struct spec_list l = points_of(text);
    assert_int_equal(lengths_make(&l.specs[0].tables[0].length, &lengths, &err), 0);
    for (uint64_t b = 0; b < BAGS; b++) {
        const double length = (double)lengths_draw(&lengths, 1, b);
        sum += length;
        squares += length * length;
        empty += length == 0;
    }
    lengths_free(&lengths);
    spec_list_free(&l);
    double mean = sum / BAGS, cv = sqrt(fmax(squares / BAGS - mean * mean, 0)) / mean;
    assert_true(fabs(mean - c->mean) <= 5 * c->cv * c->mean / sqrt(BAGS));
    assert_true(fabs(cv - c->cv) <= 0.03 * c->cv + 1e-9);
    assert_true(fabs(empty / BAGS - c->empty) <= 0.01);
}

/* --- ids */

/* In a large table almost no row repeats by chance: rows that a batch shares with the one before
 * are reuse. */
static void reuse_share(void **state) {
    struct workload w = generate(
        "workload w\nbatch 4000\nrows 1e12\ndim 1\nids uniform\nreuse 0.3\n", 3, GRAD_EXACT);
    (void)state;
    for (int k = 1; k < 3; k++) {
        struct row_index old = row_index_build(&w.batches[k - 1]),
                         new = row_index_build(&w.batches[k]);
        int64_t shared = 0;
        for (int64_t i = 0; i < new.lookups; i++)
            shared += old.run[row_index_find(&old, 0, new.lookup[i].row)].row == new.lookup[i].row;
        double share = (double)shared / (double)new.lookups;
        if (fabs(share - 0.3) > 0.01) fail_msg("reused %.4f", share);
        row_index_free(&old);
        row_index_free(&new);
    }
    workload_free(&w);
}

/* Scattered: features of one table have the same hottest row, tables have different ones. Identity:
 * the hottest row is row 0. */
static int64_t hottest_row(const struct batch *in, int f) {
    int64_t count[1000] = {0}, hottest = 0;
    for (int64_t i = 0; i < in->features[f].lookups; i++) {
        int64_t id = batch_id(in, in->features[f].first_lookup + i);
        if (++count[id] > count[hottest]) hottest = id;
    }
    return hottest;
}

static void rank_to_row(void **state) {
    (void)state;
    for (int identity = 0; identity < 2; identity++) {
        char text[200];
        snprintf(text, sizeof text,
                 "workload w\nbatch 500\nrows 1000\ntables 2\nfeatures 2\nalpha 1.2\nmap %s\n",
                 identity ? "identity" : "scatter");
        struct workload w = generate(text, 1, GRAD_EXACT);
        int64_t row[4];
        for (int f = 0; f < 4; f++) row[f] = hottest_row(&w.batches[0], f);
        assert_true(row[0] == row[1] && row[2] == row[3]);
        assert_true(identity ? row[0] == 0 && row[2] == 0 : row[0] != row[2]);
        workload_free(&w);
    }
}

/* The published shares of the lookups that hit a row 1, 2, 3 to 4, 5 to 8 ... times, and the
 * number of distinct rows that follows. The last bin begins above 32768 hits, which needs a
 * large batch. */
struct histogram_case {
    const char *test, *text;
    enum ids_kind kind;
    double distinct; /* share of the lookups */
};

static const struct histogram_case histograms[] = {
    {"histogram 2021", "batch 53000\nlength fixed 32\nids histogram-2021\n", IDS_HISTOGRAM_2021,
     1 / 7.6},
    {"histogram 2022", "batch 16384\nlength fixed 64\nids histogram-2022\n", IDS_HISTOGRAM_2022,
     1 / 12.7},
};
enum { HIT_ROWS = 1000000 };

static int bin_of(int hits) {
    int bin = 0;
    while (hits > 1 << bin && bin < HISTOGRAM_BINS - 2) bin++;
    return hits > 1 << bin ? HISTOGRAM_BINS - 1 : bin;
}

static void histogram_as_published(void **state) {
    const struct histogram_case *c = *state;
    static int hits[HIT_ROWS];
    char text[200];
    double seen[HISTOGRAM_BINS] = {0}, distinct = 0;
    snprintf(text, sizeof text, "workload w\n%srows %d\ndim 1\n", c->text, HIT_ROWS);
    struct workload w = generate(text, 1, GRAD_EXACT);
    const int64_t lookups = w.batches[0].lookups;
    memset(hits, 0, sizeof hits);
    for (int64_t i = 0; i < lookups; i++) hits[batch_id(&w.batches[0], i)]++;
    for (int r = 0; r < HIT_ROWS; r++) {
        distinct += hits[r] > 0;
        if (hits[r]) seen[bin_of(hits[r])] += hits[r];
    }
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        const double share = histogram_shares(c->kind)[b], off = seen[b] / (double)lookups - share;
        if (fabs(off) > 0.01) fail_msg("bin %d is off by %.4f of %.3f", b, off, share);
    }
    if (fabs(distinct / (double)lookups / c->distinct - 1) > 0.1)
        fail_msg("%.0f distinct rows", distinct);
    workload_free(&w);
}

/* Any number of lookups is used up completely, and every planned row gets its own rank. */
static void histogram_of_any_size(void **state) {
    (void)state;
    for (int64_t n = 1; n < 3000; n = n * 5 / 4 + 1) {
        struct histogram_plan p;
        struct error err;
        char hit[4000] = {0};
        assert_int_equal(histogram_plan(IDS_HISTOGRAM_2021, n, 1000, 3, &p, &err), 0);
        assert_int_equal(p.first[p.rows], n);
        for (int64_t r = 0; r < p.rows; r++) {
            int64_t rank = histogram_rank(&p, r, n % 8);
            assert_true(p.first[r + 1] > p.first[r]);
            assert_in_range(rank, 0, 999);
            assert_int_equal(hit[rank]++, 0);
        }
        const int64_t rows = p.rows;
        histogram_free(&p);
        assert_int_equal(histogram_plan(IDS_HISTOGRAM_2021, n, rows - 1, 3, &p, &err), -1);
    }
}

/* --- refused workloads */

struct refused_case {
    const char *test, *text, *message;
    int ring;
};

static const struct refused_case refused_cases[] = {
    {"refused: long ring", "workload w\n", "w: a ring of 4097 batches; take 1 to 4096", 4097},
    {"refused: table too small", "workload w\nrows 10\nbatch 100\nids histogram-2022\n",
     "w: feature 0: the histogram of 2000 lookups hits ", 1},
    {"refused: too large",
     "workload w\ntables 1024\nfeatures 1024\nbatch 1e9\ndim 65536\nlength fixed 1e9\n",
     "w: the batches need over 128 TiB", 8},
};

static void refused_with_message(void **state) {
    const struct refused_case *c = *state;
    struct spec_list l = points_of(c->text);
    struct workload w;
    struct error err = {""};
    assert_int_equal(workload_generate(l.specs, c->ring, GRAD_EXACT, &w, &err), -1);
    if (strncmp(err.text, c->message, strlen(c->message))) fail_msg("message: %s", err.text);
    workload_free(&w); /* harmless without anything to free */
    spec_list_free(&l);
}

TESTS(workload) {
    ADD_TEST(same_for_any_threads);
    ADD_TEST(micro_batches);
    ADD_TEST(column_shards);
    ADD_TEST(reuse_share);
    ADD_TEST(rank_to_row);
    ADD_TEST(histogram_of_any_size);
    ADD_CASES(goldens, fingerprint_as_ever);
    ADD_CASES(length_cases, lengths_as_asked);
    ADD_CASES(histograms, histogram_as_published);
    ADD_CASES(refused_cases, refused_with_message);
    return run_listed("workload");
}
