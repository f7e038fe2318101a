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

/* Exact gradients are the multiples of 1/64 from -4/64 to 4/64, all equally frequent; real ones are spread evenly over -1
 * to 1. Different batches have different gradients. */
static void gradients(void **state) {
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct workload w = generate("workload w\nbatch 2000\nrows 50\ndim 7\nweighted 1\n", 2,
                                     exact ? GRAD_EXACT : GRAD_REAL);
        const struct batch *in = &w.batches[0];
        const double n = (double)in->grad_elements;
        double sum = 0, squares = 0, weights = 0, equal = 0;
        for (int64_t i = 0; i < in->grad_elements; i++) {
            const float g = batch_grad(in, i) * (exact ? 16 : 1), units = g * 4;
            assert_true(g >= -1 && g <= 1 && (!exact || units == rintf(units)));
            sum += g;
            squares += g * g;
            equal += batch_grad(in, i) == batch_grad(&w.batches[1], i);
        }
        for (int64_t i = 0; i < in->lookups; i++) {
            const float x = in->lookup_weights[i];
            assert_true(exact ? x == 0.5f || x == 1 || x == 2 : x >= 0.25f && x < 1.25f);
            weights += x;
        }
        assert_true(fabs(sum / n) < 0.02 && equal / n < (exact ? 0.2 : 0.01));
        assert_true(fabs(squares / n - (exact ? 60.0 / 144 : 1.0 / 3)) < 0.01);
        assert_true(fabs(weights / (double)in->lookups - (exact ? 3.5 / 3 : 0.75)) < 0.01);
        workload_free(&w);
    }
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

/* The weights of a row's lookups add up to 1. Padding counts for nothing. */
static void duplicates_by_mean(void **state) {
    (void)state;
    struct workload w =
        generate("workload w\nbatch 50\nrows 9\ndim 2\ntables 2\nfeatures 2\npadding 0\n"
                 "length uniform 0 5\nduplicates mean\n",
                 1, GRAD_EXACT);
    const struct batch *in = &w.batches[0];
    struct row_index x = row_index_build(in);
    assert_true(x.rows > 10);
    for (int64_t u = 0; u < x.rows; u++) {
        double sum = 0;
        for (int64_t k = x.run[u].first; k < x.run[u + 1].first; k++)
            sum += in->lookup_weights[x.lookup[k].lookup];
        assert_true(fabs(sum - 1) < 1e-5);
    }
    row_index_free(&x);
    workload_free(&w);
}

/* --- layout */

static const char *const mixed_tables =
    "features 2\ntable rows 10 dim 3 length uniform 0 4\ntable rows 20 dim 5 length fixed 2\n";

/* Gradients of pooled features lie side by side: each bag has one row with the columns of all features. Gradients of
 * sequences lie one feature after the other. */
static void layout(void **state) {
    static const int dim[] = {3, 3, 5, 5};
    (void)state;
    for (int pooled = 0; pooled < 2; pooled++) {
        char text[200];
        snprintf(text, sizeof text, "workload w\nbatch 30\npooling %s\n%s", pooled ? "sum" : "none",
                 mixed_tables);
        struct workload w = generate(text, 2, GRAD_EXACT);
        for (int k = 0; k < 2; k++) {
            int64_t next = 0;
            for (int f = 0; f < 4; f++) {
                const struct feature *x = &w.batches[k].features[f];
                assert_int_equal(x->grad_offset, next);
                assert_int_equal(x->grad_stride, pooled ? 16 : dim[f]);
                next += pooled ? dim[f] : x->lookups * dim[f];
            }
            assert_int_equal(w.batches[k].grad_elements, pooled ? 30 * next : next);
        }
        workload_free(&w);
    }
}

/* --- refused batches */

/* Two features of two bags over tables of 10 and 20 rows; one number is wrong. */
enum { IDS = 6, OFFSETS = 5 };
struct invalid_case {
    const char *test;
    int at; /* the index of the wrong number: below IDS of an id, from IDS on of an offset */
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
    struct feature features[] = {{.table = 0, .bags = 2}, {.table = 1, .bags = 2}};
    struct error err = {""};
    for (int narrow = 0; narrow < 2; narrow++) {
        int64_t wide[IDS + OFFSETS] = {0, 9, 1, 19, 0, 3, 0, 2, 3, 3, 6};
        int32_t ids[IDS];
        wide[c->at] = c->value;
        for (int i = 0; i < IDS; i++) ids[i] = (int32_t)wide[i];
        struct batch in = {.num_tables = 2,
                           .num_features = 2,
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

/* Three features over two tables: what is derived from them, and each number off by one. */
static void derived(void **state) {
    (void)state;
    const int64_t offsets[] = {0, 2, 3, 3, 5, 6}, ids[] = {0, 9, 1, 19, 0, 3};
    struct table_shape t[] = {{.rows = 10, .dim = 1}, {.rows = 20, .dim = 3}};
    struct feature f[] = {
        {.table = 0, .bags = 2, .grad_stride = 7},
        {.table = 1, .bags = 2, .grad_offset = 3, .grad_stride = 7},
        {.table = 1, .bags = 1, .pooling = POOL_NONE, .grad_offset = 20, .grad_stride = 4}};
    struct batch in = {
        .num_tables = 2, .num_features = 3, .id_type = ID_INT64, .ids = ids, .offsets = offsets};
    struct error err = {""};
    batch_derive(&in, t, f);
    const struct {
        int64_t *number, value;
    } want[] = {{&t[0].lookups, 3},     {&t[1].lookups, 3},      {&t[1].first_row, 10},
                {&f[0].lookups, 3},     {&f[1].lookups, 2},      {&f[2].lookups, 1},
                {&f[1].first_bag, 2},   {&f[2].first_lookup, 5}, {&in.lookups, 6},
                {&in.grad_elements, 23}};
    assert_true(t[0].features == 1 && t[1].features == 2 && in.flat_bags == 5);
    assert_int_equal(batch_validate(&in, &err), 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_int_equal(*want[i].number, want[i].value);
        --*want[i].number;
        assert_int_equal(batch_validate(&in, &err), -1);
        ++*want[i].number;
    }
    in.grad_elements = 22;
    assert_int_equal(batch_validate(&in, &err), -1);
    assert_string_equal(err.text, "feature 2: gradient rows end at float 23 of 22");
}

TESTS(batch) {
    ADD_TEST(gradients);
    ADD_CASES(exact_cases, sums_exact);
    ADD_TEST(duplicates_by_mean);
    ADD_TEST(layout);
    ADD_CASES(invalid_cases, validated);
    ADD_TEST(derived);
    return run_listed("batch");
}
