/* SPDX-License-Identifier: MIT
 *
 * The oracle's columns are independent: each has the value and the bound that it has alone. Rules
 * with sums over the row give the same in any order of the columns, except for the last bits of
 * double precision.
 */
#include <math.h>

#include "harness/check/oracle.h"
#include "harness/workload/row_index.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { DIM = 5, STEP = 3 };

/* Values and errors that differ from column to column; squares of the gradients add up exactly. */
struct row {
    struct num weight[DIM], elem[RULE_ELEM_STATES][DIM], grad[DIM];
};

static struct num differing(int array, int d) {
    return (struct num){(1 + (3 * d + array) % 7) * (d == 1 && array != 2 ? -0.125 : 0.125),
                        0x1p-20 * (1 + (5 * d + array) % 7)};
}

/* A value of an accumulator. */
static struct num positive(struct num x) {
    return (struct num){fabs(x.value), x.error};
}

/* Smaller from state to state: a second moment comes before a first one and is above its square. */
static struct num smaller(struct num x, int state) {
    return (struct num){ldexp(x.value, -2 * state), x.error};
}

/* Column k is column (k * turn + first) % DIM of make_row(1, 0). */
static struct row make_row(int turn, int first) {
    struct row x;
    for (int k = 0; k < DIM; k++) {
        int d = (k * turn + first) % DIM;
        x.weight[k] = differing(0, d);
        x.grad[k] = differing(2, d);
        for (int s = 0; s < RULE_ELEM_STATES; s++)
            x.elem[s][k] = smaller(positive(differing(3 + s, d)), s);
    }
    return x;
}

/* One step of dim columns; RULE_COUNT stands for SGD with a step per lookup. */
static void step_columns(int kind, struct row *x, int32_t dim, struct num *row_state) {
    struct rule rule = rule_default(kind < RULE_COUNT ? (enum rule_kind)kind : RULE_sgd);
    struct num states[RULE_ROW_STATES];
    struct oracle_row r = {.weight = x->weight, .row = states};
    rule.param[RULE_LR] = 0.37f;
    for (int s = 0; s < RULE_ELEM_STATES; s++) r.elem[s] = x->elem[s];
    for (int s = 0; s < RULE_ROW_STATES; s++) states[s] = (struct num){0.75, 0x1p-22};
    if (kind < RULE_COUNT)
        oracle_update(&rule, STEP, dim, x->grad, &r);
    else
        oracle_update_per_lookup(&rule, 40, dim, x->grad, &r);
    *row_state = states[0];
}

static bool near(double a, double b) {
    return fabs(a - b) <= 0x1p-48 * fabs(b);
}

static bool same(struct num a, struct num b) {
    return near(a.value, b.value) && near(a.error, b.error);
}

static void assert_same_column(const struct row *a, int k, const struct row *b, int d) {
    assert_true(same(a->weight[k], b->weight[d]));
    for (int s = 0; s < RULE_ELEM_STATES; s++) assert_true(same(a->elem[s][k], b->elem[s][d]));
}

static void columns_alone(void **state) {
    (void)state;
    for (int kind = 0; kind <= RULE_COUNT; kind++) {
        if (kind < RULE_COUNT &&
            (rule_sums_before((enum rule_kind)kind) || rule_sums_after((enum rule_kind)kind)))
            continue;
        struct num row_state;
        struct row all = make_row(1, 0);
        step_columns(kind, &all, DIM, &row_state);
        for (int d = 0; d < DIM; d++) {
            struct row alone = make_row(1, d);
            step_columns(kind, &alone, 1, &row_state);
            assert_same_column(&alone, 0, &all, d);
        }
    }
}

static void columns_in_any_order(void **state) {
    (void)state;
    for (int kind = 0; kind <= RULE_COUNT; kind++) {
        struct num before, after;
        struct row all = make_row(1, 0), turned = make_row(3, 2);
        step_columns(kind, &all, DIM, &before);
        step_columns(kind, &turned, DIM, &after);
        assert_true(same(before, after));
        for (int k = 0; k < DIM; k++) assert_same_column(&turned, k, &all, (k * 3 + 2) % DIM);
    }
}

/* SGD rounds the product and the difference: an error of u times each value, plus the least float
 * each. The bound is not wider. */
static void bounds_by_hand(void **state) {
    (void)state;
    static const struct {
        double weight, grad, bound;
    } cases[] = {{1, 1, 0x1p-24}, {0, 0, 0}, {4, -8, 0x1.8p-21}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rule rule = rule_default(RULE_sgd);
        struct num weight = {cases[i].weight, 0}, grad = {cases[i].grad, 0};
        struct oracle_row row = {.weight = &weight};
        rule.param[RULE_LR] = 0.5f;
        oracle_update(&rule, 1, 1, &grad, &row);
        assert_true(weight.value == cases[i].weight - 0.5 * cases[i].grad);
        assert_true(weight.error >= cases[i].bound && weight.error <= 1.000001 * cases[i].bound);
    }
}

/* The sum of a row's gradients: column d equals column 0 of gradients that begin d floats later. */
static void sums_of_columns(void **state) {
    (void)state;
    for (int pooling = POOL_SUM; pooling <= POOL_NONE; pooling++) {
        struct builder b;
        struct num all[DIM], alone;
        builder_begin(&b, 51, false);
        b.weighted = true;
        builder_feature(&b, builder_table(&b, 4, DIM), (enum pooling)pooling, 3);
        builder_bag(&b, 3, (const int64_t[]){0, 3, 1});
        builder_bag(&b, 4, (const int64_t[]){1, 1, 2, 0});
        builder_finish(&b);
        for (int64_t u = 0; u < b.index.rows; u++) {
            const struct row_lookup *lookups = &b.index.lookup[b.index.run[u].first];
            int64_t count = b.index.run[u + 1].first - b.index.run[u].first;
            oracle_sum(&b.in, lookups, count, false, DIM, all);
            for (int d = 0; d < DIM; d++, b.features[0].grad_offset++) {
                oracle_sum(&b.in, lookups, count, false, 1, &alone);
                assert_true(all[d].error > 0 && same(alone, all[d]));
            }
            b.features[0].grad_offset -= DIM;
        }
        builder_free(&b);
    }
}

TESTS(oracle_columns) {
    add_test("columns alone", columns_alone, NULL, NULL);
    add_test("columns in any order", columns_in_any_order, NULL, NULL);
    add_test("bounds by hand", bounds_by_hand, NULL, NULL);
    add_test("sums of columns", sums_of_columns, NULL, NULL);
    return run_listed("oracle_columns");
}
