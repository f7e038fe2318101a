/* SPDX-License-Identifier: MIT
 *
 * The oracle against numbers worked by hand: the sum under every pooling, the update of every rule
 * and of the hyper-parameters that all share, idle rows in a dense step, and the error bound, which must hold for every correct evaluation in
 * floats and still be tight.
 */
#include <math.h>
#include <string.h>

#include "harness/check/oracle.h"
#include "harness/workload/row_index.h"
#include "harness/workload/workload.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

/* --- the sum of one row's gradients: one table of one column, row 3, padding row 0 */

struct sum_case {
    const char *name;
    enum pooling pooling;
    bool weighted;
    double sum; /* of row 3 */
};

/* Bag 0 is 3 0 3, bag 1 is empty, bag 2 is 3 5 0 3 3 3; padding is 0.
 * Pooled gradients are 8 for bag 0 and 20 for bag 2; sequences have 1, 2, 4, 8, ... for lookups
 * 0, 1, 2, ...; per-sample weights are 0.5, 7, 2, 1, 7, 7, -1, 0, 4 in order of the lookups.
 *     sum             8*2 + 20*4 = 96
 *     mean            8*2/2 + 20*4/5 = 24: padding counts in neither bag
 *     none            lookups 0, 2, 3, 6, 7, 8: 1 + 4 + 8 + 64 + 128 + 256 = 461
 *     weighted sum    8*(0.5 + 2) + 20*(1 - 1 + 0 + 4) = 100
 *     weighted mean   8/2*2.5 + 20/5*4 = 26: divided by the count, not by the weights
 *     weighted none   0.5*1 + 2*4 + 1*8 - 1*64 + 0*128 + 4*256 = 976.5 */
static const struct sum_case sums[] = {
    {"sum", POOL_SUM, false, 96},           {"mean", POOL_MEAN, false, 24},
    {"none", POOL_NONE, false, 461},        {"weighted sum", POOL_SUM, true, 100},
    {"weighted mean", POOL_MEAN, true, 26}, {"weighted none", POOL_NONE, true, 976.5},
};

/* Gradient rows have a second column, which is three times the first. */
static void sum_by_hand(void **state) {
    enum { DIM = 2, LOOKUPS = 9 };
    static const int64_t ids[] = {3, 0, 3, 3, 5, 0, 3, 3, 3}, offsets[] = {0, 3, 3, 9};
    static const float weights[] = {0.5f, 7, 2, 1, 7, 7, -1, 0, 4}, pooled[LOOKUPS] = {8, NAN, 20};
    const struct sum_case *c = *state;
    float grad[DIM * LOOKUPS];
    struct table_shape table = {.rows = 6, .dim = DIM};
    /* Padding is 0. */
    struct feature feature = {.pooling = c->pooling, .bags = 3, .grad_stride = DIM};
    struct batch in = {.num_tables = 1,
                       .num_features = 1,
                       .id_type = ID_INT64,
                       .ids = ids,
                       .offsets = offsets,
                       .grad = grad,
                       .lookup_weights = c->weighted ? weights : NULL};
    for (int i = 0; i < DIM * LOOKUPS; i++) {
        const int row = i / DIM;
        grad[i] = (float)(1 + 2 * (i % DIM)) *
                  (c->pooling == POOL_NONE ? (float)(1 << row) : pooled[row]);
    }
    batch_derive(&in, &table, &feature);
    struct row_index index = row_index_build(&in);
    assert_int_equal(index.rows, 2);
    assert_int_equal(index.run[0].row, 3);
    int64_t count = index.run[1].first;
    assert_int_equal(count, 6);
    struct num exact[DIM], real[DIM];
    oracle_sum(&in, index.lookup, count, true, DIM, exact);
    oracle_sum(&in, index.lookup, count, false, DIM, real);
    /* (count + 3) roundings, each of at most 2^-24 of the sum of magnitudes */
    const double magnitudes = c->pooling == POOL_NONE && c->weighted   ? 1104.5
                              : c->pooling == POOL_MEAN && c->weighted ? 10 + 24
                              : c->weighted                            ? 20 + 120
                                                                       : c->sum;
    for (int d = 0; d < DIM; d++) {
        const double times = 1 + 2 * d, unit = 9 * 0x1p-24 * magnitudes * times;
        assert_true(exact[d].value == c->sum * times && real[d].value == c->sum * times);
        assert_true(exact[d].error == 0);
        assert_true(real[d].error >= unit && real[d].error < 9.1 / 9 * unit);
    }
    row_index_free(&index);
}

/* Gradients g and -g: their sum is 0 in any order, but a step for each rounds the weight in between. */
static void sum_that_cancels(void **state) {
    (void)state;
    struct table_shape table = {.rows = 1, .dim = 1};
    struct feature feature = {.pooling = POOL_NONE, .bags = 1, .padding_id = -1, .grad_stride = 1};
    const int64_t ids[] = {0, 0}, offsets[] = {0, 2};
    const float grad[] = {64, -64};
    struct batch in = {.num_tables = 1,
                       .num_features = 1,
                       .id_type = ID_INT64,
                       .ids = ids,
                       .offsets = offsets,
                       .grad = grad};
    batch_derive(&in, &table, &feature);
    struct row_index index = row_index_build(&in);
    struct rule rule = rule_default(RULE_sgd);
    rule.param[RULE_LR] = 1;
    struct num g, w = {0x1p-20, 0};
    struct oracle_row row = {.weight = &w};
    oracle_sum(&in, index.lookup, 2, false, 1, &g);
    oracle_update_per_lookup(&rule, 2, 1, &g, &row);
    const float between = 0x1p-20f - 64, after = between + 64;
    assert_true(w.value == 0x1p-20 && w.error >= fabs(after - w.value) && after != 0x1p-20f);
    oracle_cancel(&in, index.lookup, 2, 1, &g);
    assert_true(g.value == 0 && g.error == 0);
    row_index_free(&index);
}

/* --- one element, one step. All numbers are exact in binary, so the comparison is exact. */

/* ROW_1 stands for a second state of the row. */
enum { ROW_1 = RULE_ELEM_STATES };
struct values {
    double w, s[RULE_ELEM_STATES + 1], row;
};

struct update_case {
    const char *name;
    struct rule rule;
    int64_t t;
    double g;
    struct values before, after;
};

static const struct update_case updates[] = {
#include "rule_steps.h" /* generated: #include "tests/rules/sgd.inc" ... */
};
enum { UPDATES = sizeof updates / sizeof *updates };

/* The oracle gives these numbers exactly, the rule's own code within the oracle's bound. */
static void update_by_hand(void **state) {
    const struct update_case *c = *state;
    struct num g = {c->g, 0}, w = {c->before.w, 0}, s[RULE_ELEM_STATES];
    struct num states[RULE_ROW_STATES] = {{c->before.row, 0}, {c->before.s[ROW_1], 0}};
    struct oracle_row row = {.weight = &w, .row = states};
    float fg = (float)c->g, floats[TABLE_ARRAYS][RULE_ROW_STATES];
    struct row_memory own;
    for (int k = 0; k < RULE_ELEM_STATES; k++) {
        s[k] = (struct num){c->before.s[k], 0};
        row.elem[k] = &s[k];
    }
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        own.array[a] = floats[a];
        for (int64_t k = 0; k < rule_array_width(c->rule.kind, 1, a); k++)
            floats[a][k] = (float)row.array[a][k].value;
    }
    oracle_update(&c->rule, c->t, 1, &g, &row);
    assert_true(w.value == c->after.w);
    for (int k = 0; k < RULE_ELEM_STATES; k++) assert_true(s[k].value == c->after.s[k]);
    assert_true(states[0].value == c->after.row && states[1].value == c->after.s[ROW_1]);
    assert_true((w.error > 0 || w.value == 0) && w.error < 1e-6);
    const struct rule_step step = rule_step(c->rule, c->t);
    rule_apply(&step, &own, 1, &fg);
    for (int a = 0; a < TABLE_ARRAYS; a++)
        for (int64_t k = 0; k < rule_array_width(c->rule.kind, 1, a); k++)
            assert_true(fabs(floats[a][k] - row.array[a][k].value) <= row.array[a][k].error);
}

static void no_rule_is_left_out(void **state) {
    (void)state;
    for (int kind = 0; kind < RULE_COUNT; kind++) {
        int worked = 0;
        for (int i = 0; i < UPDATES; i++) worked += updates[i].rule.kind == (enum rule_kind)kind;
        if (!worked) fail_msg("%s is worked nowhere", rule_info((enum rule_kind)kind).name);
    }
}

/* --- the hyper-parameters that all rules share (kernels/adjust.h): a step of SGD on two elements, lr 1/2. Every kernel
 * meets them on drawn shapes. */

struct shared_case {
    const char *name;
    float shared[RULE_SHARED];
    double w[2], g[2], after[2];
};

static const struct shared_case shared_cases[] = {
    /* g = 0.25*6, 0.25*-8 */
    {"scaled", {[GRAD_SCALE] = 0.25f}, {1, 2}, {6, -8}, {0.25, 3}},
    {"maximized", {[MAXIMIZE] = 1}, {1, 2}, {6, -8}, {4, -2}},
    /* g = 4, -4: the sign stays */
    {"value clipped", {[CLIP_VALUE] = 4}, {1, 2}, {6, -8}, {-1, 4}},
    /* |g| = 10, g = 5/10*g */
    {"norm clipped", {[CLIP_NORM] = 5}, {1, 2}, {6, -8}, {-0.5, 4}},
    {"no norm to clip", {[CLIP_NORM] = 5}, {1, 2}, {0, 0}, {1, 2}},
    /* g = 6 + 0.5*1, -8 + 0.5*2 */
    {"L2", {[WEIGHT_DECAY] = 0.5f}, {1, 2}, {6, -8}, {-2.25, 5.5}},
    /* w = (1 - 0.5*0.5)*w first: 0.75 - 3, 1.5 + 4 */
    {"decoupled decay",
     {[WEIGHT_DECAY] = 0.5f, [DECOUPLED_WEIGHT_DECAY] = 1},
     {1, 2},
     {6, -8},
     {-2.25, 5.5}},
    /* g = -3, 4 scaled and negated; values -3, 3.5; the norm sqrt(21.25) is below the clip; decay
     * after the clips: g = -3 + 4*1, 3.5 + 4*2; a clip after the decay would give other numbers */
    {"all, in their order",
     {[GRAD_SCALE] = 0.5f,
      [MAXIMIZE] = 1,
      [CLIP_VALUE] = 3.5f,
      [CLIP_NORM] = 5,
      [WEIGHT_DECAY] = 4},
     {1, 2},
     {6, -8},
     {0.5, -3.75}},
    /* g = 5/10*g = 3, -4, and then 3 + 2*1, -4 + 2*2 */
    {"norm before decay", {[CLIP_NORM] = 5, [WEIGHT_DECAY] = 2}, {1, 2}, {6, -8}, {-1.5, 2}},
    /* values 4, -3 before the norm of 5, g = 2.5/5*g */
    {"value before norm", {[CLIP_VALUE] = 4, [CLIP_NORM] = 2.5f}, {1, 2}, {9, -3}, {0, 2.75}},
};

static void shared_by_hand(void **state) {
    const struct shared_case *c = *state;
    struct rule rule = {RULE_sgd, {0.5f}, {0}};
    memcpy(rule.shared, c->shared, sizeof rule.shared);
    struct num g[2] = {{c->g[0], 0}, {c->g[1], 0}}, w[2] = {{c->w[0], 0}, {c->w[1], 0}};
    struct oracle_row row = {.weight = w};
    oracle_update(&rule, 1, 2, g, &row);
    float fg[2] = {(float)c->g[0], (float)c->g[1]}, fw[2] = {(float)c->w[0], (float)c->w[1]};
    const struct rule_step step = rule_step(rule, 1);
    rule_apply(&step, &(struct row_memory){.weight = fw}, 2, fg);
    for (int d = 0; d < 2; d++) {
        assert_true(w[d].value == c->after[d]);
        assert_true(w[d].error > 0 && w[d].error < 1e-5);
        assert_true(fw[d] == (float)c->after[d]);
    }
}

/* A dense step skips idle rows where the oracle changes none, weight decay included. */
static void idle_rows(void **state) {
    (void)state;
    for (int kind = 0; kind < RULE_COUNT; kind++)
        for (int table = 0; table < 3; table++) {
            const enum rule_kind k = (enum rule_kind)kind;
            struct rule rule = rule_default(k);
            rule.shared[WEIGHT_DECAY] = table ? 0.125f : 0;
            rule.shared[DECOUPLED_WEIGHT_DECAY] = table == 2;
            if (rule_idle_is_identity(k)) assert_int_equal(oracle_keeps_idle(&rule), table == 0);
            if (rule_keeps_idle(&rule)) assert_true(oracle_keeps_idle(&rule));
        }
}

/* --- the bound */

enum { DIM = 8 };

/* A row with ordinary values, in floats and for the oracle. */
struct ordinary {
    float w[DIM], s[RULE_ELEM_STATES][DIM], row[RULE_ROW_STATES], g[DIM];
    struct num ow[DIM], os[RULE_ELEM_STATES][DIM], orow[RULE_ROW_STATES], og[DIM];
    struct oracle_row oracle;
};

static double number(uint64_t key, int what, int d) {
    return rng_unit(rng_key(key, (uint64_t)what), (uint64_t)d);
}

static float state_number(const struct rule_state *s, uint64_t key, int what, int d) {
    return (float)(s->low + (s->high - s->low) * number(key, what, d));
}

static void make_ordinary(enum rule_kind kind, uint64_t key, double grad_error,
                          struct ordinary *x) {
    const struct rule_info info = rule_info(kind);
    x->oracle = (struct oracle_row){.weight = x->ow, .row = x->orow};
    for (int d = 0; d < DIM; d++) {
        double g = 2 * number(key, 0, d) - 1;
        x->w[d] = (float)(number(key, 1, d) - 0.5);
        x->og[d] = (struct num){g, grad_error * fabs(g) + 0x1p-24 * fabs(g)};
        x->g[d] = (float)(g + grad_error * fabs(g) * (number(key, 2, d) < 0.5 ? -1 : 1));
        x->ow[d] = (struct num){x->w[d], 0};
    }
    for (int k = 0; k < info.elem_states; k++) {
        x->oracle.elem[k] = x->os[k];
        for (int d = 0; d < DIM; d++) {
            x->s[k][d] = state_number(&info.elem[k], key, 10 + k, d);
            x->os[k][d] = (struct num){x->s[k][d], 0};
        }
    }
    for (int k = 0; k < info.row_states; k++) {
        x->row[k] = state_number(&info.row[k], key, 20, k);
        x->oracle.row[k] = (struct num){x->row[k], 0};
    }
}

static void step_in_floats(const struct rule_step *step, struct ordinary *x) {
    struct row_memory m = {.weight = x->w, .row = x->row};
    for (int k = 0; k < RULE_ELEM_STATES; k++) m.elem[k] = x->s[k];
    rule_apply(step, &m, DIM, x->g);
}

/* The combination of flags that the bits of n say. */
static void set_flags(struct rule *rule, uint64_t n) {
    const struct rule_info info = rule_info(rule->kind);
    for (int k = 0; k < info.num_params; k++)
        if (info.params[k].flag) rule->param[k] = (float)(n & 1), n >>= 1;
}

static void compare(struct num want, float got, double *worst) {
    double off = fabs(got - want.value);
    assert_true(off <= want.error);
    if (off > 0 && off / want.error > *worst) *worst = off / want.error;
}

struct bound_case {
    const char *test;
    enum rule_kind kind;
};

#define BOUND_CASE(rule, ...) {"bound of " #rule, RULE_##rule},
static const struct bound_case bound_cases[] = {RULES(BOUND_CASE)};

/* Thousands of ordinary rows: a correct evaluation in floats is always inside the bound, even if
 * the sum has its largest allowed error, and comes close to the bound, which is therefore tight.
 * The bound is also far smaller than the step, so that it hides no wrong step. */
static void bound_holds_and_is_tight(void **state) {
    const enum rule_kind kind = ((const struct bound_case *)*state)->kind;
    for (int off = 0; off < 2; off++) {
        double worst = 0, ratio = 0, grad_error = off ? 0x1p-20 : 0;
        for (uint64_t n = 0; n < 4000; n++) {
            struct ordinary x;
            make_ordinary(kind, rng_key(kind, n), grad_error, &x);
            struct rule rule = rule_default(kind);
            set_flags(&rule, n / 20);
            struct rule_step step = rule_step(rule, 1 + (int64_t)n % 20);
            double before[DIM];
            for (int d = 0; d < DIM; d++) before[d] = x.w[d];
            oracle_update(&rule, 1 + (int64_t)n % 20, DIM, x.og, &x.oracle);
            step_in_floats(&step, &x);
            for (int d = 0; d < DIM; d++) {
                compare(x.ow[d], x.w[d], &worst);
                for (int k = 0; k < rule_elem_states(kind); k++)
                    compare(x.os[k][d], x.s[k][d], &worst);
                double moved = fabs(x.ow[d].value - before[d]);
                if (moved > 0.1 * rule.param[RULE_LR] && x.ow[d].error / moved > ratio)
                    ratio = x.ow[d].error / moved;
            }
            for (int k = 0; k < rule_row_states(kind); k++)
                compare(x.oracle.row[k], x.row[k], &worst);
        }
        assert_true(worst > 0.25 && worst <= 1);
        assert_true(ratio > 0 && ratio < 1e-3);
    }
}

/* A narrow type keeps its largest value, and fp8 saturates; what may round to infinity has no bound. */
static void the_largest_of_a_type(void **state) {
    static const struct {
        enum dtype type;
        enum rounding rounding;
        double value, error;
        float stored; /* 0: there is no bound */
    } cases[] = {
        {FP16, ROUND_NEAREST, 65504, 0, 65504}, {FP16, ROUND_NEAREST, 65519, 0.5, 65504},
        {FP16, ROUND_NEAREST, 65519, 1, 0},     {FP16, ROUND_STOCHASTIC, 65504, 0, 65504},
        {FP16, ROUND_STOCHASTIC, 65504, 1, 0},  {FP8, ROUND_NEAREST, 448, 0, 448},
        {FP8, ROUND_STOCHASTIC, -1e9, 1, -448}, {BF16, ROUND_NEAREST, 0x1.fep127, 0, 0x1.fep127f},
        {BF16, ROUND_NEAREST, 0x1.ffp127, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct num w = {cases[i].value, cases[i].error};
        const struct table_shape t = {
            .rows = 1, .dim = 1, .weight_type = cases[i].type, .rounding = cases[i].rounding};
        oracle_store(&t, &(struct oracle_row){.weight = &w});
        assert_int_equal(isnan(w.error), cases[i].stored == 0);
        if (cases[i].stored != 0) assert_true(fabs(cases[i].stored - w.value) <= w.error);
        if (cases[i].stored != 0) assert_true(w.error < fabs(cases[i].stored) / 7 + cases[i].error);
    }
}

TESTS(oracle) {
    ADD_CASES(sums, sum_by_hand);
    ADD_TEST(sum_that_cancels);
    ADD_CASES(updates, update_by_hand);
    ADD_TEST(no_rule_is_left_out);
    ADD_CASES(shared_cases, shared_by_hand);
    ADD_TEST(idle_rows);
    ADD_TEST(the_largest_of_a_type);
    ADD_CASES(bound_cases, bound_holds_and_is_tight);
    return run_listed("oracle");
}
