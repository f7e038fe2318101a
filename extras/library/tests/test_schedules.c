/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules: edges that PyTorch does not have, what is malformed, and rates of
 * tables. extras/library/tests/test_schedule.py compares all kinds with PyTorch's.
 */
#include <math.h>

#include "extras/library/tests/library_small.h"

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

/* --- what is malformed */

static const int64_t falling[] = {5, 2}, at_once[] = {0};
static const struct embfuse_schedule nested[] = {OF(SEQUENCE, .steps = 1)};

static const struct malformed {
    const char *says;
    struct embfuse_schedule schedule;
} malformed[] = {
    {"kind is no", {.size = sizeof(struct embfuse_schedule)}},
    {"size is not", {.size = 8, .kind = EMBFUSE_SCHEDULE_CONSTANT}},
    {"steps is at least 1", OF(STEP, .gamma = 1)},
    {"steps is 1 to 2^62", OF(COSINE, .steps = INT64_MAX)},
    {"steps is at least 0", OF(LINEAR, .steps = -1)},
    {"gamma", OF(EXPONENTIAL, .gamma = -1)},
    {"gamma", OF(STEP, .steps = 1, .gamma = (double)INFINITY)},
    {"from", OF(CONSTANT, .from = (double)NAN)},
    {"to", OF(LINEAR, .to = (double)NAN)},
    {"power", OF(POLYNOMIAL, .steps = 1, .power = -1)},
    {"least", OF(COSINE, .steps = 1, .least = (double)NAN)},
    {"num_milestones", OF(MULTISTEP, .num_milestones = 1)},
    {"rising", OF(MULTISTEP, .num_milestones = 2, .milestones = falling)},
    {"rising", OF(SEQUENCE, .num_milestones = 1, .milestones = at_once, .parts = parts)},
    {"parts is NULL", OF(SEQUENCE, .num_milestones = 0)},
    {"a part is a sequence", OF(SEQUENCE, .parts = nested)},
};

static void expect_rates(const struct small *s, double first, double second) {
    double rate[2];
    for (int t = 0; t < 2; t++) FINE(embfuse_get(s->model, t, "lr", &rate[t], &why));
    assert_float_equal(rate[0], first, 0);
    assert_float_equal(rate[1], second, 0);
}

static void malformed_is_refused(void **state) {
    (void)state;
    struct small s;
    small_open(&s, NULL);
    FINE(embfuse_set(s.model, -1, "lr", 0.5, &why));
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        const struct malformed *c = &malformed[i];
        assert_true(isnan(embfuse_schedule_rate(&c->schedule, 1, 3)));
        SAYS(EMBFUSE_INVALID, c->says, embfuse_schedule_set(s.model, -1, &c->schedule, 1, &why));
    }
    assert_int_equal(embfuse_schedule_set(s.model, 2, &parts[0], 1, NULL), EMBFUSE_INVALID);
    expect_rates(&s, 0.5, 0.5);
    embfuse_model_free(s.model);
}

/* A table's own steps choose its rate; a table whose rate is refused leaves the others alone. */
static void tables_get_their_rates(void **state) {
    (void)state;
    struct small s;
    const struct embfuse_schedule doubling = OF(EXPONENTIAL, .gamma = 2);
    small_open(&s, NULL);
    FINE(embfuse_set_steps(s.model, 1, 2, &why));
    FINE(embfuse_schedule_set(s.model, -1, &parts[0], 8, &why));
    expect_rates(&s, 2, 6);
    FINE(embfuse_schedule_set(s.model, 1, &parts[1], 3, &why));
    expect_rates(&s, 2, 3);
    FINE(embfuse_set_steps(s.model, 1, 200, &why));
    SAYS(EMBFUSE_INVALID, "table 1: lr is a number from 0 to 3.4e38, not 1.60694e+60",
         embfuse_schedule_set(s.model, -1, &doubling, 1, &why));
    expect_rates(&s, 2, 3);
    embfuse_model_free(s.model);
}

TESTS(schedules) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rates_by_hand),
                                       cmocka_unit_test(malformed_is_refused),
                                       cmocka_unit_test(tables_get_their_rates)};
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
