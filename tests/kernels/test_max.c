/* SPDX-License-Identifier: MIT
 *
 * Max pooling: forward and step worked by hand, kernels that the checks must reject, and the
 * winners of workloads. Every kernel also meets a max in test_kernels.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/workload/winners.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"
#include "tests/support/generate.h"
#include "tests/support/kernel_tests.h"
#include "tests/support/output_run.h"

static const struct kernel *kernel_named(enum operation operation, const char *name) {
    struct error err = {""};
    const struct kernel *k = registry_find(operation, name, &err);
    if (!k) fail_msg("%s", err.text);
    return k;
}

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
    static const int32_t dims[] = {1, 4, 5, 8, 16, 19, 37, 130};
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

/* --- the step by hand */

/* Bags {1, 4, 1}, {4, 5, 2}, {3, 3} of a table of 6 rows; row 5 is padding. Columns 0 and 1 of the
 * gradient of bag 0 are 2 and 4, of bag 1 NaN and 8, of bag 2 16 and 32. */
static void begin_step(struct builder *b) {
    static const int32_t winner[][2] = {{2, 1}, {0, 2}, {0, 1}};
    static const float grad[][2] = {{2, 4}, {NAN, 8}, {16, 32}};
    builder_begin(b, 3, true);
    builder_feature(b, builder_table(b, 6, 2), POOL_MAX, 5);
    builder_bag(b, 3, (const int64_t[]){1, 4, 1});
    builder_bag(b, 3, (const int64_t[]){4, 5, 2});
    builder_bag(b, 2, (const int64_t[]){3, 3});
    builder_finish(b);
    for (int q = 0; q < 3; q++)
        for (int d = 0; d < 2; d++) {
            builder_grad(b, 0, q)[d] = grad[q][d];
            builder_winners(b, 0, q)[d] = winner[q][d];
        }
    builder_set(&b->rules[0], "lr", 1);
}

/* What each row must get; the NaN goes to its winner alone. */
static const float sums_by_hand[6][2] = {{0, 0}, {2, 0}, {0, 8}, {16, 32}, {NAN, 4}, {0, 0}};

static void step_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    for (int way = 0; way < builder_ways(k); way++) {
        struct builder b;
        begin_step(&b);
        builder_start(&b);
        for (int64_t r = 0; r < 6; r++)
            memcpy(array_row(&b.tables.tables[0].weight, r), (float[]){100, 100}, 8);
        const char *wrong = builder_run(&b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
        for (int64_t r = 0; r < 6; r++)
            for (int d = 0; d < 2; d++) {
                const float got = ((float *)array_row(&b.tables.tables[0].weight, r))[d];
                const float want = 100 - sums_by_hand[r][d];
                if (isnan(want) ? !isnan(got) : got != want)
                    fail_msg("row %d [%d]: got %g", (int)r, d, (double)got);
            }
        builder_free(&b);
    }
}

/* A lookup that wins nothing has an entry of 0s. */
static void gradient_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const struct entry {
        int64_t row;
        float value[2];
    } merged[] = {{1, {2, 0}}, {2, {0, 8}}, {3, {16, 32}}, {4, {1, 4}}},
      each[] = {{1, {0, 0}}, {4, {0, 4}},  {1, {2, 0}}, {4, {1, 0}},
                {2, {0, 8}}, {3, {16, 0}}, {3, {0, 32}}};
    const struct entry *want = k->traits & MERGED ? merged : each;
    struct builder b;
    struct sparse_gradient of;
    char text[400];
    begin_step(&b);
    builder_grad(&b, 0, 1)[0] = 1; /* the check takes no NaN */
    builder_start(&b);
    void *output = malloc(gradient_lay_out(&b.in, false, NULL, NULL));
    if (output_run(&b, k, 2, output, text)) fail_msg("%s", text);
    gradient_lay_out(&b.in, k->traits & MERGED, output, &of);
    assert_int_equal(*of.count, k->traits & MERGED ? 4 : 7);
    for (int64_t e = 0; e < *of.count; e++) {
        assert_int_equal(of.rows[e], want[e].row);
        assert_memory_equal(of.values + 2 * e, want[e].value, sizeof want[e].value);
    }
    free(output);
    builder_free(&b);
}

/* --- kernels that are wrong */

static const struct kernel *right;

/* Takes the max for a sum: every lookup gets the gradient. */
static int run_as_sum(const struct batch *in, const struct rule_step *steps, const struct table *io,
                      const struct launch *how) {
    struct feature *features = malloc((size_t)in->num_features * sizeof *features);
    struct batch sum = *in;
    for (int32_t f = 0; f < in->num_features; f++)
        features[f] = in->features[f], features[f].pooling = POOL_SUM;
    sum.features = features;
    const int status = right->run(&sum, steps, io, how);
    free(features);
    return status;
}

/* Every winner is the first lookup. */
static int run_first(const struct batch *in, const struct rule_step *steps, const struct table *io,
                     const struct launch *how) {
    struct batch first = *in;
    int32_t *winners = calloc((size_t)in->grad_elements, sizeof *winners);
    first.winners = winners;
    const int status = right->run(&first, steps, io, how);
    free(winners);
    return status;
}

/* Leaves rows alone that win nothing: puts back what row 0 was. */
static int run_without_losers(const struct batch *in, const struct rule_step *steps,
                              const struct table *io, const struct launch *how) {
    float *row = array_row(&io[0].weight, 0), was[12];
    memcpy(was, row, sizeof was);
    const int status = right->run(in, steps, io, how);
    memcpy(row, was, sizeof was);
    return status;
}

/* A table of 40 rows and 12 columns; bag 0 is {0, 1}, and lookup 1 wins all of it. */
static void begin_wrong(struct builder *b) {
    builder_begin(b, 7, false);
    builder_feature(b, builder_table(b, 40, 12), POOL_MAX, 39);
    builder_bag(b, 2, (const int64_t[]){0, 1});
    for (int q = 0; q < 20; q++) builder_bag(b, 3, (const int64_t[]){1 + q, 30, 2 + q});
    builder_bag(b, 0, NULL);
    builder_finish(b);
    for (int d = 0; d < 12; d++) builder_winners(b, 0, 0)[d] = 1;
}

static void wrong_steps_are_found(void **state) {
    int (*const runs[])(const struct batch *, const struct rule_step *, const struct table *,
                        const struct launch *) = {run_as_sum, run_first, run_without_losers};
    (void)state;
    right = kernel_named(OP_STEP, "cpu_sort");
    for (size_t r = 0; r <= sizeof runs / sizeof *runs; r++) {
        struct kernel k = *right;
        struct builder b;
        begin_wrong(&b);
        builder_rule(&b, 0, RULE_momentum);
        builder_set(&b.rules[0], "weight_decay", 0.5f); /* a row without a gradient moves */
        if (r < sizeof runs / sizeof *runs) k.run = runs[r];
        assert_int_equal(builder_check(&b, &k, 2) != NULL, r < sizeof runs / sizeof *runs);
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
        for (int64_t q = 0; q < in->bags; q++) {
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
        builder_begin(&b, 3, true);
        builder_feature(&b, builder_table(&b, 6, 2), POOL_MAX, 5);
        builder_bag(&b, 3, (const int64_t[]){1, 4, 1});
        builder_bag(&b, 3, (const int64_t[]){4, 5, 2});
        builder_bag(&b, 2, (const int64_t[]){3, 3});
        builder_bag(&b, 0, NULL);
        builder_bag(&b, 1, (const int64_t[]){5});
        builder_finish(&b);
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
    begin_step(&b);
    assert_null(kernel_refuses(k, &b.in));
    struct batch in = b.in;
    in.lookup_weights = weights;
    assert_string_equal(kernel_refuses(k, &in), "max pooling takes no per-sample weights");
    in = b.in;
    in.lookups = INT64_C(1) << 31;
    assert_string_equal(kernel_refuses(k, &in), "max pooling of 2^31 lookups or more");
    in = b.in;
    in.winners = NULL;
    if (k->operation == OP_FORWARD)
        assert_null(kernel_refuses(k, &in));
    else
        assert_string_equal(kernel_refuses(k, &in),
                            "max pooling needs the winners that its forward saved");
    builder_free(&b);
}

TESTS(max) {
    add_operation_tests(OP_FORWARD, "forward by hand", forward_by_hand, NULL);
    add_kernel_tests("step by hand", step_by_hand, NULL);
    add_operation_tests(OP_GRADIENT, "gradient by hand", gradient_by_hand, NULL);
    add_test("wrong steps are found", wrong_steps_are_found, NULL, NULL);
    add_test("winners are drawn evenly", winners_are_drawn_evenly, NULL, NULL);
    add_test("wrong winners are refused", wrong_winners_are_refused, NULL, NULL);
    for (int o = 0; o < OP_WEIGHT_GRAD; o++) /* that one needs weights */
        add_operation_tests((enum operation)o, "refused batches", refused_batches, NULL);
    return run_listed("max");
}
