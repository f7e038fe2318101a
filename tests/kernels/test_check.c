/* SPDX-License-Identifier: MIT
 *
 * The checker, with wrong answers that it must reject and the right one that it must accept. The
 * kernel here is serial and obvious, and has any flaw that is asked for.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/oracle.h"
#include "kernels/shape.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

/* --- a kernel with one flaw */

#define EACH_FLAW(X)                                                                               \
    X(NO_FLAW, "no flaw")                                                                          \
    X(DROPS_DUPLICATE, "the last of several lookups of a row does not count")                      \
    X(FLIPS_SIGN, "w += step")                                                                     \
    X(APPLIES_TWICE, "the rule twice, to every row")                                               \
    X(STEPS_PER_DUPLICATE, "the rule for each lookup (caffe2, TensorNet)")                         \
    X(SQUARES_BEFORE_SUM, "duplicates are not merged before the square (Keras)")                   \
    X(KEEPS_STATE, "states of elements are not written")                                           \
    X(KEEPS_ROW_STATE, "states of rows are not written")                                           \
    X(SUMS_ROW_STATE, "sum of squares, not mean")                                                  \
    X(UPDATES_PADDING, "updates padding")                                                          \
    X(STEPS_IDLE_ROWS, "a dense step")                                                             \
    X(SKIPS_ROW, "the last row is not updated")                                                    \
    X(SKIPS_COLUMN, "the last column is not updated")                                              \
    X(REPEATS_COLUMNS, "all columns get the first one's gradient (IPEX)")                          \
    X(OTHER_TABLES_RULE, "rates of table 0 for all tables")                                        \
    X(WRITES_BEFORE_TABLE, "into the guard zone before a table")                                   \
    X(WRITES_AFTER_TABLE, "into the guard zone after a table")                                     \
    X(WRITES_AFTER_SCRATCH, "behind scratch")                                                      \
    X(CHANGES_IDS, "changes ids")

#define NUMBER(number, text) number,
#define NAME(number, text)   text,
enum flaw { EACH_FLAW(NUMBER) FLAWS };
static const char *const flaw_names[FLAWS] = {EACH_FLAW(NAME)};

static enum flaw flaw; /* of the runs to come: run has no argument for it */

enum { ROWS = 40, DIM = 6, TABLES = 2, PADDING = 3, SCRATCH = 100 };

static void step_row(const struct rule_step *step, const struct table_shape *shape,
                     const struct table *io, int64_t row, const float *g) {
    const struct rule_info info = rule_info(step->rule.kind);
    const struct row_memory m = row_memory(io, shape, row);
    float weight[DIM], elem[RULE_ELEM_STATES][DIM], states[RULE_ROW_STATES], sum[DIM];
    memcpy(weight, m.weight, sizeof weight);
    for (int k = 0; k < info.elem_states; k++) memcpy(elem[k], m.elem[k], sizeof elem[k]);
    for (int k = 0; k < info.row_states; k++) states[k] = m.row[k];
    for (int d = 0; d < DIM; d++) sum[d] = g[flaw == REPEATS_COLUMNS ? 0 : d];
    rule_apply(step, &m, DIM, sum);
    for (int k = 0; k < info.row_states; k++) {
        if (flaw == SUMS_ROW_STATE) m.row[k] = states[k] + DIM * (m.row[k] - states[k]);
        if (flaw == KEEPS_ROW_STATE) m.row[k] = states[k];
    }
    for (int d = 0; d < DIM; d++) {
        const bool skips = flaw == SKIPS_COLUMN && d == DIM - 1;
        if (flaw == FLIPS_SIGN) m.weight[d] = weight[d] - (m.weight[d] - weight[d]);
        if (skips) m.weight[d] = weight[d];
        for (int k = 0; k < info.elem_states; k++)
            if (skips || flaw == KEEPS_STATE) m.elem[k][d] = elem[k][d];
    }
}

/* What Keras did: the square of the sum replaced by the sum of the squares. */
static void square_before_sum(const struct rule_step *step, const struct table_shape *shape,
                              const struct table *io, int64_t row, const float *g,
                              const float *squares) {
    struct row_memory m = row_memory(io, shape, row);
    if (step->rule.kind == RULE_adagrad)
        for (int d = 0; d < DIM; d++) m.elem[0][d] += squares[d] - g[d] * g[d];
    step_row(step, shape, io, row, g);
}

/* One row whose lookups begin at `first` in the index. */
static void update_row(const struct batch *in, const struct row_index *x, int64_t run,
                       const struct rule_step *steps, const struct table *io) {
    const struct row_run *u = &x->run[run];
    float g[DIM] = {0}, squares[DIM] = {0};
    const struct rule_step *step = &steps[flaw == OTHER_TABLES_RULE ? 0 : u->table];
    int64_t end = u[1].first, count = end - u->first;
    if (flaw == SKIPS_ROW && run == x->rows - 1) return;
    for (int64_t k = u->first; k < end - (flaw == DROPS_DUPLICATE && count > 1); k++) {
        const struct feature *f = feature_at_bag(in, x->lookup[k].bag);
        const float *row = (const float *)in->grad + f->grad_offset +
                           (x->lookup[k].bag - f->first_bag) * f->grad_stride;
        for (int d = 0; d < DIM; d++) {
            g[d] += row[d];
            squares[d] += row[d] * row[d];
        }
        if (flaw == STEPS_PER_DUPLICATE)
            step_row(step, &in->tables[u->table], io + u->table, u->row, row);
    }
    if (flaw == STEPS_PER_DUPLICATE) return;
    if (flaw == SQUARES_BEFORE_SUM)
        square_before_sum(step, &in->tables[u->table], io + u->table, u->row, g, squares);
    else
        step_row(step, &in->tables[u->table], io + u->table, u->row, g);
    if (flaw == APPLIES_TWICE) step_row(step, &in->tables[u->table], io + u->table, u->row, g);
}

static bool looked_up(const struct row_index *x, int32_t table, int64_t row) {
    for (int64_t u = 0; u < x->rows; u++)
        if (x->run[u].table == table && x->run[u].row == row) return true;
    return false;
}

/* AddressSanitizer would stop the program at these, rightly. */
__attribute__((no_sanitize("address"))) static void scribble(volatile char *at) {
    *at = 1;
}

static void write_elsewhere(const struct batch *in, const struct table *io, char *scratch) {
    float *weight = io[0].weight.data;
    if (flaw == WRITES_BEFORE_TABLE) scribble((char *)weight - 1);
    if (flaw == WRITES_AFTER_TABLE) scribble((char *)(weight + ROWS * DIM));
    if (flaw == WRITES_AFTER_SCRATCH) scribble(scratch + SCRATCH);
    if (flaw == CHANGES_IDS) ((int64_t *)in->ids)[0] ^= 1;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    static const float zero[DIM];
    struct row_index x = row_index_build(in);
    for (int64_t u = 0; u < x.rows; u++) update_row(in, &x, u, steps, io);
    for (int32_t t = 0; t < TABLES; t++)
        for (int64_t row = 0; row < ROWS; row++)
            if ((flaw == STEPS_IDLE_ROWS && !looked_up(&x, t, row)) ||
                (flaw == UPDATES_PADDING && t == 0 && row == PADDING))
                step_row(&steps[t], &in->tables[t], &io[t], row,
                         flaw == UPDATES_PADDING ? in->grad : zero);
    row_index_free(&x);
    write_elsewhere(in, io, how->scratch);
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static size_t scratch_bytes(const struct batch *shape, int threads) {
    (void)shape, (void)threads;
    return SCRATCH;
}

static const struct kernel flawed = {
    .name = "flawed", .place = ON_HOST, .scratch_bytes = scratch_bytes, .run = run};

/* --- on one batch */

/* Two tables, row 3 of the first is padding (its gradient, where a kernel takes it, is bag 0's). */
static void build(struct builder *b, bool exact, enum rule_kind kind) {
    builder_begin(b, 11, exact);
    for (int t = 0; t < TABLES; t++) {
        builder_feature(b, builder_table(b, ROWS, DIM), POOL_SUM, t ? -1 : PADDING);
        builder_bag(b, 4, (const int64_t[]){5, 8, PADDING, 5});
        builder_bag(b, 3, (const int64_t[]){8, 30, 39});
        builder_bag(b, 1, (const int64_t[]){8});
    }
    builder_finish(b);
    for (int t = 0; t < TABLES; t++) builder_rule(b, t, kind);
}

/* Is the flaw one, under this rule? */
static bool matters(enum flaw what, enum rule_kind kind) {
    struct rule_info info = rule_info(kind);
    switch (what) {
    case NO_FLAW: return false;
    case SQUARES_BEFORE_SUM: return kind == RULE_adagrad;
    case KEEPS_STATE: return info.elem_states > 0;
    case KEEPS_ROW_STATE:
    case SUMS_ROW_STATE: return info.row_states > 0;
    case STEPS_IDLE_ROWS: return builder_moves(rule_default(kind), 0.25f);
    default: return true;
    }
}

static void expect(enum flaw what, unsigned traits, bool exact, enum rule_kind kind, bool wrong) {
    struct kernel k = flawed;
    struct builder b;
    k.traits = traits;
    build(&b, exact, kind);
    assert_true(b.sums_exact == exact);
    flaw = what;
    const bool rejected = builder_check(&b, &k, 1) != NULL;
    flaw = NO_FLAW;
    if (rejected != wrong)
        fail_msg("%s gradients, %s: %s (%s)", exact ? "exact" : "real", rule_info(kind).name,
                 rejected ? "rejected" : "accepted", b.message);
    builder_free(&b);
}

/* Where all rows are stepped, the lazy answer is wrong and the dense one right. A step for each lookup
 * is right where the kernel says that it takes one; all else is as wrong as before. */
static void judged(void **state) {
    enum flaw what = (enum flaw)(intptr_t)((const struct kernel_test *)*state)->param;
    for (int exact = 0; exact < 2; exact++) {
        for (int r = 0; r < RULE_COUNT; r++) {
            const enum rule_kind kind = (enum rule_kind)r;
            const bool moves = matters(STEPS_IDLE_ROWS, kind);
            if (what == STEPS_PER_DUPLICATE && kind == RULE_sgd)
                continue; /* linear: only rounding */
            expect(what, 0, exact, kind, matters(what, kind));
            if (what == NO_FLAW) expect(what, DENSE_STEP, exact, kind, moves);
            if (what == STEPS_IDLE_ROWS) expect(what, DENSE_STEP, exact, kind, false);
        }
        expect(what, STEP_PER_LOOKUP, exact, RULE_sgd,
               what != STEPS_PER_DUPLICATE && matters(what, RULE_sgd));
    }
}

/* --- edits of the right answer, by every rule. (One bit of any element: test_check_rows.c.) */

#define EACH_EDIT(X)                                                                               \
    X(NAN_IN_TOUCHED, "a NaN in a touched row")                                                    \
    X(FEW_BOUNDS, "a touched weight off by 3 bounds")                                              \
    X(INFINITE, "an infinity")                                                                     \
    X(BIT_OF_PADDING, "one bit of a padding row")                                                  \
    X(SIGN_OF_ZERO, "an untouched weight 0 becomes -0")

enum edit { EACH_EDIT(NUMBER) EDITS };
static const char *const edit_names[EDITS] = {EACH_EDIT(NAME)};

enum { HIT = 8, IDLE = 17, COLUMN = DIM - 1, TABLE = 1 };

/* Three times what the oracle allows at (TABLE, HIT, COLUMN). */
static float beyond_bound(const struct builder *b) {
    struct num g[DIM], w[DIM], s[RULE_ELEM_STATES][DIM];
    struct num states[RULE_ROW_STATES];
    struct oracle_row row = {.weight = w, .row = states};
    const struct row_run *u = b->index.run;
    while (u->table != TABLE || u->row != HIT) u++;
    struct row_memory m = row_memory(&b->before.tables[TABLE], &b->in.tables[TABLE], HIT);
    for (int d = 0; d < DIM; d++) w[d] = (struct num){m.weight[d], 0};
    for (int k = 0; k < RULE_ELEM_STATES; k++) {
        row.elem[k] = s[k];
        for (int d = 0; d < DIM && m.elem[k]; d++) s[k][d] = (struct num){m.elem[k][d], 0};
    }
    for (int k = 0; k < rule_row_states(b->rules[TABLE].kind); k++)
        row.row[k] = (struct num){m.row[k], 0};
    int64_t count = u[1].first - u->first;
    oracle_sum(&b->in, &b->index.lookup[u->first], count, b->sums_exact, DIM, g);
    oracle_update(&b->rules[TABLE], b->step, DIM, g, &row);
    /* Ordinary data: the bound must be far below the step, or wrong steps would hide in it. */
    double moved = 0;
    for (int d = 0; d < DIM; d++) moved = fmax(moved, fabs(w[d].value - m.weight[d]));
    for (int d = 0; d < DIM; d++) assert_true(w[d].error > 0 && w[d].error < 1e-3 * moved);
    return (float)(w[COLUMN].value + 3 * w[COLUMN].error);
}

static void apply(enum edit what, struct builder *b) {
    const struct table_shape *shape = &b->in.tables[TABLE];
    float *hit = row_memory(&b->tables.tables[TABLE], shape, HIT).weight,
          *idle = row_memory(&b->tables.tables[TABLE], shape, IDLE).weight;
    switch (what) {
    case NAN_IN_TOUCHED: hit[COLUMN] = NAN; break;
    case FEW_BOUNDS: hit[COLUMN] = beyond_bound(b); break;
    case INFINITE: hit[COLUMN] = INFINITY; break;
    case BIT_OF_PADDING:
        ((unsigned char *)b->tables.tables[0].weight.data)[PADDING * DIM * sizeof(float)] ^= 1;
        break;
    case SIGN_OF_ZERO:
        row_memory(&b->before.tables[TABLE], shape, IDLE).weight[2] = 0.0f;
        idle[2] = -0.0f;
        break;
    case EDITS: break;
    }
}

static void edited(void **state) {
    enum edit what = (enum edit)(intptr_t)((const struct kernel_test *)*state)->param;
    for (int exact = 0; exact < 2; exact++)
        for (int kind = 0; kind < RULE_COUNT; kind++) {
            struct builder b;
            build(&b, exact, (enum rule_kind)kind);
            assert_null(builder_check(&b, &flawed, 1));
            apply(what, &b);
            if (!builder_judge(&b, &flawed))
                fail_msg("%s gradients, %s: accepted", exact ? "exact" : "real",
                         rule_info((enum rule_kind)kind).name);
            builder_free(&b);
        }
}

/* A gradient that is a NaN makes a NaN of the right answer too; even that does not pass. */
static void nan_gradient(void **state) {
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct builder b;
        build(&b, exact, RULE_sgd);
        builder_grad(&b, TABLE, 1)[0] = NAN;
        assert_non_null(builder_check(&b, &flawed, 1));
        builder_free(&b);
    }
}

TESTS(check) {
    for (intptr_t i = 0; i < FLAWS; i++) add_test(flaw_names[i], judged, NULL, (const void *)i);
    for (intptr_t i = 0; i < EDITS; i++) add_test(edit_names[i], edited, NULL, (const void *)i);
    add_test("a NaN gradient", nan_gradient, NULL, NULL);
    return run_listed("check");
}
