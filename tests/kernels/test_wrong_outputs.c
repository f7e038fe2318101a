/* SPDX-License-Identifier: MIT
 *
 * Outputs that the checks must reject: every host kernel of an operation runs, and then one thing
 * is spoiled. (Wrong steps of tables: test_check.c.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/output_check.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { ROWS = 40, DIM = 12, PADDING = 1 };

/* What a planted kernel works on. */
struct made {
    const struct batch *in;
    const struct rule_step *steps;
    const struct table *io;
    const struct launch *how;
    float *out;                 /* of a step: the gradient of the weights */
    struct sparse_gradient sum; /* of a gradient */
    bool merged;
};

static const struct kernel *right, *pass;

/* --- any output */

static void one_bit(const struct made *m) {
    const struct feature *f = &m->in->features[0];
    float *x = right->operation == OP_FORWARD ? m->out + forward_row(f, 3) + DIM - 1
                                              : m->out + m->in->lookups / 2;
    *x = nextafterf(*x, INFINITY);
}

static void changes_a_row(const struct made *m) {
    *(float *)array_row(&m->io->weight, ROWS - 1) += 1;
}

static void outside(const struct made *m) {
    const enum operation o = right->operation;
    ((char *)m->out)[o == OP_FORWARD    ? forward_lay_out(m->in, NULL, &(int32_t *){NULL})
                     : o == OP_GRADIENT ? gradient_lay_out(m->in, false, NULL, NULL)
                                        : (size_t)m->in->lookups * sizeof *m->out] = 1;
}

/* --- forwards: feature 0 is a sum; feature 1 a maximum, whose bag 20 has equal lookups */

static void last_row_missing(const struct made *m) {
    memset(m->out + forward_row(m->in->features, m->in->features[0].bags - 1), 0xff,
           DIM * sizeof(float));
}

static void between_rows(const struct made *m) {
    m->out[forward_row(m->in->features, 3) + DIM] = 1;
}

static void max_of_another(const struct made *m) {
    m->out[forward_row(m->in->features + 1, 3)] -= 0.5f;
}

static int32_t *winner(const struct made *m, int32_t feature, int64_t bag) {
    return m->how->winners + forward_row(&m->in->features[feature], bag);
}

static void other_winner(const struct made *m) {
    winner(m, 1, 3)[DIM - 1] ^= 1;
}

static void last_of_equals(const struct made *m) {
    *winner(m, 1, 20) = 1;
}

static void between_winners(const struct made *m) {
    winner(m, 1, 3)[DIM] = NO_WINNER;
}

static void winners_of_a_sum(const struct made *m) {
    *winner(m, 0, 3) = NO_WINNER;
}

/* --- gradients: padding leaves both forms fewer entries than their capacity */

static void count_too_low(const struct made *m) {
    --*m->sum.count;
}

static void other_row(const struct made *m) {
    m->sum.rows[1] ^= 32;
}

static void one_value(const struct made *m) {
    float *x = &m->sum.values[DIM - 1];
    *x += 0.01f * fabsf(*x) + 0.001f;
}

static void lost_lookup(const struct made *m) {
    memset(m->sum.values + DIM, 0, DIM * sizeof(float));
}

static void behind_rows(const struct made *m) {
    m->sum.rows[*m->sum.count] = 0;
}

static void behind_values(const struct made *m) {
    m->sum.values[*m->sum.count * DIM] = 0;
}

/* Behind the last entry that this form can have; behind all that it was given. */
static void after_last(const struct made *m) {
    const size_t most = gradient_lay_out(m->in, m->merged, NULL, NULL),
                 all = gradient_lay_out(m->in, false, NULL, NULL);
    ((char *)m->out)[m->merged ? most : all - 1] = 0;
}

/* --- gradients of weights: a mean with padding */

static void no_mean(const struct made *m) {
    for (int64_t i = 0; i < m->in->lookups; i++) m->out[i] *= 2;
}

static void times_weight(const struct made *m) {
    for (int64_t i = 0; i < m->in->lookups; i++) m->out[i] *= m->in->lookup_weights[i];
}

/* --- all of them */

static const struct wrong {
    enum operation operation;
    const char *name;
    void (*spoil)(const struct made *m); /* NULL: the kernel does not run at all */
    const char *says;
} wrongs[] = {
    {OP_FORWARD, "no output", NULL, "expected"},
    {OP_FORWARD, "one bit", one_bit, "expected"},
    {OP_FORWARD, "last row is missing", last_row_missing, "expected"},
    {OP_FORWARD, "write between rows", between_rows, "belongs to no output row"},
    {OP_FORWARD, "write outside", outside, "outside"},
    {OP_FORWARD, "changed row", changes_a_row, "row 39"},
    {OP_FORWARD, "another maximum", max_of_another, "feature 1 output row 3 (3 lookups) [0]"},
    {OP_FORWARD, "another winner", other_winner, "feature 1 output row 3 (3 lookups) [11]"},
    {OP_FORWARD, "last of equals wins", last_of_equals, "got winner 1, expected 0"},
    {OP_FORWARD, "write between winners", between_winners, "belongs to no output row"},
    {OP_FORWARD, "winners of a sum", winners_of_a_sum, "belongs to no output row"},
    {OP_GRADIENT, "no output", NULL, "entries, expected"},
    {OP_GRADIENT, "count too low", count_too_low, "entries, expected"},
    {OP_GRADIENT, "another row", other_row, "expected row"},
    {OP_GRADIENT, "one value", one_value, "allowed"},
    {OP_GRADIENT, "lost lookup", lost_lookup, "allowed"},
    {OP_GRADIENT, "write behind rows", behind_rows, "belongs to no entry"},
    {OP_GRADIENT, "write behind values", behind_values, "belongs to no entry"},
    {OP_GRADIENT, "write after the last", after_last, "belongs to no entry"},
    {OP_GRADIENT, "write outside", outside, "outside"},
    {OP_GRADIENT, "changed row", changes_a_row, "row 39"},
    {OP_WEIGHT_GRAD, "no output", NULL, "gradient of the weight of lookup"},
    {OP_WEIGHT_GRAD, "one bit", one_bit, "gradient of the weight of lookup"},
    {OP_WEIGHT_GRAD, "no mean", no_mean, "gradient of the weight of lookup"},
    {OP_WEIGHT_GRAD, "times the weight", times_weight, "gradient of the weight of lookup"},
    {OP_WEIGHT_GRAD, "write outside", outside, "outside"},
    {OP_WEIGHT_GRAD, "changed row", changes_a_row, "row 39"},
};
enum { WRONGS = sizeof wrongs / sizeof *wrongs };

static const struct wrong *planted;

static int run_planted(const struct batch *in, const struct rule_step *steps,
                       const struct table *io, const struct launch *how) {
    struct made m = {in, steps, io, how, how->output, {0}, right->traits & MERGED};
    if (!planted->spoil) {
        if (right->operation == OP_GRADIENT) stage_done(how, STAGE_REDUCE);
        return 0;
    }
    right->run(in, steps, io, how);
    if (right->operation == OP_GRADIENT) gradient_lay_out(in, m.merged, how->output, &m.sum);
    planted->spoil(&m);
    return 0;
}

/* One table; for a forward two features. */
static void build(struct builder *b, enum operation operation) {
    builder_begin(b, 7, false);
    b->weighted = operation == OP_WEIGHT_GRAD;
    builder_feature(b, builder_table(b, ROWS, DIM), b->weighted ? POOL_MEAN : POOL_SUM,
                    operation == OP_FORWARD ? -1 : PADDING);
    builder_random_bags(b, operation == OP_FORWARD ? 21 : 30, 9);
    if (operation == OP_FORWARD) {
        builder_feature(b, 0, POOL_MAX, ROWS - 1);
        for (int q = 0; q < 20; q++) builder_bag(b, 3, (const int64_t[]){1 + q, 30, 2 + q});
        builder_bag(b, 2, (const int64_t[]){5, 5});
    }
    builder_finish(b);
    builder_start(b);
}

static void is_found(void **state) {
    const struct kernel_test *test = *state;
    struct builder b;
    char text[400];
    struct kernel k = *test->kernel;
    planted = test->param;
    right = test->kernel;
    k.name = "planted";
    k.run = run_planted;
    build(&b, k.operation);
    const int status = output_run(&b, &k, 1, NULL, text);
    if (status != 1 || !strstr(text, planted->says)) fail_msg("%d, %s", status, text);
    builder_free(&b);
}

/* A gradient without its stage. */
static int run_unmarked(const struct batch *in, const struct rule_step *steps,
                        const struct table *io, const struct launch *how) {
    struct launch silent = *how;
    silent.mark = NULL;
    return right->run(in, steps, io, &silent);
}

static void a_missing_stage_is_found(void **state) {
    const struct kernel_test *test = *state;
    struct builder b;
    char text[400];
    struct kernel k = *test->kernel;
    right = test->kernel;
    k.run = run_unmarked;
    build(&b, k.operation);
    assert_int_equal(output_run(&b, &k, 1, NULL, text), 1);
    assert_non_null(strstr(text, "stages"));
    builder_free(&b);
}

/* What lies behind the elements of a batch, if another one of the ring has more lookups. */
static void writes_behind_are_found(void **state) {
    (void)state;
    struct builder b;
    float out[1000];
    char text[400];
    build(&b, OP_WEIGHT_GRAD);
    assert_true(b.in.lookups < 900);
    if (output_run(&b, pass, 1, out, text)) fail_msg("%s", text);
    memset(out + b.in.lookups, 0xff, sizeof out - (size_t)b.in.lookups * sizeof *out);
    const struct check c = {.in = &b.in, .before = tables_copy_row, .before_ctx = &b.before};
    const struct output o = {.data = out, .bytes = sizeof out, .filled = 0xff};
    assert_true(output_check(OP_WEIGHT_GRAD, &c, &o).ok);
    ((unsigned char *)out)[sizeof out - 1] = 0;
    const struct check_result found = output_check(OP_WEIGHT_GRAD, &c, &o);
    assert_true(!found.ok && strstr(found.message, "belongs to no lookup"));
    builder_free(&b);
}

TESTS(wrong_outputs) {
    for (const struct registered *r = registry(); r->kernel; r++) {
        const struct kernel *k = r->kernel;
        if (k->place != ON_HOST) continue;
        if (k->operation == OP_WEIGHT_GRAD) pass = k;
        if (k->operation == OP_GRADIENT) add_test("no stage", a_missing_stage_is_found, k, NULL);
        for (int i = 0; i < WRONGS; i++) {
            /* AddressSanitizer stops the program there. */
            if (WITH_SANITIZER && strstr(wrongs[i].says, "outside")) continue;
            if (wrongs[i].operation != k->operation) continue;
            add_test(wrongs[i].name, is_found, k, &wrongs[i]);
        }
    }
    add_test("writes behind are found", writes_behind_are_found, NULL, NULL);
    return run_listed("wrong outputs");
}
