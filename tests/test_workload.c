/* SPDX-License-Identifier: MIT
 *
 * Generated and recorded workloads: the same for any number of threads and on any day (golden
 * fingerprints), with the lengths, reuse and hits that were asked for, laid out as kernel.h says.
 */
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/histogram.h"
#include "harness/id_stats.h"
#include "harness/workload.h"
#include "tests/work_files.h"

#include "tests/cmocka_cases.h"

static struct workload generate(const char *text, int ring, enum grad_mode mode) {
    struct spec_list list;
    struct workload w;
    struct error err = {""};
    if (spec_parse("test", text, strlen(text), NULL, &list, &err)) fail_msg("%s", err.text);
    if (workload_generate(&list.specs[0], ring, mode, &w, &err)) fail_msg("%s", err.text);
    spec_list_free(&list);
    for (int k = 0; k < w.ring; k++)
        if (batch_validate(&w.batches[k], &err)) fail_msg("%s", err.text);
    return w;
}

static struct id_stats stats_of(const struct batch *in) {
    struct row_index x = row_index_build(in);
    struct id_stats s = id_stats(in, &x);
    row_index_free(&x);
    return s;
}

/* FNV-1a of everything that a batch holds. */
static uint64_t hash_bytes(uint64_t h, const void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        h = (h ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_batch(const struct batch *in) {
    size_t id = in->id_type == ID_INT32 ? 4 : 8, n = (size_t)in->lookups;
    uint64_t h = hash_bytes(0xcbf29ce484222325u, in->ids, n * id);
    h = hash_bytes(h, in->offsets, (size_t)(in->num_features * in->bags + 1) * 8);
    if (in->lookup_weights) h = hash_bytes(h, in->lookup_weights, n * 4);
    return hash_bytes(h, in->grad, (size_t)in->grad_floats * 4);
}

/* --- the same for any number of threads; large enough for every parallel loop to be parallel */

static const char *const parallel_specs[] = {
    "workload zipf\nbatch 70000\nrows 1e6\ndim 3\nlength uniform 0 4\nfeatures 2\nreuse 0.3\n"
    "weighted 1\n",
    "workload powerlaw\nbatch 70000\nrows 1000\ndim 2\nids powerlaw\nlength negbin 2 1.5\n"
    "pooling none\nid_type int32\n",
    "workload histogram\nbatch 5000\nrows 1e5\ndim 20\nlength fixed 20\nids histogram-2021\n",
};

static void same_for_any_threads(void **state) {
    static const int threads[] = {8, 3, 2, 1}; /* falling: LLVM's libomp leaks where a team grows */
    int before = omp_get_max_threads();
    (void)state;
    for (size_t s = 0; s < sizeof parallel_specs / sizeof *parallel_specs; s++) {
        uint64_t first[2] = {0};
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            omp_set_num_threads(threads[t]);
            struct workload w = generate(parallel_specs[s], 2, GRAD_REAL);
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

/* Batch k does not depend on how many follow. */
static void same_for_any_ring(void **state) {
    const char *text = "workload w\nbatch 100\nrows 500\nreuse 0.5\n";
    struct workload one = generate(text, 2, GRAD_EXACT), two = generate(text, 5, GRAD_EXACT);
    (void)state;
    for (int k = 0; k < 2; k++)
        assert_true(hash_batch(&one.batches[k]) == hash_batch(&two.batches[k]));
    workload_free(&one);
    workload_free(&two);
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
enum { NUM_GOLDEN = sizeof goldens / sizeof goldens[0] };

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

static void seed_changes_everything(void **state) {
    struct workload a = generate("workload w\nbatch 100\nrows 1e6\nweighted 1\n", 1, GRAD_REAL);
    struct workload b =
        generate("workload w\nbatch 100\nrows 1e6\nweighted 1\nseed 43\n", 1, GRAD_REAL);
    const struct batch *x = &a.batches[0], *y = &b.batches[0];
    int64_t ids = 0, weights = 0, grads = 0;
    (void)state;
    for (int64_t i = 0; i < x->lookups; i++) {
        ids += batch_id(x, i) == batch_id(y, i);
        weights += x->lookup_weights[i] == y->lookup_weights[i];
    }
    for (int64_t i = 0; i < x->grad_floats; i++)
        grads += x->grad[i] == y->grad[i];
    assert_true(ids < 20 && weights < 20 && grads < 20);
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
    {"length uniform 1 39", "uniform 1 39", 20, 0.5627, 0},
    {"length uniform 0 3", "uniform 0 3", 1.5, 0.7454, 0.25},
    {"length negbin 13.6 1", "negbin 13.6 1", 13.6, 1, 0.0587}, /* p^r = 13.6^-1.0794 */
    {"length negbin 20 2", "negbin 20 2", 20, 2, 0.3297},
    {"length negbin 500 0.1", "negbin 500 0.1", 500, 0.1, 0},
};
enum { NUM_LENGTHS = sizeof length_cases / sizeof length_cases[0] };

static void lengths_as_asked(void **state) {
    const struct length_case *c = *state;
    enum { BAGS = 40000 };
    char text[200];
    double sum = 0, squares = 0, empty = 0;
    snprintf(text, sizeof text, "workload w\nbatch %d\nrows 3\ndim 1\nids uniform\nlength %s\n",
             BAGS, c->text);
    struct workload w = generate(text, 1, GRAD_EXACT);
    const struct batch *in = &w.batches[0];
    for (int b = 0; b < BAGS; b++) {
        double length = (double)(in->offsets[b + 1] - in->offsets[b]);
        sum += length;
        squares += length * length;
        empty += length == 0;
    }
    double mean = sum / BAGS, cv = sqrt(fmax(squares / BAGS - mean * mean, 0)) / mean;
    assert_true(fabs(mean - c->mean) <= 5 * c->cv * c->mean / sqrt(BAGS));
    assert_true(fabs(cv - c->cv) <= 0.03 * c->cv + 1e-9);
    assert_true(fabs(empty / BAGS - c->empty) <= 0.01);
    workload_free(&w);
}

/* --- ids */

/* In a large table chance repeats next to nothing: what a batch shares with the one before is
 * reuse. */
static void reuse_share(void **state) {
    struct workload w = generate(
        "workload w\nbatch 4000\nrows 1e12\ndim 1\nids uniform\nreuse 0.3\n", 3, GRAD_EXACT);
    (void)state;
    for (int k = 1; k < 3; k++) {
        struct batch both[2] = {w.batches[k - 1], w.batches[k]};
        struct row_index old = row_index_build(&both[0]), new = row_index_build(&both[1]);
        int64_t shared = 0, r = 0;
        for (int64_t i = 0; i < new.lookups; i++) {
            while (r < old.rows && old.run[r].row < new.lookup[i].row)
                r++;
            shared += r < old.rows && old.run[r].row == new.lookup[i].row;
        }
        double share = (double)shared / (double)new.lookups;
        if (fabs(share - 0.3) > 0.01) fail_msg("reused %.4f", share);
        row_index_free(&old);
        row_index_free(&new);
    }
    workload_free(&w);
}

/* Scattered, features of one table agree on its hottest row and tables do not; identity puts it at
 * row 0. */
static int64_t hottest_row(const struct batch *in, int f) {
    int64_t count[1000] = {0}, hottest = 0;
    for (int64_t i = in->offsets[f * in->bags]; i < in->offsets[(f + 1) * in->bags]; i++) {
        int64_t id = batch_id(in, i);
        if (++count[id] > count[hottest]) hottest = id;
    }
    return hottest;
}

static void rank_to_row(void **state) {
    const char *text = "workload w\nbatch 500\nrows 1000\ntables 2\nfeatures 2\nalpha 1.2\n";
    char identity[200];
    (void)state;
    struct workload w = generate(text, 1, GRAD_EXACT);
    int64_t a = hottest_row(&w.batches[0], 0), b = hottest_row(&w.batches[0], 2);
    assert_int_equal(hottest_row(&w.batches[0], 1), a);
    assert_int_equal(hottest_row(&w.batches[0], 3), b);
    assert_int_not_equal(a, b);
    workload_free(&w);
    snprintf(identity, sizeof identity, "%smap identity\n", text);
    w = generate(identity, 1, GRAD_EXACT);
    assert_int_equal(hottest_row(&w.batches[0], 0), 0);
    assert_int_equal(hottest_row(&w.batches[0], 3), 0);
    workload_free(&w);
}

/* Shares of the lookups in every bin, as published; and the number of rows that follows. */
static void assert_shares(const struct batch *in, enum ids_kind kind, double distinct_share) {
    struct id_stats s = stats_of(in);
    const double *share = histogram_shares(kind);
    for (int b = 0; b < HISTOGRAM_BINS; b++) {
        double seen = (double)s.run_lookups[b] / (double)s.lookups;
        if (fabs(seen - share[b]) > 0.01) fail_msg("bin %d: %.4f not %.3f", b, seen, share[b]);
    }
    double distinct = (double)s.distinct / (double)s.lookups;
    if (fabs(distinct / distinct_share - 1) > 0.1) fail_msg("distinct rows %.4f", distinct);
}

static void histogram_as_published(void **state) {
    (void)state;
    struct workload w = generate("workload w\nbatch 65536\nlength fixed 64\nrows 1e6\ndim 1\n"
                                 "ids histogram-2022\nid_type int32\n",
                                 1, GRAD_EXACT);
    assert_shares(&w.batches[0], IDS_HISTOGRAM_2022, 1 / 12.7);
    workload_free(&w);
    w = generate("workload w\nbatch 65536\nlength fixed 32\nrows 1e6\ndim 1\n"
                 "ids histogram-2021\nid_type int32\n",
                 1, GRAD_EXACT);
    assert_shares(&w.batches[0], IDS_HISTOGRAM_2021, 1 / 7.6);
    workload_free(&w);
}

/* Any number of lookups is dealt out completely, each planned row to a rank of its own. */
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
        int64_t rows = p.rows;
        histogram_free(&p);
        assert_int_equal(histogram_plan(IDS_HISTOGRAM_2021, n, rows, 3, &p, &err), 0);
        histogram_free(&p);
        assert_int_equal(histogram_plan(IDS_HISTOGRAM_2021, n, rows - 1, 3, &p, &err), -1);
        assert_non_null(strstr(err.text, "take more rows"));
    }
}

/* --- gradients and weights */

static void exact_gradients(void **state) {
    struct workload w =
        generate("workload w\nbatch 200\nrows 50\ndim 7\nweighted 1\n", 2, GRAD_EXACT);
    const struct batch *in = &w.batches[0];
    int64_t seen[9] = {0}, equal = 0;
    (void)state;
    for (int64_t i = 0; i < in->grad_floats; i++) {
        float units = in->grad[i] * 64;
        assert_true(units == rintf(units) && fabsf(units) <= 4);
        seen[(int)units + 4]++;
        equal += in->grad[i] == w.batches[1].grad[i];
    }
    for (int v = 0; v < 9; v++)
        assert_in_range(seen[v], in->grad_floats / 18, in->grad_floats / 6);
    assert_true(equal < in->grad_floats / 5); /* a ninth by chance */
    for (int64_t i = 0; i < in->lookups; i++) {
        float x = in->lookup_weights[i];
        assert_true(x == 0.5f || x == 1.0f || x == 2.0f);
    }
    assert_true(batch_sums_exact(in, GRAD_EXACT));
    assert_false(batch_sums_exact(in, GRAD_REAL));
    workload_free(&w);
}

static void real_gradients(void **state) {
    struct workload w =
        generate("workload w\nbatch 2000\nrows 50\ndim 7\nweighted 1\n", 1, GRAD_REAL);
    const struct batch *in = &w.batches[0];
    double sum = 0, squares = 0, weights = 0;
    (void)state;
    for (int64_t i = 0; i < in->grad_floats; i++) {
        assert_true(in->grad[i] >= -1 && in->grad[i] < 1);
        sum += in->grad[i];
        squares += in->grad[i] * in->grad[i];
    }
    for (int64_t i = 0; i < in->lookups; i++) {
        assert_true(in->lookup_weights[i] >= 0.25f && in->lookup_weights[i] < 1.25f);
        weights += in->lookup_weights[i];
    }
    assert_true(fabs(sum / (double)in->grad_floats) < 0.02);
    assert_true(fabs(squares / (double)in->grad_floats - 1.0 / 3) < 0.01);
    assert_true(fabs(weights / (double)in->lookups - 0.75) < 0.01);
    workload_free(&w);
}

/* Mean: exact only where every bag's divisor, padding left out, is a power of two. */
static void sums_exact_under_mean(void **state) {
    (void)state;
    struct workload w = generate("workload w\nbatch 50\nrows 9\ndim 2\npooling mean\n"
                                 "length fixed 4\n",
                                 1, GRAD_EXACT);
    assert_true(batch_sums_exact(&w.batches[0], GRAD_EXACT));
    workload_free(&w);
    w = generate("workload w\nbatch 50\nrows 9\ndim 2\npooling mean\nlength fixed 4\npadding 0\n",
                 1, GRAD_EXACT);
    assert_false(batch_sums_exact(&w.batches[0], GRAD_EXACT)); /* some bag has 3 left */
    workload_free(&w);
    w = generate("workload w\nbatch 50\nrows 9\ndim 2\npooling mean\nlength fixed 3\n", 1,
                 GRAD_EXACT);
    assert_false(batch_sums_exact(&w.batches[0], GRAD_EXACT));
    workload_free(&w);
}

/* A single row with 2^22 summands of up to 4 units can leave the 2^24 that a float counts. */
static void sums_not_exact_on_one_row(void **state) {
    (void)state;
    struct workload w =
        generate("workload w\nbatch 2048\nrows 1\ndim 1\nlength fixed 2048\n", 1, GRAD_EXACT);
    assert_false(batch_sums_exact(&w.batches[0], GRAD_EXACT));
    workload_free(&w);
    w = generate("workload w\nbatch 2048\nrows 1\ndim 1\nlength fixed 2047\n", 1, GRAD_EXACT);
    assert_true(batch_sums_exact(&w.batches[0], GRAD_EXACT));
    workload_free(&w);
}

/* --- layout */

static const char *const mixed_tables =
    "features 2\ntable rows 10 dim 3 length uniform 0 4\ntable rows 20 dim 5 length fixed 2\n";

static void assert_counts(const struct workload *w, int k) {
    const struct batch *in = &w->batches[k];
    for (int t = 0; t < in->num_tables; t++) {
        int64_t lookups = 0;
        for (int f = 2 * t; f < 2 * t + 2; f++) {
            const int64_t *offsets = in->offsets + f * in->bags;
            assert_int_equal(in->features[f].table, t);
            assert_int_equal(in->features[f].lookups, offsets[in->bags] - offsets[0]);
            lookups += in->features[f].lookups;
        }
        assert_int_equal(in->tables[t].features, 2);
        assert_int_equal(in->tables[t].lookups, lookups);
    }
}

static void layout_of_pooled(void **state) {
    static const int64_t column[] = {0, 3, 6, 11};
    char text[200];
    (void)state;
    snprintf(text, sizeof text, "workload w\nbatch 30\n%s", mixed_tables);
    struct workload w = generate(text, 2, GRAD_EXACT);
    for (int k = 0; k < 2; k++) {
        for (int f = 0; f < 4; f++) {
            assert_int_equal(w.batches[k].features[f].grad_offset, column[f]);
            assert_int_equal(w.batches[k].features[f].grad_stride, 16);
        }
        assert_int_equal(w.batches[k].grad_floats, 30 * 16);
        assert_counts(&w, k);
    }
    workload_free(&w);
}

static void layout_of_sequences(void **state) {
    char text[200];
    (void)state;
    snprintf(text, sizeof text, "workload w\nbatch 30\npooling none\n%s", mixed_tables);
    struct workload w = generate(text, 2, GRAD_EXACT);
    assert_true(w.batches[0].features[0].lookups != w.batches[1].features[0].lookups);
    for (int k = 0; k < 2; k++) {
        int64_t floats = 0;
        for (int f = 0; f < 4; f++) {
            const struct feature *x = &w.batches[k].features[f];
            assert_int_equal(x->grad_offset, floats);
            assert_int_equal(x->grad_stride, f < 2 ? 3 : 5);
            floats += x->lookups * x->grad_stride;
        }
        assert_int_equal(w.batches[k].grad_floats, floats);
        assert_counts(&w, k);
    }
    workload_free(&w);
}

/* workload_bytes speaks of means, so fixed lengths make it exact. */
static void bytes_as_said(void **state) {
    static const char *text = "workload w\nbatch 100\ntables 3\nrows 10\ndim 6\nlength fixed 5\n"
                              "weighted 1\nid_type int32\n";
    struct spec_list l;
    struct error err;
    (void)state;
    assert_int_equal(spec_parse("t", text, strlen(text), NULL, &l, &err), 0);
    int64_t offsets = (300 + 1) * 8, lookups = 1500 * (4 + 4), grad = 100 * 18 * 4;
    assert_int_equal(workload_bytes(l.specs, 2), 2 * (offsets + lookups + grad));
    spec_list_free(&l);
}

/* --- what is refused */

struct refused_case {
    const char *test, *text, *message;
    int ring;
};

static const struct refused_case refused_cases[] = {
    {"refused: ring of none", "workload w\n", "w: a ring of 0 batches; take 1 to 8", 0},
    {"refused: long ring", "workload w\n", "w: a ring of 9 batches; take 1 to 8", 9},
    {"refused: table too small", "workload w\nrows 10\nbatch 100\nids histogram-2022\n",
     "w: feature 0: the histogram of 2000 lookups hits ", 1},
    {"refused: too large",
     "workload w\ntables 1024\nfeatures 1024\nbatch 1e9\ndim 65536\nlength fixed 1e9\n",
     "w: the batches need over 128 TiB", 8},
    {"refused: no lookups", "workload w\nbatch 2\nlength negbin 1e-6 1e4\n",
     "w: batch 0 has no lookups", 1},
};
enum { NUM_REFUSED = sizeof refused_cases / sizeof refused_cases[0] };

static void refused_with_message(void **state) {
    const struct refused_case *c = *state;
    struct spec_list l;
    struct workload w;
    struct error err = {""};
    if (spec_parse("t", c->text, strlen(c->text), NULL, &l, &err)) fail_msg("%s", err.text);
    assert_int_equal(workload_generate(l.specs, c->ring, GRAD_EXACT, &w, &err), -1);
    if (strncmp(err.text, c->message, strlen(c->message))) fail_msg("message: %s", err.text);
    workload_free(&w); /* nothing is left to free, and that does no harm */
    spec_list_free(&l);
}

/* Two features of two bags over tables of 10 and 20 rows; one thing is wrong. */
struct invalid_case {
    const char *test;
    int64_t ids[6], offsets[5], lookups;
    const char *message;
};

static const struct invalid_case invalid_cases[] = {
    {"valid", {0, 9, 1, 19, 0, 3}, {0, 2, 3, 3, 6}, 6, NULL},
    {"negative id",
     {0, -1, 1, 19, 0, 3},
     {0, 2, 3, 3, 6},
     6,
     "feature 0, bag 0, lookup 1: id -1 is no row of a table of 10 rows"},
    {"id is rows",
     {0, 9, 1, 19, 20, 3},
     {0, 2, 3, 3, 6},
     6,
     "feature 1, bag 1, lookup 4: id 20 is no row of a table of 20 rows"},
    {"id of the other table",
     {0, 9, 10, 19, 0, 3},
     {0, 2, 3, 3, 6},
     6,
     "feature 0, bag 1, lookup 2: id 10 is no row of a table of 10 rows"},
    {"offsets fall",
     {0, 9, 1, 19, 0, 3},
     {0, 3, 2, 3, 6},
     6,
     "feature 0, bag 1: offsets 3 to 2 in a batch of 6 lookups"},
    {"offsets pass the lookups",
     {0, 9, 1, 19, 0, 3},
     {0, 2, 3, 9, 6},
     6,
     "feature 1, bag 0: offsets 3 to 9 in a batch of 6 lookups"},
    {"offsets start late",
     {0, 9, 1, 19, 0, 3},
     {1, 2, 3, 3, 6},
     6,
     "feature 0, bag 0: offsets start at 1"},
    {"offsets start early",
     {0, 9, 1, 19, 0, 3},
     {-1, 2, 3, 3, 6},
     6,
     "feature 0, bag 0: offsets start at -1"},
    {"offsets end early",
     {0, 9, 1, 19, 0, 3},
     {0, 2, 3, 3, 5},
     6,
     "feature 1, bag 1: offsets end at 5 of 6 lookups"},
};
enum { NUM_INVALID = sizeof invalid_cases / sizeof invalid_cases[0] };

static void validated(void **state) {
    const struct invalid_case *c = *state;
    const struct table_shape tables[] = {{.rows = 10, .dim = 1}, {.rows = 20, .dim = 1}};
    const struct feature features[] = {{.table = 0}, {.table = 1}};
    struct error err = {""};
    for (int narrow = 0; narrow < 2; narrow++) {
        int32_t ids[6];
        for (int i = 0; i < 6; i++)
            ids[i] = (int32_t)c->ids[i];
        struct batch in = {.num_tables = 2,
                           .num_features = 2,
                           .bags = 2,
                           .lookups = c->lookups,
                           .tables = tables,
                           .features = features,
                           .id_type = narrow ? ID_INT32 : ID_INT64,
                           .ids = c->ids,
                           .offsets = c->offsets};
        if (narrow) in.ids = ids;
        assert_int_equal(batch_validate(&in, &err), c->message ? -1 : 0);
        if (c->message && strncmp(err.text, c->message, strlen(c->message)))
            fail_msg("message: %s", err.text);
    }
}

/* --- recorded ids */

static struct spec_list like_of(const char *text) {
    struct spec_list l;
    struct error err = {""};
    if (spec_parse("like", text, strlen(text), NULL, &l, &err)) fail_msg("%s", err.text);
    return l;
}

static void trace_in_order(void **state) {
    static const char first[] = "1 2\n3\n\n4 4 4\n5\n", second[] = "7\n8\n9\n\n6\n";
    struct work_path a = work_path("workload", "a.txt"), b = work_path("workload", "b.txt");
    struct spec_list like = like_of("workload t\ndim 3 4\npooling mean\nid_type int32\nseed 5\n");
    char paths[3 * sizeof a.text];
    struct workload w;
    struct error err = {""};
    (void)state;
    assert_int_equal(work_write(a.text, first, sizeof first - 1), 0);
    assert_int_equal(work_write(b.text, second, sizeof second - 1), 0);
    snprintf(paths, sizeof paths, "%s,%s", a.text, b.text);
    if (workload_from_trace(paths, &like.specs[1], 2, 8, GRAD_EXACT, &w, &err))
        fail_msg("%s", err.text);
    assert_string_equal(w.name, "a+b/dim:4");
    assert_int_equal(w.ring, 2); /* the fifth bag is left over */
    assert_int_equal(w.num_tables, 2);
    assert_int_equal(w.tables[0].rows, 6);
    assert_int_equal(w.tables[1].rows, 10);
    assert_int_equal(w.tables[1].dim, 4);
    static const int64_t ids[2][5] = {{1, 2, 3, 7, 8}, {4, 4, 4, 9, 0}};
    static const int64_t offsets[2][5] = {{0, 2, 3, 4, 5}, {0, 0, 3, 4, 4}};
    for (int k = 0; k < 2; k++) {
        const struct batch *in = &w.batches[k];
        assert_int_equal(batch_validate(in, &err), 0);
        assert_int_equal(in->lookups, offsets[k][4]);
        assert_memory_equal(in->offsets, offsets[k], sizeof offsets[k]);
        for (int64_t i = 0; i < in->lookups; i++)
            assert_int_equal(batch_id(in, i), ids[k][i]);
        assert_int_equal(in->features[1].pooling, POOL_MEAN);
        assert_int_equal(in->grad_floats, 2 * 8);
    }
    workload_free(&w);
    assert_int_equal(workload_from_trace(a.text, like.specs, 0, 3, GRAD_EXACT, &w, &err), 0);
    assert_int_equal(w.ring, 1); /* shorter than 2^20 lookups: all of it */
    assert_int_equal(w.batches[0].bags, 5);
    assert_int_equal(w.batches[0].lookups, 7);
    workload_free(&w);
    assert_int_equal(workload_from_trace(a.text, like.specs, 6, 3, GRAD_EXACT, &w, &err), -1);
    assert_non_null(strstr(err.text, "a batch of 6 bags from a trace of 5; take 1 to 5, or 0"));
    spec_list_free(&like);
}

static void traces_must_line_up(void **state) {
    struct work_path a = work_path("workload", "a.txt"), b = work_path("workload", "short.txt");
    struct spec_list like = like_of("workload t\n");
    char paths[3 * sizeof a.text];
    struct workload w;
    struct error err = {""};
    (void)state;
    assert_int_equal(work_write(a.text, "1\n2\n", 4), 0);
    assert_int_equal(work_write(b.text, "1\n", 2), 0);
    snprintf(paths, sizeof paths, "%s,%s", a.text, b.text);
    assert_int_equal(workload_from_trace(paths, like.specs, 1, 1, GRAD_EXACT, &w, &err), -1);
    assert_non_null(strstr(err.text, "short.txt: 1 bags where the first file has 2"));
    assert_int_equal(workload_from_trace("/nowhere.txt", like.specs, 1, 1, GRAD_EXACT, &w, &err),
                     -1);
    assert_non_null(strstr(err.text, "/nowhere.txt"));
    spec_list_free(&like);
}

int main(void) {
    static const struct CMUnitTest single[] = {
        cmocka_unit_test(same_for_any_threads),
        cmocka_unit_test(same_for_any_ring),
        cmocka_unit_test(seed_changes_everything),
        cmocka_unit_test(reuse_share),
        cmocka_unit_test(rank_to_row),
        cmocka_unit_test(histogram_as_published),
        cmocka_unit_test(histogram_of_any_size),
        cmocka_unit_test(exact_gradients),
        cmocka_unit_test(real_gradients),
        cmocka_unit_test(sums_exact_under_mean),
        cmocka_unit_test(sums_not_exact_on_one_row),
        cmocka_unit_test(layout_of_pooled),
        cmocka_unit_test(layout_of_sequences),
        cmocka_unit_test(bytes_as_said),
        cmocka_unit_test(trace_in_order),
        cmocka_unit_test(traces_must_line_up),
    };
    enum { NUM_SINGLE = sizeof single / sizeof single[0] };
    struct CMUnitTest tests[NUM_SINGLE + NUM_GOLDEN + NUM_LENGTHS + NUM_REFUSED + NUM_INVALID];
    size_t n = 0;
    for (int i = 0; i < NUM_SINGLE; i++)
        tests[n++] = single[i];
    for (int i = 0; i < NUM_GOLDEN; i++)
        tests[n++] = case_test(goldens[i].test, fingerprint_as_ever, &goldens[i]);
    for (int i = 0; i < NUM_LENGTHS; i++)
        tests[n++] = case_test(length_cases[i].test, lengths_as_asked, &length_cases[i]);
    for (int i = 0; i < NUM_REFUSED; i++)
        tests[n++] = case_test(refused_cases[i].test, refused_with_message, &refused_cases[i]);
    for (int i = 0; i < NUM_INVALID; i++)
        tests[n++] = case_test(invalid_cases[i].test, validated, &invalid_cases[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
