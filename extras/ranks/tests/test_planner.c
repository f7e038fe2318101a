/* SPDX-License-Identifier: MIT
 *
 * The model of extras/ranks/cost.h by hand; what extras/ranks/calibrate.h fits for it; and plans of
 * extras/ranks/planner.h beside all plans there are: they fit and are quick, or are refused with the bytes
 * that lack. test_ranks_mpi.py runs a place that plans for itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/tables.h"
#include "extras/ranks/calibrate.h"
#include "extras/ranks/planner.h"
#include "tests/support/batch_builder.h"

#include "tests/support/cmocka_cases.h"

/* Random tables; each has one or two features. */
static void build(struct builder *b, uint64_t seed, int tables, int64_t most_rows) {
    builder_begin(b, seed, false);
    uint64_t x = seed * 2654435761u + 1;
    for (int t = 0; t < tables; t++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        const int32_t table =
            builder_table(b, 2 + (int64_t)(x >> 33) % most_rows, 1 + (int32_t)((x >> 20) % 64));
        for (uint64_t f = 0; f < 1 + (x >> 60) % 2; f++) {
            builder_feature(b, table, (x >> 50) % 3 ? POOL_SUM : POOL_MEAN, -1);
            builder_random_bags(b, 64, 1 + (int64_t)((x >> 40) % 12));
        }
    }
    builder_finish(b);
    for (int32_t t = 0; t < b->in.num_tables; t++)
        builder_rule(b, t, t % 2 ? RULE_adagrad : RULE_rowwise_adagrad);
}

/* Two ranks, one table on rank 0. */
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
    loads[0].bytes[COST_GRADIENT][LINK_NODE].received = 200;
    loads[1].bytes[COST_GRADIENT][LINK_NODE].sent = 200;
    loads[0].kept[COST_GRADIENT] = 100;
    const double want[2][COST_STAGES] = {{[COST_LENGTHS] = 1,
                                          [COST_IDS] = 1,
                                          [COST_OUTPUT] = 1 + 2 * 70 / 1000.0,
                                          [COST_GRADIENT] = 1 + 2.0 + 2 * (300 + 200) / 1000.0,
                                          [COST_LOOKUP] = 3.0 + 2.0,
                                          [COST_UPDATE] = 10.0 + 3.0 + 2.0},
                                         {[COST_LENGTHS] = 1,
                                          [COST_IDS] = 1,
                                          [COST_OUTPUT] = 1,
                                          [COST_GRADIENT] = 1 + 2.0 + 2 * 200 / 1000.0}};
    double seconds[2][COST_STAGES];
    cost_stages(&m, loads, seconds);
    for (int r = 0; r < 2; r++)
        for (int s = 0; s < COST_STAGES; s++)
            if (fabs(seconds[r][s] - want[r][s]) > 1e-12)
                fail_msg("rank %d, %s: %g, by hand %g", r, cost_stage_names[s], seconds[r][s],
                         want[r][s]);
    const struct cost c = cost_of(&m, loads, 1);
    assert_true(fabs(c.seconds - (1 + 1 + 5 + 1.14 + 4.0 + 15)) < 1e-12);
    /* 900 of rows, 600 of gradients as received and in order, 100 of the largest message. */
    assert_true(fabs(cost_memory(&loads[0], 1) - 1600) < 1e-9 && fabs(c.lacks - 600) < 1e-9);
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
}

/* --- beside all plans there are */

enum { CHOICES = 7 };
static const char *const choice[CHOICES] = {"table@0",    "table@1", "table@2", "row",
                                            "row-modulo", "column",  "data"};

/* The quickest that fits; INFINITY: there is none. */
static double best_of_all(const struct machine *m, const struct builder *b,
                          const struct planner_options *o) {
    double best = INFINITY;
    const int32_t tables = b->in.num_tables;
    int all = 1;
    for (int32_t t = 0; t < tables; t++) all *= CHOICES;
    for (int n = 0; n < all; n++) {
        char text[200] = "";
        struct cost c;
        struct error err;
        for (int32_t t = 0, rest = n; t < tables; t++, rest /= CHOICES)
            text_add(text, sizeof text, "%s%s", t ? "," : "", choice[rest % CHOICES]);
        if (planner_cost(text, m, &b->in, &b->index, o, &c, &err) == 0 && c.lacks == 0)
            best = fmin(best, c.seconds);
    }
    return best;
}

static void finds_what_there_is(void **state) {
    (void)state;
    int refused = 0, found = 0;
    const struct planner_options o = {.ring = 1};
    for (int n = 0; n < 20; n++) {
        struct builder b;
        build(&b, 41 + (uint64_t)n / 5, 3, 3000);
        struct table_plan p;
        struct error err = {""};
        const double whole = (double)tables_bytes(b.in.tables, b.in.num_tables);
        const struct machine m = {.ranks = 2 + n / 5 % 2,
                                  .nodes = 1,
                                  .link = {{1e-5, 5e9}, {5e-5, 1e9}},
                                  .copy = 1e10,
                                  .rows = 5e9,
                                  .gather = 2e10,
                                  .grouping = 5e-9,
                                  .memory = (int64_t)(whole * 0.25 * (1 + n % 5))};
        const double best = best_of_all(&m, &b, &o);
        if (planner_plan(&p, &m, &b.in, &b.index, &o, &err)) {
            if (best < INFINITY) fail_msg("refused what fits: %s", err.text);
            refused++;
        } else {
            if (p.cost.seconds > 1.02 * best)
                fail_msg("%s: %g s, but there is a plan of %g s", p.text, p.cost.seconds, best);
            for (int r = 0; r < m.ranks; r++)
                assert_true(cost_memory(&p.loads[r], 1) <= (double)m.memory);
            planner_free(&p);
            found++;
        }
        builder_free(&b);
    }
    assert_true(refused > 1 && found > 5);
}

static void words_are_read(void **state) {
    (void)state;
    static const char *const wrong[] = {"auto",     "table@",          "table@x",
                                        "row@1",    "table@9",         "table@1x",
                                        "table@-1", "table@1,row,row", ""};
    struct builder b;
    struct sharding s;
    struct error err;
    build(&b, 3, 2, 50);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(
            sharding_make(&s, wrong[i], NULL, b.in.tables, b.in.num_tables, 4, 2, &err), -1);
    assert_int_equal(
        sharding_make(&s, "table@3,table-row@1", NULL, b.in.tables, b.in.num_tables, 4, 2, &err),
        0);
    assert_true(s.part[0 * 4 + 3] >= 0 && s.part[1 * 4 + 2] >= 0 && s.part[1 * 4 + 1] < 0);
    sharding_free(&s);
    /* The other table goes where there is less. */
    assert_int_equal(
        sharding_make(&s, "table@0,table", NULL, b.in.tables, b.in.num_tables, 2, 1, &err), 0);
    assert_true(s.part[1 * 2 + 1] >= 0);
    sharding_free(&s);
    builder_free(&b);
}

TESTS(planner) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost_by_hand), cmocka_unit_test(lines_are_fitted),
        cmocka_unit_test(finds_what_there_is), cmocka_unit_test(words_are_read)};
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
