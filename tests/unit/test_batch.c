/* SPDX-License-Identifier: MIT
 *
 * Batches as kernels get them: gradients and per-sample weights, their layout, refused batches, and
 * when sums are exact.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/row_index.h"
#include "tests/support/generate.h"

/* --- gradients and weights */

static void exact_gradients(void **state) {
    struct workload w =
        generate("workload w\nbatch 200\nrows 50\ndim 7\nweighted 1\n", 2, GRAD_EXACT);
    const struct batch *in = &w.batches[0];
    int64_t seen[9] = {0}, equal = 0;
    (void)state;
    for (int64_t i = 0; i < in->grad_elements; i++) {
        float units = batch_grad(in, i) * 64;
        assert_true(units == rintf(units) && fabsf(units) <= 4);
        seen[(int)units + 4]++;
        equal += batch_grad(in, i) == batch_grad(&w.batches[1], i);
    }
    for (int v = 0; v < 9; v++)
        assert_in_range(seen[v], in->grad_elements / 18, in->grad_elements / 6);
    assert_true(equal < in->grad_elements / 5); /* a ninth by chance */
    for (int64_t i = 0; i < in->lookups; i++) {
        float x = in->lookup_weights[i];
        assert_true(x == 0.5f || x == 1.0f || x == 2.0f);
    }
    workload_free(&w);
}

static void real_gradients(void **state) {
    struct workload w =
        generate("workload w\nbatch 2000\nrows 50\ndim 7\nweighted 1\n", 1, GRAD_REAL);
    const struct batch *in = &w.batches[0];
    double sum = 0, squares = 0, weights = 0;
    (void)state;
    for (int64_t i = 0; i < in->grad_elements; i++) {
        const float g = batch_grad(in, i);
        assert_true(g >= -1 && g < 1);
        sum += g;
        squares += g * g;
    }
    for (int64_t i = 0; i < in->lookups; i++) {
        assert_true(in->lookup_weights[i] >= 0.25f && in->lookup_weights[i] < 1.25f);
        weights += in->lookup_weights[i];
    }
    assert_true(fabs(sum / (double)in->grad_elements) < 0.02);
    assert_true(fabs(squares / (double)in->grad_elements - 1.0 / 3) < 0.01);
    assert_true(fabs(weights / (double)in->lookups - 0.75) < 0.01);
    workload_free(&w);
}

/* A mean is exact only if every bag's divisor, without padding, is a power of two. */
struct exact_case {
    const char *test, *text;
    enum grad_mode mode;
    bool exact;
};

static const struct exact_case exact_cases[] = {
    {"weighted sums", "weighted 1\n", GRAD_EXACT, true},
    {"real gradients", "weighted 1\n", GRAD_REAL, false},
    {"means of 4", "pooling mean\nlength fixed 4\n", GRAD_EXACT, true},
    {"some means of 3", "pooling mean\nlength fixed 4\npadding 0\n", GRAD_EXACT, false},
    {"means of 3", "pooling mean\nlength fixed 3\n", GRAD_EXACT, false},
    {"means of duplicates", "duplicates mean\n", GRAD_EXACT, false},
};

static void sums_exact(void **state) {
    const struct exact_case *c = *state;
    char text[200];
    snprintf(text, sizeof text, "workload w\nbatch 50\nrows 9\ndim 2\n%s", c->text);
    struct workload w = generate(text, 1, GRAD_EXACT);
    assert_int_equal(batch_sums_exact(&w.batches[0], c->mode), c->exact);
    workload_free(&w);
}

/* A float counts up to 2^24 units. Beside the mean of 2^16 lookups of row 1, a bag of row 0
 * alone has up to 4 * 2^16 units, so 64 of these may exceed it. */
static void sums_of_many_units(void **state) {
    enum { LONG = 1 << 16, SHORT = 64 };
    static int32_t ids[LONG + SHORT];
    int64_t offsets[SHORT + 2] = {0};
    struct table_shape table = {.rows = 2, .dim = 1};
    struct feature feature = {.pooling = POOL_MEAN, .padding_id = -1, .grad_stride = 1};
    struct batch in = {.num_tables = 1, .num_features = 1, .id_type = ID_INT32, .ids = ids};
    (void)state;
    in.offsets = offsets;
    for (int i = 0; i < LONG; i++) ids[i] = 1;
    for (int b = 0; b <= SHORT; b++) offsets[b + 1] = LONG + b;
    for (in.bags = SHORT; in.bags <= SHORT + 1; in.bags++) {
        batch_derive(&in, &table, &feature);
        assert_int_equal(batch_sums_exact(&in, GRAD_EXACT), in.bags == SHORT);
    }
}

/* The weights of a row's lookups add up to 1, or to the mean of its random weights. Padding
 * counts for nothing. */
static void duplicates_by_mean(void **state) {
    (void)state;
    for (int weighted = 0; weighted < 2; weighted++) {
        char text[200];
        snprintf(text, sizeof text,
                 "workload w\nbatch 50\nrows 9\ndim 2\ntables 2\nfeatures 2\npadding 0\nlength "
                 "uniform 0 "
                 "5\nduplicates mean\nweighted %d\n",
                 weighted);
        struct workload w = generate(text, 1, GRAD_EXACT);
        const struct batch *in = &w.batches[0];
        struct row_index x = row_index_build(in);
        assert_true(x.rows > 10);
        for (int64_t u = 0; u < x.rows; u++) {
            const int64_t first = x.run[u].first, end = x.run[u + 1].first;
            double sum = 0;
            for (int64_t k = first; k < end; k++) sum += in->lookup_weights[x.lookup[k].lookup];
            assert_true(weighted ? sum >= 0.5 && sum <= 2 : fabs(sum - 1) < 1e-5);
        }
        row_index_free(&x);
        workload_free(&w);
    }
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

/* Pooled rows lie side by side, in rows of all columns; those of sequences one after the other. */
static void layout(void **state) {
    static const int dim[] = {3, 3, 5, 5};
    (void)state;
    for (int pooled = 0; pooled < 2; pooled++) {
        char text[200];
        snprintf(text, sizeof text, "workload w\nbatch 30\npooling %s\n%s", pooled ? "sum" : "none",
                 mixed_tables);
        struct workload w = generate(text, 2, GRAD_EXACT);
        assert_true(w.batches[0].features[0].lookups != w.batches[1].features[0].lookups);
        for (int k = 0; k < 2; k++) {
            int64_t next = 0;
            for (int f = 0; f < 4; f++) {
                const struct feature *x = &w.batches[k].features[f];
                assert_int_equal(x->grad_offset, next);
                assert_int_equal(x->grad_stride, pooled ? 16 : dim[f]);
                next += pooled ? dim[f] : x->lookups * dim[f];
            }
            assert_int_equal(w.batches[k].grad_elements, pooled ? 30 * next : next);
            assert_counts(&w, k);
        }
        workload_free(&w);
    }
}

/* workload_bytes works with mean lengths, so it is exact for fixed lengths. */
static void bytes_as_said(void **state) {
    static const char *text = "workload w\nbatch 100\ntables 3\nrows 10\ndim 6\nlength fixed 5\n"
                              "weighted 1\nid_type int32\n";
    struct spec_list l = points_of(text);
    (void)state;
    int64_t offsets = (300 + 1) * 8, lookups = 1500 * (4 + 4), grad = 100 * 18 * 4;
    assert_int_equal(workload_bytes(l.specs, 2), 2 * (offsets + lookups + grad));
    spec_list_free(&l);
}

/* --- refused batches */

/* Two features of two bags over tables of 10 and 20 rows; one number is wrong. */
enum { IDS = 6, OFFSETS = 5 };
struct invalid_case {
    const char *test;
    int at; /* of the ids, or from IDS on of the offsets */
    int64_t value;
    const char *message;
};

#define NO_ROW "is no row of a table of"
static const struct invalid_case invalid_cases[] = {
    {"valid", 0, 0, NULL},
    {"negative id", 1, -1, "feature 0, bag 0, lookup 1: id -1 " NO_ROW " 10 rows"},
    {"id is rows", 4, 20, "feature 1, bag 1, lookup 4: id 20 " NO_ROW " 20 rows"},
    {"id of the other table", 2, 10, "feature 0, bag 1, lookup 2: id 10 " NO_ROW " 10 rows"},
    {"offsets fall", IDS + 2, 1, "feature 0, bag 1: offsets 2 to 1 in a batch of 6 lookups"},
    {"offsets pass", IDS + 3, 9, "feature 1, bag 0: offsets 3 to 9 in a batch of 6 lookups"},
    {"offsets start late", IDS, 1, "feature 0, bag 0: offsets start at 1"},
    {"offsets start early", IDS, -1, "feature 0, bag 0: offsets start at -1"},
    {"offsets end early", IDS + 4, 5, "feature 1, bag 1: offsets end at 5 of 6 lookups"},
};

static void validated(void **state) {
    const struct invalid_case *c = *state;
    struct table_shape tables[] = {{.rows = 10, .dim = 1}, {.rows = 20, .dim = 1}};
    struct feature features[] = {{.table = 0}, {.table = 1}};
    struct error err = {""};
    for (int narrow = 0; narrow < 2; narrow++) {
        int64_t wide[IDS + OFFSETS] = {0, 9, 1, 19, 0, 3, 0, 2, 3, 3, 6};
        int32_t ids[IDS];
        wide[c->at] = c->value;
        for (int i = 0; i < IDS; i++) ids[i] = (int32_t)wide[i];
        struct batch in = {.num_tables = 2,
                           .num_features = 2,
                           .bags = 2,
                           .id_type = narrow ? ID_INT32 : ID_INT64,
                           .ids = wide,
                           .offsets = wide + IDS};
        if (narrow) in.ids = ids;
        batch_derive(&in, tables, features);
        in.lookups = IDS;
        assert_int_equal(batch_validate(&in, &err), c->message ? -1 : 0);
        if (c->message && strncmp(err.text, c->message, strlen(c->message)))
            fail_msg("message: %s", err.text);
    }
}

/* Two features of the second table, in columns 0 and 3 to 5 of rows of 7 floats. */
static void derived(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 2, 3, 3, 5, 5, 6}, ids[] = {0, 9, 1, 19, 0, 3};
    struct table_shape tables[] = {{.rows = 10, .dim = 1}, {.rows = 20, .dim = 3}};
    struct feature features[] = {
        {.table = 0, .grad_stride = 7},
        {.table = 1, .grad_offset = 3, .grad_stride = 7},
        {.table = 1, .pooling = POOL_NONE, .grad_offset = 20, .grad_stride = 4}};
    struct batch in = {.num_tables = 2,
                       .num_features = 3,
                       .bags = 2,
                       .id_type = ID_INT64,
                       .ids = ids,
                       .offsets = offsets};
    struct error err = {""};
    batch_derive(&in, tables, features);
    assert_int_equal(in.lookups, 6);
    assert_int_equal(in.grad_elements, 23);
    assert_int_equal(tables[0].lookups, 3);
    assert_int_equal(tables[1].lookups, 3);
    assert_int_equal(tables[0].features, 1);
    assert_int_equal(tables[1].features, 2);
    assert_int_equal(tables[1].first_row, 10);
    assert_int_equal(features[0].lookups, 3);
    assert_int_equal(features[1].lookups, 2);
    assert_int_equal(features[2].lookups, 1);
    assert_int_equal(batch_validate(&in, &err), 0);
    int64_t *const numbers[] = {&tables[0].lookups, &tables[1].lookups, &tables[1].first_row,
                                &features[0].lookups, &features[2].lookups};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        ++*numbers[i];
        assert_int_equal(batch_validate(&in, &err), -1);
        --*numbers[i];
    }
    tables[1].features = 1;
    assert_int_equal(batch_validate(&in, &err), -1);
    tables[1].features = 2;
    in.grad_elements = 22;
    assert_int_equal(batch_validate(&in, &err), -1);
    assert_string_equal(err.text, "feature 2: gradient rows end at float 23 of 22");
}

TESTS(batch) {
    ADD_TEST(exact_gradients);
    ADD_TEST(real_gradients);
    ADD_CASES(exact_cases, sums_exact);
    ADD_TEST(sums_of_many_units);
    ADD_TEST(duplicates_by_mean);
    ADD_TEST(layout);
    ADD_TEST(bytes_as_said);
    ADD_CASES(invalid_cases, validated);
    ADD_TEST(derived);
    return run_added("batch");
}
