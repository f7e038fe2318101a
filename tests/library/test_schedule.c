/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules by hand, what is malformed, and rates of tables. tests/library/test_schedule.py
 * compares them with PyTorch's.
 */
#include <math.h>
#include <string.h>

#include "include/embfuse.h"

#include "tests/support/cmocka_cases.h"

enum { SIZE = sizeof(struct embfuse_schedule) };

static const int64_t milestones[] = {2, 5, 5}, ends[] = {4, 6};
static const struct embfuse_schedule parts[] = {
    {.size = SIZE, .kind = EMBFUSE_SCHEDULE_LINEAR, .from = 0.25, .to = 1, .steps = 3},
    {.size = SIZE, .kind = EMBFUSE_SCHEDULE_CONSTANT, .from = 1},
    {.size = SIZE, .kind = EMBFUSE_SCHEDULE_POLYNOMIAL, .power = 2, .steps = 2},
};

/* The rates of steps 0 .. 8 with a base of 8; all are exact. */
static const struct by_hand {
    const char *name;
    struct embfuse_schedule schedule;
    double rates[9];
} by_hand[] = {
    {"step",
     {.kind = EMBFUSE_SCHEDULE_STEP, .steps = 3, .gamma = 0.5},
     {8, 8, 8, 4, 4, 4, 2, 2, 2}},
    {"milestones",
     {.kind = EMBFUSE_SCHEDULE_MULTISTEP,
      .num_milestones = 3,
      .milestones = milestones,
      .gamma = 0.5},
     {8, 8, 4, 4, 4, 1, 1, 1, 1}},
    {"no milestones",
     {.kind = EMBFUSE_SCHEDULE_MULTISTEP, .gamma = 0.5},
     {8, 8, 8, 8, 8, 8, 8, 8, 8}},
    {"exponential",
     {.kind = EMBFUSE_SCHEDULE_EXPONENTIAL, .gamma = 0.5},
     {8, 4, 2, 1, 0.5, 0.25, 0.125, 0.0625, 0.03125}},
    {"gamma of 0", {.kind = EMBFUSE_SCHEDULE_EXPONENTIAL, .gamma = 0}, {8, 0, 0, 0, 0, 0, 0, 0, 0}},
    {"constant",
     {.kind = EMBFUSE_SCHEDULE_CONSTANT, .from = 0.25, .steps = 2},
     {2, 2, 8, 8, 8, 8, 8, 8, 8}},
    {"constant from 0",
     {.kind = EMBFUSE_SCHEDULE_CONSTANT, .from = 0, .steps = 2},
     {0, 0, 8, 8, 8, 8, 8, 8, 8}},
    {"linear",
     {.kind = EMBFUSE_SCHEDULE_LINEAR, .from = 0, .to = 1, .steps = 4},
     {0, 2, 4, 6, 8, 8, 8, 8, 8}},
    {"linear, falling",
     {.kind = EMBFUSE_SCHEDULE_LINEAR, .from = 2, .to = 0, .steps = 8},
     {16, 14, 12, 10, 8, 6, 4, 2, 0}},
    {"linear in no steps",
     {.kind = EMBFUSE_SCHEDULE_LINEAR, .from = 2, .to = 0.5},
     {4, 4, 4, 4, 4, 4, 4, 4, 4}},
    {"polynomial",
     {.kind = EMBFUSE_SCHEDULE_POLYNOMIAL, .power = 2, .steps = 4},
     {8, 4.5, 2, 0.5, 0, 0, 0, 0, 0}},
    {"power of 0",
     {.kind = EMBFUSE_SCHEDULE_POLYNOMIAL, .power = 0, .steps = 4},
     {8, 8, 8, 8, 8, 8, 8, 8, 8}},
    {"cosine of one step",
     {.kind = EMBFUSE_SCHEDULE_COSINE, .least = 2, .steps = 1},
     {8, 2, 8, 2, 8, 2, 8, 2, 8}},
    {"sequence",
     {.kind = EMBFUSE_SCHEDULE_SEQUENCE, .num_milestones = 2, .milestones = ends, .parts = parts},
     {2, 4, 6, 8, 8, 8, 8, 2, 0}},
    {"sequence of one",
     {.kind = EMBFUSE_SCHEDULE_SEQUENCE, .parts = parts},
     {2, 4, 6, 8, 8, 8, 8, 8, 8}},
};

static void rates_by_hand(void **state) {
    const struct by_hand *c = *state;
    struct embfuse_schedule s = c->schedule;
    s.size = SIZE;
    for (int64_t t = 0; t < 9; t++) {
        const double rate = embfuse_schedule_rate(&s, 8, t);
        if (rate != c->rates[t]) fail_msg("step %d: %.17g, not %.17g", (int)t, rate, c->rates[t]);
    }
    assert_true(isnan(embfuse_schedule_rate(&s, 8, -1)));
    assert_true(isfinite(embfuse_schedule_rate(&s, 8, INT64_MAX)));
}

/* A cosine repeats itself exactly, however far it goes. */
static void cosine_repeats(void **state) {
    (void)state;
    const struct embfuse_schedule s = {
        .size = SIZE, .kind = EMBFUSE_SCHEDULE_COSINE, .steps = 7, .least = 0.01};
    for (int64_t t = 0; t < 14; t++) {
        const double rate = embfuse_schedule_rate(&s, 1, t);
        assert_true(embfuse_schedule_rate(&s, 1, t + 14 * INT64_C(1000000007)) == rate);
        assert_float_equal(embfuse_schedule_rate(&s, 1, (14 - t) % 14), rate, 1e-15);
        assert_true(t == 0 || t > 7 || rate < embfuse_schedule_rate(&s, 1, t - 1));
    }
    assert_true(embfuse_schedule_rate(&s, 1, 7) == 0.01);
}

/* --- what is malformed */

static const int64_t falling[] = {5, 2}, early[] = {-1}, at_once[] = {0};
static const struct embfuse_schedule nested[] = {{.size = SIZE, .kind = EMBFUSE_SCHEDULE_SEQUENCE}};
static const struct embfuse_schedule no_size[] = {{.kind = EMBFUSE_SCHEDULE_CONSTANT}};

static const struct malformed {
    const char *says;
    struct embfuse_schedule schedule;
} malformed[] = {
    {"kind is no", {.size = SIZE}},
    {"kind is no", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_SEQUENCE + 1}},
    {"size is not", {.size = SIZE - 8, .kind = EMBFUSE_SCHEDULE_CONSTANT}},
    {"steps is at least 1", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_STEP}},
    {"steps is at least 1", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_POLYNOMIAL}},
    {"steps is 1 to", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_COSINE}},
    {"steps is 1 to 2^62", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_COSINE, .steps = INT64_MAX}},
    {"steps is at least 0", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_CONSTANT, .steps = -1}},
    {"steps is at least 0", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_LINEAR, .steps = -1}},
    {"gamma", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_EXPONENTIAL, .gamma = -1}},
    {"gamma", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_STEP, .steps = 1, .gamma = (double)INFINITY}},
    {"from", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_CONSTANT, .from = (double)NAN}},
    {"to", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_LINEAR, .to = (double)NAN}},
    {"power", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_POLYNOMIAL, .steps = 1, .power = -1}},
    {"least", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_COSINE, .steps = 1, .least = (double)NAN}},
    {"num_milestones", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_MULTISTEP, .num_milestones = 1}},
    {"num_milestones", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_MULTISTEP, .num_milestones = -1}},
    {"rising",
     {.size = SIZE,
      .kind = EMBFUSE_SCHEDULE_MULTISTEP,
      .num_milestones = 2,
      .milestones = falling}},
    {"rising",
     {.size = SIZE, .kind = EMBFUSE_SCHEDULE_MULTISTEP, .num_milestones = 1, .milestones = early}},
    {"rising",
     {.size = SIZE,
      .kind = EMBFUSE_SCHEDULE_SEQUENCE,
      .num_milestones = 1,
      .milestones = at_once,
      .parts = parts}},
    {"parts is NULL", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_SEQUENCE}},
    {"a part is a sequence", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_SEQUENCE, .parts = nested}},
    {"size is not", {.size = SIZE, .kind = EMBFUSE_SCHEDULE_SEQUENCE, .parts = no_size}},
};

/* --- rates of tables */

enum { TABLES = 2 };

static struct embfuse_model *model_open(void) {
    static const struct embfuse_table tables[TABLES] = {{.rows = 2, .dim = 1, .rule = "sgd"},
                                                        {.rows = 2, .dim = 1, .rule = "adagrad"}};
    static const struct embfuse_feature features[TABLES] = {{.table = 0, .padding_id = -1},
                                                            {.table = 1, .padding_id = -1}};
    struct embfuse_model *m;
    struct embfuse_error why;
    if (embfuse_model_create(&m, tables, TABLES, features, TABLES, NULL, &why))
        fail_msg("%s", why.text);
    return m;
}

static void expect_rates(const struct embfuse_model *m, double first, double second) {
    double rate[TABLES];
    for (int t = 0; t < TABLES; t++)
        assert_int_equal(embfuse_get(m, t, "lr", &rate[t], NULL), EMBFUSE_OK);
    assert_float_equal(rate[0], first, 0);
    assert_float_equal(rate[1], second, 0);
}

static void malformed_is_refused(void **state) {
    (void)state;
    struct embfuse_model *m = model_open();
    struct embfuse_error why;
    embfuse_set(m, -1, "lr", 0.5, &why);
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        const struct malformed *c = &malformed[i];
        assert_true(isnan(embfuse_schedule_rate(&c->schedule, 1, 3)));
        assert_int_equal(embfuse_schedule_set(m, -1, &c->schedule, 1, &why), EMBFUSE_INVALID);
        if (!strstr(why.text, c->says)) fail_msg("'%s' lacks '%s'", why.text, c->says);
    }
    assert_true(isnan(embfuse_schedule_rate(NULL, 1, 3)));
    assert_int_equal(embfuse_schedule_set(m, -1, NULL, 1, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_schedule_set(m, 2, &parts[0], 1, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_schedule_set(m, -2, &parts[0], 1, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_schedule_set(NULL, 0, &parts[0], 1, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_schedule_set(m, 0, &parts[0], (double)NAN, NULL), EMBFUSE_INVALID);
    expect_rates(m, 0.5, 0.5);
    embfuse_model_free(m);
}

/* A table's own steps choose its rate; a table whose rate is refused leaves the others alone. */
static void tables_get_their_rates(void **state) {
    (void)state;
    struct embfuse_model *m = model_open();
    struct embfuse_error why;
    const struct embfuse_schedule doubling = {
        .size = SIZE, .kind = EMBFUSE_SCHEDULE_EXPONENTIAL, .gamma = 2};
    assert_int_equal(embfuse_set_steps(m, 1, 2, &why), EMBFUSE_OK);
    assert_int_equal(embfuse_schedule_set(m, -1, &parts[0], 8, &why), EMBFUSE_OK);
    expect_rates(m, 2, 6);
    assert_int_equal(embfuse_schedule_set(m, 1, &parts[1], 3, &why), EMBFUSE_OK);
    expect_rates(m, 2, 3);
    embfuse_set_steps(m, 1, 200, &why);
    assert_int_equal(embfuse_schedule_set(m, -1, &doubling, 1, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "table 1: 1.60694e+60 is no learning rate"));
    expect_rates(m, 2, 3);
    embfuse_model_free(m);
}

/* Each step counts one on: a warm-up of SGD, from 0, where the sum of its rates is the way of a row. */
static void steps_of_a_warm_up(void **state) {
    (void)state;
    struct embfuse_model *m = model_open();
    const struct embfuse_schedule warm_up = {
        .size = SIZE, .kind = EMBFUSE_SCHEDULE_LINEAR, .from = 0, .to = 1, .steps = 4};
    float weight[TABLES][2] = {{0}}, sums[2] = {0};
    const int64_t ids[] = {1}, offsets[] = {0, 1, 1};
    const float grad[] = {1, 1};
    const struct embfuse_batch batch = {.size = sizeof batch,
                                        .bags = 1,
                                        .lookups = 1,
                                        .ids = ids,
                                        .offsets = offsets,
                                        .id_type = EMBFUSE_INT64};
    assert_int_equal(embfuse_bind(m, 0, 0, weight[0], 0, NULL), EMBFUSE_OK);
    assert_int_equal(embfuse_bind(m, 1, 0, weight[1], 0, NULL), EMBFUSE_OK);
    assert_int_equal(embfuse_bind(m, 1, 1, sums, 0, NULL), EMBFUSE_OK);
    static const float way[] = {0, 2, 6, 12, 20, 28};
    for (int t = 0; t < 6; t++) {
        assert_int_equal(embfuse_schedule_set(m, 0, &warm_up, 8, NULL), EMBFUSE_OK);
        assert_int_equal(embfuse_step(m, &batch, grad, NULL), EMBFUSE_OK);
        assert_float_equal(-weight[0][1], way[t], 0);
    }
    embfuse_model_free(m);
}

TESTS(schedule) {
    enum { CASES = sizeof by_hand / sizeof *by_hand };
    static const struct CMUnitTest others[] = {
        cmocka_unit_test(cosine_repeats), cmocka_unit_test(malformed_is_refused),
        cmocka_unit_test(tables_get_their_rates), cmocka_unit_test(steps_of_a_warm_up)};
    struct CMUnitTest tests[CASES + sizeof others / sizeof *others];
    for (int i = 0; i < CASES; i++)
        tests[i] = case_test(by_hand[i].name, rates_by_hand, &by_hand[i]);
    memcpy(tests + CASES, others, sizeof others);
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
