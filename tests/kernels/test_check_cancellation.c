/* SPDX-License-Identifier: MIT
 *
 * Gradients whose sum is 0, but not in single precision: kernels that add in order are left with
 * the rounding of one addition, and a rule that divides by it takes a whole step. That is right,
 * and how long a step can be is all that the check has to go by.
 */
#include <math.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { DIM = 64, HIT = 1, COLUMN = 3 };

/* 1 + 2^-25 is 1 in single precision, so that in this order -2^-25 is left. */
static const float grads[] = {1, 0x1p-25f, -1, -0x1p-25f};
enum { LOOKUPS = sizeof grads / sizeof *grads };

static void begin(struct builder *b, enum rule_kind kind) {
    builder_begin(b, 61, false);
    builder_feature(b, builder_table(b, 4, DIM), POOL_SUM, -1);
    for (int q = 0; q < LOOKUPS; q++) builder_bag(b, 1, (const int64_t[]){HIT});
    builder_finish(b);
    for (int q = 0; q < LOOKUPS; q++)
        for (int d = 0; d < DIM; d++) builder_grad(b, 0, q)[d] = d == COLUMN ? grads[q] : 0;
    builder_recount(b);
    assert_false(b->sums_exact);
    builder_rule(b, 0, kind);
    builder_set(&b->rules[0], "eps", 1e-9f); /* below what is left */
    builder_start(b);
    struct row_memory m = row_memory(b->tables.tables, b->in.tables, HIT);
    for (int d = 0; d < DIM; d++) {
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
    } rules[] = {{RULE_adagrad, 1}, {RULE_rowwise_adagrad, 8 /* sqrt(DIM) */}};
    for (int i = 0; i < 2; i++) {
        if (!kernel_applies(k, rules[i].kind)) continue;
        struct builder b;
        begin(&b, rules[i].kind);
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

TESTS(check_cancellation) {
    add_kernel_tests("what is left of a sum of 0", what_is_left, NULL);
    return run_listed("check_cancellation");
}
