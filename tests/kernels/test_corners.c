/* SPDX-License-Identifier: MIT
 *
 * Gradients, states and hyper-parameters at the ends of single precision, for every kernel of the
 * registry: sums that cancel, subnormal summands, and steps that have no finite value. A right
 * kernel passes and a wrong value fails. If no kernel can be right, the check says so.
 */
#include <math.h>
#include <string.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { ROWS = 6, DIM = 5, HIT = 2, OTHER = 4, IDLE = 3 };

static const struct kernel *kernel_of(void **state) {
    return ((const struct kernel_test *)*state)->kernel;
}

/* One table, real gradients. Row HIT is looked up by bags 0 and 1, row OTHER by bag 2. */
static void begin(struct builder *b) {
    builder_begin(b, 31, false);
    builder_feature(b, builder_table(b, ROWS, DIM), POOL_SUM, -1);
    builder_bag(b, 1, (const int64_t[]){HIT});
    builder_bag(b, 1, (const int64_t[]){HIT});
    builder_bag(b, 1, (const int64_t[]){OTHER});
    builder_finish(b);
}

static struct row_memory row_of(const struct builder *b, int64_t row) {
    return row_memory(&b->tables.tables[0], &b->in.tables[0], row);
}

/* Fresh tables; one row has one value in all weights and one value in all states. */
static void start(struct builder *b, int64_t row, float weight, float state) {
    builder_start(b);
    struct rule_info info = rule_info(b->shapes[0].rule);
    struct row_memory m = row_of(b, row);
    for (int d = 0; d < DIM; d++) {
        m.weight[d] = weight;
        for (int k = 0; k < info.elem_states; k++) m.elem[k][d] = state;
    }
    for (int k = 0; k < info.row_states; k++) m.row[k] = state;
}

static void set_grads(struct builder *b, float first, float second) {
    for (int d = 0; d < DIM; d++) {
        builder_grad(b, 0, 0)[d] = first;
        builder_grad(b, 0, 1)[d] = second;
    }
    builder_recount(b);
}

static void run_and_pass(struct builder *b, const struct kernel *k) {
    const char *wrong = builder_run(b, k, 2);
    if (!wrong) wrong = builder_judge(b, k);
    if (wrong) fail_msg("%s: %s", rule_info(b->shapes[0].rule).name, wrong);
}

/* The check must reject a value that is off by so much. */
static void reject(struct builder *b, const struct kernel *k, float *at, float off) {
    const float right = *at;
    *at += off;
    const char *wrong = builder_judge(b, k);
    if (!wrong || !strstr(wrong, "1 rows wrong"))
        fail_msg("%s: %s", rule_info(b->shapes[0].rule).name, wrong ? wrong : "accepted");
    *at = right;
}

/* Gradients that cancel, and state 0: the sum may be 0 or a rounding away from it, so that the
 * denominator is at least eps, but no more is certain. */
static void sums_that_cancel(void **state) {
    const struct kernel *k = kernel_of(state);
    for (int kind = 0; kind < RULE_COUNT; kind++) {
        if (!kernel_applies(k, (enum rule_kind)kind)) continue;
        for (int small = 0; small < 2; small++) {
            struct builder b;
            begin(&b);
            builder_rule(&b, 0, (enum rule_kind)kind);
            if (small) builder_set(&b.rules[0], "eps", 1e-8f);
            set_grads(&b, 1, -1);
            start(&b, HIT, 0, 0);
            run_and_pass(&b, k);
            struct row_memory hit = row_of(&b, HIT);
            reject(&b, k, &hit.weight[DIM - 1], 0.25f);
            if (hit.elem[0]) reject(&b, k, &hit.elem[0][1], 0.25f);
            /* A buffer of steps may have steps of any length up to 10, without a rate. */
            const char *second = rule_info((enum rule_kind)kind).elem[1].name;
            const bool buffer = second && strcmp(second, "b") == 0;
            if (second) reject(&b, k, &hit.elem[1][1], small && buffer ? 32 : 0.25f);
            if (hit.row) reject(&b, k, hit.row, 0.25f);
            builder_free(&b);
        }
    }
}

/* --- a sum of 0, but not in single precision: kernels that add in order are left with the rounding of
 * one addition, and a rule that divides by it takes a whole step. That is right, and how long a step can
 * be is all that the check has to go by. */

enum { COLUMNS = 64, COLUMN = 3 };

/* 1 + 2^-25 is 1 in single precision, so that in this order -2^-25 is left. */
static const float grads[] = {1, 0x1p-25f, -1, -0x1p-25f};
enum { LOOKUPS = sizeof grads / sizeof *grads };

static void begin_residue(struct builder *b, enum rule_kind kind) {
    builder_begin(b, 61, false);
    builder_feature(b, builder_table(b, 4, COLUMNS), POOL_SUM, -1);
    for (int q = 0; q < LOOKUPS; q++) builder_bag(b, 1, (const int64_t[]){HIT});
    builder_finish(b);
    for (int q = 0; q < LOOKUPS; q++)
        for (int d = 0; d < COLUMNS; d++) builder_grad(b, 0, q)[d] = d == COLUMN ? grads[q] : 0;
    builder_recount(b);
    assert_false(b->sums_exact);
    builder_rule(b, 0, kind);
    builder_set(&b->rules[0], "eps", 1e-9f); /* below what is left */
    builder_start(b);
    struct row_memory m = row_memory(b->tables.tables, b->in.tables, HIT);
    for (int d = 0; d < COLUMNS; d++) {
        m.weight[d] = 0;
        for (int s = 0; s < rule_elem_states(kind); s++) m.elem[s][d] = 0;
    }
    for (int s = 0; s < rule_row_states(kind); s++) m.row[s] = 0;
}

static void what_is_left(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const struct {
        enum rule_kind kind;
        double step; /* the longest, in units of lr */
    } rules[] = {{RULE_adagrad, 1}, {RULE_rowwise_adagrad, 8 /* sqrt(COLUMNS) */}};
    for (int i = 0; i < 2; i++) {
        if (!kernel_applies(k, rules[i].kind)) continue;
        struct builder b;
        begin_residue(&b, rules[i].kind);
        const char *wrong = builder_run(&b, k, 1);
        if (!wrong) wrong = builder_judge(&b, k);
        if (wrong) fail_msg("%s: %s", rule_info(rules[i].kind).name, wrong);
        /* Any step up to the longest, but nothing beyond twice that. */
        float *w = row_memory(b.tables.tables, b.in.tables, HIT).weight + COLUMN;
        for (int sign = -1; sign <= 1; sign += 2) {
            *w = (float)(sign * 0.99 * rules[i].step * b.rules[0].param[RULE_LR]);
            assert_null(builder_judge(&b, k));
            *w = (float)(sign * 2.2 * rules[i].step * b.rules[0].param[RULE_LR]);
            assert_non_null(builder_judge(&b, k));
        }
        builder_free(&b);
    }
}

/* Each lookup's product is subnormal: every product is rounded by up to half of the least float,
 * independent of the sum. */
static void subnormal_summands(void **state) {
    static const struct {
        enum pooling pooling;
        float weight, grad;
    } cases[] = {{POOL_MEAN, 1e-44f, 0.7f}, {POOL_SUM, 0.2f, 4e-45f}};
    const struct kernel *k = kernel_of(state);
    for (int c = 0; c < 2; c++)
        for (int kind = 0; kind < RULE_COUNT; kind++) {
            if (!kernel_applies(k, (enum rule_kind)kind)) continue;
            int64_t ids[100];
            struct builder b;
            builder_begin(&b, 32, false);
            b.weighted = true;
            builder_feature(&b, builder_table(&b, ROWS, DIM), cases[c].pooling, -1);
            for (int i = 0; i < 100; i++) ids[i] = HIT;
            builder_bag(&b, 100, ids);
            builder_finish(&b);
            for (int i = 0; i < 100; i++) ((float *)b.in.lookup_weights)[i] = cases[c].weight;
            for (int d = 0; d < DIM; d++) builder_grad(&b, 0, 0)[d] = cases[c].grad;
            builder_recount(&b);
            builder_rule(&b, 0, (enum rule_kind)kind);
            start(&b, HIT, 0, 0);
            run_and_pass(&b, k);
            reject(&b, k, row_of(&b, HIT).weight, 0.25f);
            builder_free(&b);
        }
}

/* A gradient of exactly 0, or that cancels exactly, decides the branch of a rule with norms. */
static void norm_of_nothing(void **state) {
    static const enum rule_kind rules[] = {RULE_lars, RULE_lamb};
    const struct kernel *k = kernel_of(state);
    for (int i = 0; i < 4; i++) {
        struct builder b;
        if (!kernel_applies(k, rules[i % 2])) continue;
        begin(&b);
        builder_rule(&b, 0, rules[i % 2]);
        set_grads(&b, i < 2 ? 0 : 0.75f, i < 2 ? 0 : -0.75f);
        start(&b, HIT, 0.25f, 0);
        run_and_pass(&b, k);
        builder_free(&b);
    }
}

/* Sums start from 0, so a single gradient of -0 is 0, and a weight of -0 stays what it is. */
static void single_gradient_of_minus_zero(void **state) {
    const struct kernel *k = kernel_of(state);
    if (k->traits & STEP_PER_LOOKUP) skip();
    for (int kind = 0; kind < RULE_COUNT; kind++) {
        struct builder b;
        if (!kernel_applies(k, (enum rule_kind)kind)) continue;
        begin(&b);
        builder_rule(&b, 0, (enum rule_kind)kind);
        for (int d = 0; d < DIM; d++) builder_grad(&b, 0, 2)[d] = -0.0f;
        set_grads(&b, 1, 1);
        b.sums_exact = true;
        start(&b, OTHER, -0.0f, 0);
        run_and_pass(&b, k);
        builder_free(&b);
    }
}

/* --- steps without a finite value */

struct undecided {
    const char *name;
    enum rule_kind kind;
    float grad, state, lr, eps; /* of row HIT; both its gradients */
};

static const struct undecided undecided[] = {
    {"sum overflows", RULE_sgd, 3e38f, 0, 0.1f, 1},
    {"step overflows", RULE_sgd, 1e38f, 0, 1e3f, 1},
    {"square overflows", RULE_adagrad, 1e25f, 0, 0.1f, 1},
    {"second moment overflows", RULE_adam, 1e25f, 0, 0.1f, 1},
    {"negative accumulator", RULE_adagrad, 0.1f, -1, 0.1f, 1},
    {"nothing in the denominator", RULE_adagrad, 0, 0, 0.1f, 0},
    {"rate overflows", RULE_rowwise_adagrad, 0, 0, 1e30f, 1e-30f},
};
enum { UNDECIDED = sizeof undecided / sizeof *undecided };

/* The check names the row and blames no kernel; it still finds a wrong row beside it. */
static void step_without_value(void **state) {
    const struct kernel *k = kernel_of(state);
    const struct undecided *u = ((const struct kernel_test *)*state)->param;
    if (!kernel_applies(k, (enum rule_kind)u->kind)) skip();
    struct builder b;
    begin(&b);
    builder_rule(&b, 0, u->kind);
    b.rules[0].param[RULE_LR] = u->lr;
    builder_set(&b.rules[0], "eps", u->eps);
    set_grads(&b, u->grad, u->grad);
    start(&b, HIT, 0.25f, u->state);
    assert_null(builder_run(&b, k, 2));
    const char *said = builder_judge(&b, k);
    if (!said || !strstr(said, "undecided: table 0 row 2 (2 lookups)") ||
        (!strstr(said, ": no finite value: ") && !strstr(said, ": cannot be decided: ")))
        fail_msg("%s", said ? said : "accepted");
    row_of(&b, IDLE).weight[1] = 77;
    said = builder_judge(&b, k);
    assert_non_null(said);
    assert_non_null(strstr(said, "1 rows wrong; table 0 row 3 (0 lookups) weight[1]: got 77"));
    builder_free(&b);
}

TESTS(corners) {
    add_kernel_tests("sums that cancel", sums_that_cancel, NULL);
    add_kernel_tests("what is left of a sum of 0", what_is_left, NULL);
    add_kernel_tests("subnormal summands", subnormal_summands, NULL);
    add_kernel_tests("norm of nothing", norm_of_nothing, NULL);
    add_kernel_tests("a single gradient of -0", single_gradient_of_minus_zero, NULL);
    for (int i = 0; i < UNDECIDED; i++)
        add_kernel_tests(undecided[i].name, step_without_value, &undecided[i]);
    return run_listed("corners");
}
