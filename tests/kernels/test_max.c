/* SPDX-License-Identifier: MIT
 *
 * Max pooling: forward worked by hand, and the winners of workloads. (A step of other winners: test_iteration.c.)
 * Every kernel also meets a max in test_kernels.c, and NumPy's in tests/programs/test_numpy.py.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/forward.h"
#include "tests/support/generate.h"
#include "tests/support/kernel_tests.h"
#include "tests/support/batch_builder.h"

/* --- the forward by hand */

enum { PADDING = 7, HAND_ROWS = 8, HAND_BAGS = 14 };

/* Every column of row r. Row 7 is padding, and larger than all others. */
static const float rows_by_hand[HAND_ROWS] = {1, 1, -0.0f, 0, NAN, -5, -INFINITY, 2};

static const struct {
    int64_t count, ids[4];
    float max;
    int32_t winner;
} bags_by_hand[HAND_BAGS] = {
    {1, {5}, -5, 0},                                  /* below the 0 of an empty bag */
    {2, {0, 1}, 1, 0},                                /* the first of equals */
    {3, {5, 1, 0}, 1, 1},      {2, {2, 3}, -0.0f, 0}, /* -0 and +0 are equal, and -0 stays -0 */
    {2, {3, 2}, 0, 0},         {2, {4, 0}, NAN, 0},   /* a NaN that comes first wins */
    {2, {0, 4}, 1, 0},                                /* a later one does not */
    {3, {7, 4, 0}, NAN, 1},                           /* first of those that count */
    {4, {5, 7, 0, 4}, 1, 2},                          /* numbers count padding, too */
    {2, {6, 6}, -INFINITY, 0}, {3, {7, 6, 5}, -5, 2},   {2, {7, 7}, 0, NO_WINNER},
    {0, {0}, 0, NO_WINNER},    {4, {5, 3, 2, 0}, 1, 3},
};

static void forward_by_hand(void **state) {
    static const int32_t dims[] = {1, 4, 5, 16, 19, 37, 130};
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    for (size_t n = 0; n < sizeof dims / sizeof *dims; n++) {
        struct builder b;
        char text[400];
        int32_t *winners;
        builder_begin(&b, 1, true);
        builder_feature(&b, builder_table(&b, HAND_ROWS, dims[n]), POOL_MAX, PADDING);
        for (int q = 0; q < HAND_BAGS; q++)
            builder_bag(&b, bags_by_hand[q].count, bags_by_hand[q].ids);
        builder_finish(&b);
        builder_start(&b);
        for (int s = 0; s < 2; s++)
            for (int64_t r = 0; r < HAND_ROWS; r++) {
                float *row = array_row(&(s ? b.before : b.tables).tables[0].weight, r);
                for (int32_t d = 0; d < dims[n]; d++) row[d] = rows_by_hand[r];
            }
        void *output = malloc(forward_lay_out(&b.in, NULL, &winners));
        if (output_run(&b, k, 2, output, text)) fail_msg("dim %d: %s", dims[n], text);
        forward_lay_out(&b.in, output, &winners);
        for (int q = 0; q < HAND_BAGS; q++)
            for (int32_t d = 0; d < dims[n]; d++) {
                const int64_t at = forward_row(&b.in.features[0], q) + d;
                const float got = ((const float *)output)[at], want = bags_by_hand[q].max;
                const bool same = isnan(want) ? isnan(got) : memcmp(&got, &want, sizeof got) == 0;
                if (!same || winners[at] != bags_by_hand[q].winner)
                    fail_msg("dim %d, bag %d [%d]: got %g of lookup %d", dims[n], q, d, (double)got,
                             winners[at]);
            }
        free(output);
        builder_free(&b);
    }
}

/* --- the winners of workloads */

/* Bags of 6 lookups, of which one in six or so is padding. */
static void winners_are_drawn_evenly(void **state) {
    struct workload w = generate("workload w\nrows 6\ndim 40\nbatch 6000\nlength fixed 6\n"
                                 "ids uniform\npadding 1\npooling max\n",
                                 2, GRAD_EXACT);
    (void)state;
    for (int k = 0; k < 2; k++) {
        const struct batch *in = &w.batches[k];
        double expected[6] = {0}, count[6] = {0};
        for (int64_t q = 0; q < in->flat_bags; q++) {
            int64_t counted = 0;
            for (int64_t i = 0; i < 6; i++) counted += batch_id(in, 6 * q + i) != 1;
            for (int64_t i = 0; i < 6; i++)
                if (batch_id(in, 6 * q + i) != 1) expected[i] += 40.0 / (double)counted;
            for (int d = 0; d < 40 && counted; d++) count[in->winners[40 * q + d]]++;
        }
        /* 5 standard deviations of a binomial count */
        for (int i = 0; i < 6; i++)
            if (fabs(count[i] - expected[i]) > 5 * sqrt(expected[i])) fail_msg("lookup %d", i);
    }
    const size_t bytes = (size_t)w.batches[0].grad_elements * sizeof(int32_t);
    assert_memory_not_equal(w.batches[0].winners, w.batches[1].winners, bytes);
    workload_free(&w);
}

/* Bags {1, 4, 1}, {4, 5, 2}, {3, 3}, {}, {5} of a table of 6 rows; row 5 is padding. */
static void begin_winners(struct builder *b) {
    builder_begin(b, 3, true);
    builder_feature(b, builder_table(b, 6, 2), POOL_MAX, 5);
    builder_bag(b, 3, (const int64_t[]){1, 4, 1});
    builder_bag(b, 3, (const int64_t[]){4, 5, 2});
    builder_bag(b, 2, (const int64_t[]){3, 3});
    builder_bag(b, 0, NULL);
    builder_bag(b, 1, (const int64_t[]){5});
    builder_finish(b);
}

static void wrong_winners_are_refused(void **state) {
    static const struct {
        int64_t bag;
        int32_t winner;
        const char *says;
    } cases[] = {
        {0, 3, "feature 0, bag 0 of 3 lookups, column 1: winner 3, but it must be the number of"},
        {0, -1, "winner -1, but it must be the number of a lookup in the bag"},
        {1, 1, "bag 1 of 3 lookups, column 1: winner 1, but that lookup is padding"},
        {1, 2, NULL},
        {3, 0, "bag 3 of 0 lookups, column 1: winner 0, but no lookup counts, so it must be -1"},
        {4, 0, "bag 4 of 1 lookups, column 1: winner 0, but no lookup counts"},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct error err = {""};
        struct builder b;
        begin_winners(&b);
        assert_int_equal(batch_validate(&b.in, &err), 0);
        builder_winners(&b, 0, cases[c].bag)[1] = cases[c].winner;
        assert_int_equal(batch_validate(&b.in, &err), cases[c].says ? -1 : 0);
        if (cases[c].says && !strstr(err.text, cases[c].says)) fail_msg("%s", err.text);
        builder_free(&b);
    }
}

/* What POOL_MAX excludes is refused for every kernel, in the same words. */
static void refused_batches(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const float weights[8];
    struct builder b;
    begin_winners(&b);
    assert_null(kernel_refuses(k, &b.in));
    struct batch weighted = b.in, large = b.in, lost = b.in;
    weighted.lookup_weights = weights;
    assert_string_equal(kernel_refuses(k, &weighted), "max pooling takes no per-sample weights");
    large.lookups = INT64_C(1) << 31;
    assert_string_equal(kernel_refuses(k, &large), "max pooling of 2^31 lookups or more");
    lost.winners = NULL;
    const char *why = kernel_refuses(k, &lost);
    assert_true(k->operation == OP_FORWARD ? !why : why && strstr(why, "needs the winners"));
    builder_free(&b);
}

TESTS(max) {
    add_operation_tests(OP_FORWARD, "forward by hand", forward_by_hand, NULL);
    add_test("winners are drawn evenly", winners_are_drawn_evenly, NULL, NULL);
    add_test("wrong winners are refused", wrong_winners_are_refused, NULL, NULL);
    for (int o = 0; o < OP_WEIGHT_GRAD; o++) /* that one needs weights */
        add_operation_tests((enum operation)o, "refused batches", refused_batches, NULL);
    return run_listed("max");
}
