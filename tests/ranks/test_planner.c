/* SPDX-License-Identifier: MIT
 *
 * The planner of ranks/planner.h: its loads are those of ranks/formulas.h, its plans fit or are
 * refused with the bytes that lack, and are never worse than whole tables dealt round-robin; on
 * small cases they are compared with all plans there are. test_ranks_mpi.py runs a place that plans
 * for itself.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/tables.h"
#include "ranks/planner.h"
#include "tests/support/batch_builder.h"

#include "tests/support/cmocka_cases.h"

static const struct machine fast = {.ranks = 4,
                                    .nodes = 1,
                                    .link = {{1e-5, 5e9}, {5e-5, 1e9}},
                                    .copy = 1e10,
                                    .rows = 5e9,
                                    .gather = 2e10,
                                    .grouping = 5e-9,
                                    .memory = INT64_MAX / 2};

static struct machine machine_of(int ranks, int nodes) {
    struct machine m = fast;
    m.ranks = ranks;
    m.nodes = nodes;
    return m;
}

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

/* Bytes of rows that the shards of each rank have. */
static void bytes_of(const char *text, const struct builder *b, int ranks, int nodes,
                     double *bytes) {
    struct sharding s;
    struct error err;
    assert_int_equal(
        sharding_make(&s, text, NULL, b->in.tables, b->in.num_tables, ranks, nodes, &err), 0);
    memset(bytes, 0, (size_t)ranks * sizeof *bytes);
    for (int32_t i = 0; i < s.count; i++) {
        const struct table_shape shape = sharding_shape(&s, &s.shards[i], b->in.tables);
        bytes[s.shards[i].rank] += (double)tables_bytes(&shape, 1);
    }
    sharding_free(&s);
}

/* The loads of a plan are what the formulas count, over all ranks and between nodes. */
static void check_loads(const struct table_plan *p, const struct builder *b, bool all_rows) {
    struct sharding s;
    struct error err;
    const int ranks = p->ranks, on_node = ranks / p->machine.nodes;
    struct flow *pairs = calloc((size_t)(ranks * ranks), sizeof *pairs), flows[LINKS] = {{0}};
    assert_int_equal(sharding_make(&s, p->text, NULL, b->in.tables, b->in.num_tables, ranks,
                                   p->machine.nodes, &err),
                     0);
    formulas_count(&s, &b->in, all_rows, pairs);
    for (int r = 0; r < ranks; r++)
        for (int d = 0; d < ranks; d++)
            if (r != d)
                flow_add(&flows[r / on_node == d / on_node ? LINK_NODE : LINK_NETWORK],
                         pairs[r * ranks + d], 1);
    for (int k = 0; k < LINKS; k++) {
        double sent[COST_STAGES] = {0}, received[COST_STAGES] = {0};
        for (int c = 0; c < COST_STAGES; c++)
            for (int r = 0; r < ranks; r++) {
                sent[c] += p->loads[r].bytes[c][k].sent;
                received[c] += p->loads[r].bytes[c][k].received;
            }
        const double want[COST_STAGES] = {[COST_LENGTHS] = flows[k].lengths,
                                          [COST_IDS] = flows[k].ids,
                                          [COST_OUTPUT] = flows[k].output,
                                          [COST_GRADIENT] = flows[k].gradient};
        /* The planner takes all ranks' bags for alike; so a rank's own part is an average. */
        for (int c = 0; c < COST_STAGES; c++) {
            const double slack = c != COST_LENGTHS ? 0.25 : b->in.bags % ranks ? 0.05 : 1e-9;
            if (fabs(sent[c] - want[c]) > slack * want[c] + 1e-3 ||
                fabs(received[c] - sent[c]) > 1e-9 * sent[c] + 1e-3)
                fail_msg("%s, %s, link %d: sent %g, received %g, formulas %g", p->text,
                         cost_stage_names[c], k, sent[c], received[c], want[c]);
        }
    }
    free(pairs);
    sharding_free(&s);
}

static void plans_are_sound(void **state) {
    static const int ranks_of[][2] = {{1, 1}, {2, 1}, {3, 1}, {4, 2}, {5, 1}, {8, 2}, {8, 8}};
    (void)state;
    for (int seed = 1; seed <= 6; seed++)
        for (size_t k = 0; k < sizeof ranks_of / sizeof *ranks_of; k++) {
            const int ranks = ranks_of[k][0], nodes = ranks_of[k][1];
            struct machine m = machine_of(ranks, nodes);
            const struct planner_options o = {.all_rows = seed % 2, .ring = 2};
            struct builder b;
            struct table_plan p;
            struct error err = {""};
            struct cost again, robin;
            double bytes[8];
            build(&b, (uint64_t)seed, 1 + 2 * seed, seed % 3 ? 3000 : 20);
            if (planner_plan(&p, &m, &b.in, &b.index, &o, &err)) fail_msg("%s", err.text);
            assert_int_equal(planner_cost(p.text, &m, &b.in, &b.index, &o, &again, &err), 0);
            assert_int_equal(planner_cost(NULL, &m, &b.in, &b.index, &o, &robin, &err), 0);
            assert_true(fabs(again.seconds - p.cost.seconds) <= 1e-9 * p.cost.seconds);
            assert_true(robin.seconds == p.round_robin.seconds);
            assert_true(p.cost.seconds <= robin.seconds * (1 + 1e-9));
            assert_true(p.cost.lacks == 0);
            bytes_of(p.text, &b, ranks, nodes, bytes);
            for (int r = 0; r < ranks; r++)
                assert_true(fabs(bytes[r] - p.loads[r].tables) <= 1e-9 * bytes[r] + 1e-3);
            check_loads(&p, &b, o.all_rows);
            for (int32_t t = 0; t < p.num_tables; t++) {
                assert_non_null(strstr(p.why[t], sharding_names[p.kind[t]]));
                assert_null(strchr(p.why[t], '\n'));
            }
            planner_free(&p);
            builder_free(&b);
        }
}

/* Ids in the order of popularity: blocks of rows put all of them on one rank, modulo does not. */
static void hot_rows_at_the_beginning_count(void **state) {
    (void)state;
    struct builder b;
    struct error err = {""};
    struct cost blocks, modulo;
    const struct machine m = machine_of(4, 1);
    const struct planner_options o = {.ring = 1};
    builder_begin(&b, 6, false);
    builder_feature(&b, builder_table(&b, 10000, 64), POOL_SUM, -1);
    for (int64_t i = 0; i < 2000; i++) {
        int64_t ids[8];
        for (int64_t j = 0; j < 8; j++) ids[j] = (i * 8 + j) * 7 % 2000;
        builder_bag(&b, 8, ids);
    }
    builder_finish(&b);
    builder_rule(&b, 0, RULE_adagrad);
    assert_int_equal(planner_cost("row", &m, &b.in, &b.index, &o, &blocks, &err), 0);
    assert_int_equal(planner_cost("row-modulo", &m, &b.in, &b.index, &o, &modulo, &err), 0);
    assert_true(blocks.most > 2.5 * blocks.mean);
    assert_true(modulo.most < 1.2 * modulo.mean);
    assert_true(modulo.seconds < 0.7 * blocks.seconds);
    builder_free(&b);
}

/* --- beside all plans there are */

enum { CHOICES = 8 };
static const char *const choice[CHOICES] = {"table@0", "table@1",    "table@2", "table@3",
                                            "row",     "row-modulo", "column",  "data"};

struct best {
    double seconds, lacks; /* of the quickest that fits; the least that lacks */
    bool fits;
};

static struct best of_all(const struct machine *m, const struct builder *b,
                          const struct planner_options *o) {
    struct best best = {INFINITY, INFINITY, false};
    const int32_t tables = b->in.num_tables;
    int all = 1;
    for (int32_t t = 0; t < tables; t++) all *= CHOICES;
    for (int n = 0; n < all; n++) {
        char text[200] = "";
        struct cost c;
        struct error err;
        bool possible = true;
        for (int32_t t = 0, rest = n; t < tables; t++, rest /= CHOICES) {
            const int own = rest % CHOICES;
            text_add(text, sizeof text, "%s%s", t ? "," : "", choice[own]);
            possible &= own >= 4 || own < m->ranks;
        }
        if (!possible || planner_cost(text, m, &b->in, &b->index, o, &c, &err)) continue;
        best.lacks = fmin(best.lacks, c.lacks);
        best.fits |= c.lacks == 0;
        if (c.lacks == 0) best.seconds = fmin(best.seconds, c.seconds);
    }
    return best;
}

static void finds_what_there_is(void **state) {
    (void)state;
    int refused = 0, found = 0;
    for (int seed = 1; seed <= 4; seed++) {
        struct builder b;
        build(&b, 40 + (uint64_t)seed, 3, 3000);
        const struct planner_options o = {.ring = 1};
        const double whole = (double)tables_bytes(b.in.tables, b.in.num_tables);
        for (int share = 1; share <= 5; share++) {
            struct machine m = machine_of(2 + seed % 2, 1);
            struct table_plan p;
            struct error err = {""};
            m.memory = (int64_t)(whole * 0.25 * share);
            const struct best best = of_all(&m, &b, &o);
            const int status = planner_plan(&p, &m, &b.in, &b.index, &o, &err);
            if (status == 0) {
                assert_true(best.fits);
                if (p.cost.seconds > 1.02 * best.seconds)
                    fail_msg("%s: %g s, but there is a plan of %g s", p.text, p.cost.seconds,
                             best.seconds);
                for (int r = 0; r < m.ranks; r++)
                    assert_true(cost_memory(&p.loads[r], 1) <= (double)m.memory);
                planner_free(&p);
                found++;
            } else {
                if (best.fits) fail_msg("refused what fits: %s", err.text);
                const char *at = strstr(err.text, "and ");
                const double lacks = at ? strtod(at + 4, NULL) : 0;
                if (lacks < best.lacks - 1 || lacks > 1.1 * best.lacks)
                    fail_msg("%s; the least is %.0f", err.text, best.lacks);
                refused++;
            }
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

static void kinds_can_be_left_out(void **state) {
    (void)state;
    const struct machine m = machine_of(3, 1);
    struct builder b;
    struct table_plan p;
    struct error err;
    struct planner_options o = {.ring = 1};
    build(&b, 4, 4, 500);
    o.leave = ~(1u << SHARD_ROW_MODULO);
    assert_int_equal(planner_plan(&p, &m, &b.in, &b.index, &o, &err), 0);
    assert_string_equal(p.text, "row-modulo,row-modulo,row-modulo,row-modulo");
    planner_free(&p);
    o.leave = ~0u;
    assert_int_equal(planner_plan(&p, &m, &b.in, &b.index, &o, &err), -1);
    assert_non_null(strstr(err.text, "left out"));
    builder_free(&b);
}

TESTS(planner) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_sound), cmocka_unit_test(hot_rows_at_the_beginning_count),
        cmocka_unit_test(finds_what_there_is), cmocka_unit_test(words_are_read),
        cmocka_unit_test(kinds_can_be_left_out)};
    return cmocka_run_group_tests_name("planner", tests, NULL, NULL);
}
