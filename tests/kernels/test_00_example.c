/* SPDX-License-Identifier: MIT
 *
 * The operation on an example that fits on paper; it runs before all other tests.
 *
 * One table of 7 rows and 2 columns, two samples, sum pooling:
 *
 *     sample 1 looks up rows 1, 2, 6; its gradient is a = ( 1, -3)
 *     sample 2 looks up rows 1, 3, 6; its gradient is c = ( 2, -4)
 *
 * So row 2 gets a, row 3 gets c, rows 1 and 6 get a + c = ( 3, -7), and the rule is applied once to
 * each of them. Rows 0, 4 and 5 keep their bits. Learning rate 1/2, epsilon 1, and states such that
 * every square root is a whole number and every denominator a power of two: all results are exact
 * in single precision, and nothing depends on rounding.
 */
#include <stdio.h>
#include <string.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { ROWS = 7, DIM = 2 };

/* A row's state, and the change of its weight. */
struct worked {
    float s0[DIM], s1[DIM], row;
    float after_s0[DIM], after_s1[DIM], after_row;
    float minus[DIM]; /* what the weight loses */
};

struct example {
    struct rule rule;
    struct worked row1, row2, row3, row6;
    struct worked idle; /* rows 0, 4 and 5, in a dense step */
};

/* SGD, w -= g/2:
 *     rows 1, 6: ( 3, -7)/2    row 2: ( 1, -3)/2    row 3: ( 2, -4)/2
 * Momentum 1/2, b = b/2 + g, w -= b/2, with b = ( 4, -2) before, b/2 = ( 2, -1):
 *     rows 1, 6: b = ( 5, -8)   row 2: b = ( 3, -4)   row 3: b = ( 4, -5)   idle: b = ( 2, -1)
 * Adagrad, s += g^2, w -= (g/2)/(sqrt(s) + 1):
 *     row 1: s = (0, 0) + (9, 49), roots 3 and 7:         w -= ( 1.5/4, -3.5/8)
 *     row 2: s = (0, 0) + (1, 9), roots 1 and 3:          w -= ( 0.5/2, -1.5/4)
 *     row 3: s = (5, 33) + (4, 16) = (9, 49):             w -= ( 1/4, -2/8)
 *     row 6: s = (40, 176) + (9, 49) = (49, 225), 7, 15:  w -= ( 1.5/8, -3.5/16)
 * Row-wise Adagrad, s += mean(g^2), w -= (1/2)/(sqrt(s) + 1) * g:
 *     row 1: s = 20 + (9 + 49)/2 = 49, rate 0.5/8:        w -= ( 3/16, -7/16)
 *     row 2: s = 4 + (1 + 9)/2 = 9, rate 0.5/4:           w -= ( 1/8, -3/8)
 *     row 3: s = 39 + (4 + 16)/2 = 49, rate 0.5/8:        w -= ( 2/16, -4/16)
 *     row 6: s = 196 + 29 = 225, rate 0.5/16:             w -= ( 3/32, -7/32)
 * Adam, beta1 1/2, beta2 3/4, first step: the corrections are 1 - beta1 = 1/2 and 1 - beta2 = 1/4.
 * Corrected, m' = m_before + g and v' = 3 v_before + g^2; stored, m = m'/2 and v = v'/4. With m =
 * ( 4, -2) before, w -= (m'/2)/(sqrt(v') + 1):
 *     row 1: m' = ( 7, -9), v' = 3*(0, 0) + (9, 49), roots 3, 7:       w -= ( 3.5/4, -4.5/8)
 *     row 2: m' = ( 5, -5), v' = 3*(0, 0) + (1, 9), roots 1, 3:        w -= ( 2.5/2, -2.5/4)
 *     row 3: m' = ( 6, -6), v' = 3*(15, 11) + (4, 16), roots 7, 7:     w -= ( 3/8, -3/8)
 *     row 6: m' = ( 7, -9), v' = 3*(72, 304) + (9, 49), roots 15, 31:  w -= ( 3.5/16, -4.5/32)
 *     idle:  m' = ( 4, -2), v' = 3*(3, 3) + (0, 0), roots 3, 3:        w -= ( 2/4, -1/4) */
static const struct example examples[] = {
    {.rule = {RULE_sgd, {0.5f}},
     .row1 = {.minus = {1.5f, -3.5f}},
     .row2 = {.minus = {0.5f, -1.5f}},
     .row3 = {.minus = {1, -2}},
     .row6 = {.minus = {1.5f, -3.5f}}},
    {.rule = {RULE_momentum, {0.5f, 0.5f}},
     .row1 = {.s0 = {4, -2}, .after_s0 = {5, -8}, .minus = {2.5f, -4}},
     .row2 = {.s0 = {4, -2}, .after_s0 = {3, -4}, .minus = {1.5f, -2}},
     .row3 = {.s0 = {4, -2}, .after_s0 = {4, -5}, .minus = {2, -2.5f}},
     .row6 = {.s0 = {4, -2}, .after_s0 = {5, -8}, .minus = {2.5f, -4}},
     .idle = {.s0 = {4, -2}, .after_s0 = {2, -1}, .minus = {1, -0.5f}}},
    {.rule = {RULE_adagrad, {0.5f, 1}},
     .row1 = {.after_s0 = {9, 49}, .minus = {0.375f, -0.4375f}},
     .row2 = {.after_s0 = {1, 9}, .minus = {0.25f, -0.375f}},
     .row3 = {.s0 = {5, 33}, .after_s0 = {9, 49}, .minus = {0.25f, -0.25f}},
     .row6 = {.s0 = {40, 176}, .after_s0 = {49, 225}, .minus = {0.1875f, -0.21875f}}},
    {.rule = {RULE_rowwise_adagrad, {0.5f, 1}},
     .row1 = {.row = 20, .after_row = 49, .minus = {0.1875f, -0.4375f}},
     .row2 = {.row = 4, .after_row = 9, .minus = {0.125f, -0.375f}},
     .row3 = {.row = 39, .after_row = 49, .minus = {0.125f, -0.25f}},
     .row6 = {.row = 196, .after_row = 225, .minus = {0.09375f, -0.21875f}}},
    {.rule = {RULE_adam, {0.5f, 0.5f, 0.75f, 1}},
     .row1 = {{4, -2}, {0, 0}, 0, {3.5f, -4.5f}, {2.25f, 12.25f}, 0, {0.875f, -0.5625f}},
     .row2 = {{4, -2}, {0, 0}, 0, {2.5f, -2.5f}, {0.25f, 2.25f}, 0, {1.25f, -0.625f}},
     .row3 = {{4, -2}, {15, 11}, 0, {3, -3}, {12.25f, 12.25f}, 0, {0.375f, -0.375f}},
     .row6 = {{4, -2}, {72, 304}, 0, {3.5f, -4.5f}, {56.25f, 240.25f}, 0, {0.21875f, -0.140625f}},
     .idle = {{4, -2}, {3, 3}, 0, {2, -1}, {2.25f, 2.25f}, 0, {0.5f, -0.25f}}},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static const struct worked *worked_row(const struct example *x, int row) {
    const struct worked *rows[ROWS] = {&x->idle, &x->row1, &x->row2, &x->row3,
                                       &x->idle, &x->idle, &x->row6};
    return rows[row];
}

static float weight_before(int row, int d) {
    return (float)(d ? -row : row) + 0.25f;
}

static void build_example(const struct example *x, struct builder *b) {
    static const float a[DIM] = {1, -3}, c[DIM] = {2, -4};
    builder_begin(b, 1, true);
    builder_feature(b, builder_table(b, ROWS, DIM), POOL_SUM, -1);
    builder_bag(b, 3, (const int64_t[]){1, 2, 6});
    builder_bag(b, 3, (const int64_t[]){1, 3, 6});
    builder_finish(b);
    memcpy(builder_grad(b, 0, 0), a, sizeof a);
    memcpy(builder_grad(b, 0, 1), c, sizeof c);
    builder_rule(b, 0, x->rule.kind);
    b->rules[0] = x->rule;
    b->step = 1;
    builder_start(b);
    for (int row = 0; row < ROWS; row++) {
        const struct worked *w = worked_row(x, row);
        struct row_memory m = row_memory(&b->tables.tables[0], b->in.tables, row);
        for (int d = 0; d < DIM; d++) m.weight[d] = weight_before(row, d);
        if (m.elem[0]) memcpy(m.elem[0], w->s0, sizeof w->s0);
        if (m.elem[1]) memcpy(m.elem[1], w->s1, sizeof w->s1);
        if (m.row) *m.row = w->row;
    }
}

static void kernel_as_by_hand(void **state) {
    const struct kernel_test *test = *state;
    const struct example *x = test->param;
    if (!kernel_applies(test->kernel, (enum rule_kind)x->rule.kind)) skip();
    struct builder b;
    build_example(x, &b);
    const char *wrong = builder_run(&b, test->kernel, 2);
    if (wrong) fail_msg("%s", wrong);
    bool moves_idle = test->kernel->traits & DENSE_STEP;
    for (int row = 0; row < ROWS; row++) {
        const struct worked *w = worked_row(x, row);
        struct row_memory m = row_memory(&b.tables.tables[0], b.in.tables, row);
        bool idle = w == &x->idle && !moves_idle;
        float weight[DIM];
        for (int d = 0; d < DIM; d++) weight[d] = weight_before(row, d) - (idle ? 0 : w->minus[d]);
        assert_memory_equal(m.weight, weight, sizeof weight);
        if (m.elem[0]) assert_memory_equal(m.elem[0], idle ? w->s0 : w->after_s0, sizeof weight);
        if (m.elem[1]) assert_memory_equal(m.elem[1], idle ? w->s1 : w->after_s1, sizeof weight);
        if (m.row) assert_memory_equal(m.row, idle ? &w->row : &w->after_row, sizeof *m.row);
    }
    builder_free(&b);
}

TESTS(00_example) {
    for (int i = 0; i < EXAMPLES; i++) {
        char name[80];
        snprintf(name, sizeof name, "two samples, %s", rule_info(examples[i].rule.kind).name);
        add_kernel_tests(name, kernel_as_by_hand, &examples[i]);
    }
    return run_listed("example");
}
