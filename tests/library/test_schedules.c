/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules: edges that PyTorch does not have, what is malformed, and rates of
 * tables. tests/library/test_schedule.py compares all kinds with PyTorch's.
 */
#include <math.h>
#include <string.h>

#include "include/embfuse.h"

#include "tests/support/cmocka_cases.h"

#define OF(which, ...)                                                                             \
    { .size = sizeof(struct embfuse_schedule), .kind = EMBFUSE_SCHEDULE_##which, __VA_ARGS__ }

static const struct embfuse_schedule parts[] = {OF(LINEAR, .from = 0.25, .to = 1, .steps = 3),
                                                OF(CONSTANT, .from = 1)};

/* The rates of the first steps with a base of 8; all are exact. */
static const struct by_hand {
    const char *name;
    struct embfuse_schedule schedule;
    double rates[5];
} by_hand[] = {
    {"no milestones", OF(MULTISTEP, .gamma = 0.5), {8, 8, 8, 8, 8}},
    {"gamma of 0", OF(EXPONENTIAL, .gamma = 0), {8, 0, 0, 0, 0}},
    {"constant from 0", OF(CONSTANT, .from = 0, .steps = 2), {0, 0, 8, 8, 8}},
    {"linear in no steps", OF(LINEAR, .from = 2, .to = 0.5), {4, 4, 4, 4, 4}},
    {"power of 0", OF(POLYNOMIAL, .power = 0, .steps = 4), {8, 8, 8, 8, 8}},
    {"sequence of one", OF(SEQUENCE, .parts = parts), {2, 4, 6, 8, 8}},
};

static void rates_by_hand(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) {
        const struct by_hand *c = &by_hand[i];
        for (int64_t t = 0; t < 5; t++)
            if (embfuse_schedule_rate(&c->schedule, 8, t) != c->rates[t])
                fail_msg("%s, step %d: not %.17g", c->name, (int)t, c->rates[t]);
        assert_true(isnan(embfuse_schedule_rate(&c->schedule, 8, -1)));
        assert_true(isfinite(embfuse_schedule_rate(&c->schedule, 8, INT64_MAX)));
    }
}

/* A cosine repeats itself exactly, however far it goes. */
static void cosine_repeats(void **state) {
    (void)state;
    const struct embfuse_schedule s = OF(COSINE, .steps = 7, .least = 0.01);
    for (int64_t t = 0; t < 14; t++)
        assert_true(embfuse_schedule_rate(&s, 1, t + 14 * INT64_C(1000000007)) ==
                    embfuse_schedule_rate(&s, 1, t));
    assert_true(embfuse_schedule_rate(&s, 1, 7) == 0.01);
}

/* --- what is malformed */

static const int64_t falling[] = {5, 2}, early[] = {-1}, at_once[] = {0};
static const struct embfuse_schedule nested[] = {OF(SEQUENCE, .steps = 1)}, no_size[1];

static const struct malformed {
    const char *says;
    struct embfuse_schedule schedule;
} malformed[] = {
    {"kind is no", {.size = sizeof(struct embfuse_schedule)}},
    {"kind is no",
     {.size = sizeof(struct embfuse_schedule), .kind = EMBFUSE_SCHEDULE_SEQUENCE + 1}},
    {"size is not", {.size = 8, .kind = EMBFUSE_SCHEDULE_CONSTANT}},
    {"steps is at least 1", OF(STEP, .gamma = 1)},
    {"steps is at least 1", OF(POLYNOMIAL, .power = 1)},
    {"steps is 1 to", OF(COSINE, .least = 0)},
    {"steps is 1 to 2^62", OF(COSINE, .steps = INT64_MAX)},
    {"steps is at least 0", OF(CONSTANT, .steps = -1)},
    {"steps is at least 0", OF(LINEAR, .steps = -1)},
    {"gamma", OF(EXPONENTIAL, .gamma = -1)},
    {"gamma", OF(STEP, .steps = 1, .gamma = (double)INFINITY)},
    {"from", OF(CONSTANT, .from = (double)NAN)},
    {"to", OF(LINEAR, .to = (double)NAN)},
    {"power", OF(POLYNOMIAL, .steps = 1, .power = -1)},
    {"least", OF(COSINE, .steps = 1, .least = (double)NAN)},
    {"num_milestones", OF(MULTISTEP, .num_milestones = 1)},
    {"num_milestones", OF(MULTISTEP, .num_milestones = -1)},
    {"rising", OF(MULTISTEP, .num_milestones = 2, .milestones = falling)},
    {"rising", OF(MULTISTEP, .num_milestones = 1, .milestones = early)},
    {"rising", OF(SEQUENCE, .num_milestones = 1, .milestones = at_once, .parts = parts)},
    {"parts is NULL", OF(SEQUENCE, .num_milestones = 0)},
    {"a part is a sequence", OF(SEQUENCE, .parts = nested)},
    {"size is not", OF(SEQUENCE, .parts = no_size)},
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
    const struct embfuse_schedule doubling = OF(EXPONENTIAL, .gamma = 2);
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

TESTS(schedules) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_by_hand), cmocka_unit_test(cosine_repeats),
        cmocka_unit_test(malformed_is_refused), cmocka_unit_test(tables_get_their_rates)};
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
