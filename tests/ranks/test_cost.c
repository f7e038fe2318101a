/* SPDX-License-Identifier: MIT
 *
 * The model of ranks/cost.h by hand, and what ranks/calibrate.h measures for it.
 */
#include <math.h>

#include "ranks/calibrate.h"
#include "ranks/planner.h"
#include "tests/support/batch_builder.h"

#include "tests/support/cmocka_cases.h"

/* Two ranks, one table on rank 0, by hand. */
static void cost_by_hand(void **state) {
    (void)state;
    const struct machine m = {.ranks = 2,
                              .nodes = 1,
                              .link = {{1, 100}, {0, 1}},
                              .copy = 1000,
                              .rows = 10,
                              .gather = 20,
                              .grouping = 0.5,
                              .memory = 1000};
    struct load loads[2] = {{.shards = 1,
                             .with_output = 1,
                             .looked = 30,
                             .gathered = 40,
                             .copied = 70,
                             .updated = 50,
                             .added = 60,
                             .lookups = 4,
                             .tables = 900},
                            {.shards = 0}};
    double seconds[2][COST_STAGES];
    loads[0].bytes[COST_GRADIENT][LINK_NODE].received = 200;
    loads[1].bytes[COST_GRADIENT][LINK_NODE].sent = 200;
    loads[0].kept[COST_GRADIENT] = 100;
    cost_stages(&m, loads, seconds);
    assert_true(fabs(seconds[0][COST_GRADIENT] - (1 + 2.0 + 2 * (300 + 200) / 1000.0)) < 1e-12);
    assert_true(fabs(seconds[1][COST_GRADIENT] - (1 + 2.0 + 2 * 200 / 1000.0)) < 1e-12);
    assert_true(fabs(seconds[0][COST_LENGTHS] - 1) < 1e-12);
    assert_true(fabs(seconds[0][COST_OUTPUT] - (1 + 2 * 70 / 1000.0)) < 1e-12);
    assert_true(fabs(seconds[0][COST_LOOKUP] - (3.0 + 2.0)) < 1e-12);
    assert_true(fabs(seconds[0][COST_UPDATE] - (10.0 + 3.0 + 2.0)) < 1e-12);
    assert_true(seconds[1][COST_UPDATE] == 0);
    const struct cost c = cost_of(&m, loads, 1);
    assert_true(fabs(c.seconds - (1 + 1 + 5 + 1.14 + 4.0 + 15)) < 1e-12);
    /* 900 of rows, 600 of gradients as received and in order, 100 of the largest message. */
    assert_true(fabs(cost_memory(&loads[0], 1) - 1600) < 1e-9 && fabs(c.lacks - 600) < 1e-9);
}

/* Two ranks with copies of a table: each looks up only its own 2 of 4 bags, and copies their
 * outputs. Row 0 is in all bags, four rows are in one bag each. */
static void copies_look_up_their_own_bags(void **state) {
    (void)state;
    enum { BAGS = 4, DIM = 16, ROW = DIM * sizeof(float) };
    const struct machine m = {.ranks = 2,
                              .nodes = 1,
                              .link = {{0, 1e9}, {0, 1e9}},
                              .copy = 1000,
                              .rows = 10,
                              .gather = 20,
                              .memory = INT64_MAX / 2};
    const struct planner_options o = {.ring = 1};
    const double seen = 1 - 1.0 / (1 << BAGS) + BAGS * 0.5, looked_up = 2 * BAGS / 2;
    struct builder b;
    struct cost c;
    struct error err = {""};
    builder_begin(&b, 1, false);
    builder_feature(&b, builder_table(&b, 1 + BAGS, DIM), POOL_SUM, -1);
    for (int64_t i = 0; i < BAGS; i++) builder_bag(&b, 2, (const int64_t[]){0, 1 + i});
    builder_finish(&b);
    assert_int_equal(planner_cost("data", &m, &b.in, &b.index, &o, &c, &err), 0);
    assert_true(fabs(c.stage[COST_LOOKUP] - (seen * ROW / 10 + looked_up * ROW / 20)) < 1e-9);
    assert_true(fabs(c.stage[COST_OUTPUT] - 2.0 * BAGS / 2 * ROW / 1000) < 1e-9);
    builder_free(&b);
}

static void lines_are_fitted(void **state) {
    (void)state;
    struct link_point points[6];
    for (int i = 0; i < 6; i++) {
        const double bytes = pow(10, i + 1);
        points[i] = (struct link_point){3, bytes, 3 * 2e-6 + bytes / 4e9};
    }
    struct link l = calibrate_fit(points, 6);
    assert_true(fabs(l.alpha / 2e-6 - 1) < 1e-6 && fabs(l.speed / 4e9 - 1) < 1e-6);
    /* No time without bytes: no alpha below 0. */
    for (int i = 0; i < 6; i++) points[i].seconds = points[i].bytes / 4e9 * (i < 3 ? 0.9 : 1.1);
    l = calibrate_fit(points, 6);
    assert_true(l.alpha >= 0 && l.speed > 3.5e9 && l.speed < 4.5e9);
}

/* A disturbed exchange can look as if bytes took no time, behind a long alpha. */
static void a_link_is_one_fit(void **state) {
    (void)state;
    const struct machine calm = {.ranks = 2,
                                 .link = {{1e-5, 5e9}, {5e-5, 1e9}},
                                 .copy = 9,
                                 .rows = 5},
                         busy = {
                             .ranks = 2, .link = {{2e-3, 4e11}, {4e-5, 2e9}}, .copy = 8, .rows = 6};
    for (int order = 0; order < 2; order++) {
        struct machine best = {0};
        calibrate_keep_best(&best, order ? &busy : &calm);
        calibrate_keep_best(&best, order ? &calm : &busy);
        assert_true(best.link[0].alpha == 1e-5 && best.link[0].speed == 5e9);
        assert_true(best.link[1].alpha == 4e-5 && best.link[1].speed == 2e9);
        assert_true(best.copy == 9 && best.rows == 6 && best.ranks == 2);
    }
}

TESTS(cost) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_by_hand), cmocka_unit_test(copies_look_up_their_own_bags),
        cmocka_unit_test(lines_are_fitted), cmocka_unit_test(a_link_is_one_fit)};
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
