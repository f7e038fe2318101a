/* SPDX-License-Identifier: MIT
 *
 * Rules that need whole rows, where the columns of a row lie on several ranks (ranks/columns.h):
 * the bits of one process after three steps, in weights and states, and the bytes that formulas
 * predict. Threads are the ranks, and deliver messages in random orders.
 */
#include <stdlib.h>
#include <string.h>

#include "ranks/formulas.h"
#include "tests/ranks/ranks_case.h"

#include "tests/support/cmocka_cases.h"

enum { STEPS = 3, MOST_RANKS = 5, LONGEST = 4, BAGS = 9 };

/* More than two lots of ROW_LANES show in which order a lane adds its columns. */
static const int32_t dims[] = {1, 3, 37, 127, 128, 130, 300};
enum { DIMS = sizeof dims / sizeof *dims, RULES_AT_ONCE = 4, TABLES = DIMS * RULES_AT_ONCE };

struct work {
    struct builder *b;
    const char *sharding, *kernel;
    int ranks;
    bool overlap;
    bool given; /* rank 0 gives the content of the tables; otherwise each rank draws its part */
    int64_t sums[MOST_RANKS]; /* bytes that a rank has sent */
    char wrong[1024];
};

static const struct kernel *kernel_named(const char *name) {
    struct error err;
    const struct kernel *k = registry_find(OP_STEP, name, &err);
    if (!k) fail_msg("%s", err.text);
    return k;
}

static int lead(void *ctx, struct transport *t, struct error *err) {
    struct work *w = ctx;
    const struct ranks_options options = {.sharding = w->sharding, .overlap = w->overlap};
    struct place_setup setup = ranks_setup(w->b);
    if (w->given) setup.tables = &w->b->tables;
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    int status = ranks_steps(p, w->b, kernel_named(w->kernel), STEPS, err);
    if (status == 0) status = place_get_tables(p, &w->b->tables, err);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    const int status = ranks_live(t, lead, w, w->wrong, sizeof w->wrong);
    w->sums[t->rank] = t->bytes[CHANNEL_SUMS].sent;
    return status;
}

static void *one_process(struct builder *b, size_t *bytes) {
    struct error err = {""};
    struct place_setup setup = ranks_setup(b);
    tables_reset(&b->tables);
    setup.tables = &b->tables;
    struct place *p = place_open(ON_HOST, &setup, &err);
    if (!p || ranks_steps(p, b, kernel_named("cpu_fused"), STEPS, &err)) fail_msg("%s", err.text);
    p->ops->close(p);
    return builder_snapshot(b, bytes);
}

/* The bytes of the steps are those of formulas_count(). */
static void bytes_are_predicted(const struct work *w) {
    struct sharding s;
    struct error err;
    struct flow pairs[MOST_RANKS * MOST_RANKS];
    const struct batch *in = &w->b->in;
    assert_int_equal(sharding_make(&s, w->sharding, NULL, in->tables, TABLES, w->ranks, 1, &err),
                     0);
    formulas_count(&s, in, false, pairs);
    for (int r = 0; r < w->ranks; r++) {
        double sent = 0;
        for (int d = 0; d < w->ranks; d++) sent += d == r ? 0 : pairs[r * w->ranks + d].sums;
        assert_int_equal(w->sums[r], STEPS * (int64_t)sent);
    }
    sharding_free(&s);
}

static void equals_one_process(struct builder *b, const char *what) {
    static const int ranks[] = {1, 2, 4, 5};
    size_t bytes;
    builder_start(b);
    void *one = one_process(b, &bytes);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        struct work w = {.b = b,
                         .sharding = "column-modulo",
                         .kernel = "cpu_sort",
                         .ranks = ranks[i],
                         .overlap = i == 2,
                         .given = i % 2};
        tables_reset(&b->tables);
        if (transport_threads(ranks[i], 1, 1 + i, live, &w))
            fail_msg("rules from %s on %d ranks: %s", what, ranks[i], w.wrong);
        void *many = builder_snapshot(b, &bytes);
        if (memcmp(one, many, bytes))
            fail_msg("rules from %s on %d ranks: other bits than one process", what, ranks[i]);
        bytes_are_predicted(&w);
        free(many);
    }
    free(one);
}

static void build(struct builder *b, bool exact) {
    builder_begin(b, exact ? 41 : 42, exact);
    b->weighted = !exact;
    for (int32_t t = 0; t < TABLES; t++) {
        builder_table(b, 11 + t % DIMS, dims[t % DIMS]);
        builder_feature(b, t, t % 2 ? POOL_SUM : POOL_MEAN, t % 3 ? -1 : 2);
        builder_random_bags(b, BAGS, LONGEST);
    }
    builder_feature(b, 2, POOL_NONE, 0); /* two features of one table */
    builder_random_bags(b, BAGS, LONGEST);
    builder_finish(b);
}

/* Rules with sums over a row, or states of one, and two that have neither. Returns how many. */
static int list_rules(enum rule_kind to[RULE_COUNT]) {
    int count = 0;
    for (int k = 0; k < RULE_COUNT; k++) {
        const enum rule_kind rule = (enum rule_kind)k;
        if (rule_sums_before(rule) || rule_sums_after(rule) || rule_row_states(rule) ||
            rule == RULE_adagrad || rule == RULE_adam)
            to[count++] = rule;
    }
    return count;
}

/* STORED: adjusted, in narrow types and with stochastic rounding, too; states of rows beside
 * weights. */
enum way { PLAIN, ADJUSTED, STORED, WAYS_TESTED };

static void rules_on_whole_rows(void **state) {
    static const float shared[RULE_SHARED] = {[GRAD_SCALE] = 0.75f,
                                              [MAXIMIZE] = 1,
                                              [CLIP_VALUE] = 0.5f,
                                              [CLIP_NORM] = 0.25f,
                                              [WEIGHT_DECAY] = 0.125f};
    const struct kernel *sort = kernel_named("cpu_sort");
    enum rule_kind rules[RULE_COUNT];
    const int count = list_rules(rules);
    (void)state;
    assert_true(count > 2);
    for (int exact = 0; exact < 2; exact++)
        for (int way = PLAIN; way < WAYS_TESTED; way++) {
            struct builder b;
            build(&b, exact);
            for (int first = 0; first < count; first += RULES_AT_ONCE) {
                char what[120];
                for (int32_t t = 0; t < TABLES; t++) {
                    builder_rule(&b, t, rules[(first + t / DIMS) % count]);
                    if (way != PLAIN) builder_adjust(&b, t, shared);
                }
                if (way == STORED) builder_storage(&b, sort, 5 * first + 1);
                builder_pack(&b);
                snprintf(what, sizeof what, "%s, %s gradients, way %d",
                         rule_info(rules[first]).name, exact ? "exact" : "real", way);
                equals_one_process(&b, what);
            }
            builder_free(&b);
        }
}

static void refused(struct builder *b, const char *sharding, const char *kernel, const char *why) {
    struct work w = {.b = b, .sharding = sharding, .kernel = kernel, .ranks = 2};
    tables_reset(&b->tables);
    assert_int_not_equal(transport_threads(2, 1, 0, live, &w), 0);
    if (!strstr(w.wrong, why)) fail_msg("%s", w.wrong);
}

/* Column blocks refuse such rules, and other kernels than that of the step are not named in
 * vain. */
static void others_are_refused(void **state) {
    struct builder b;
    (void)state;
    build(&b, true);
    for (int32_t t = 0; t < TABLES; t++) builder_rule(&b, t, RULE_rowwise_adagrad);
    builder_start(&b);
    refused(&b, "column", "cpu_sort", "take column-modulo");
    refused(&b, "column-modulo", "cpu_fused", "step of cpu_sort alone");
    builder_free(&b);
}

TESTS(ranks_columns) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rules_on_whole_rows),
                                       cmocka_unit_test(others_are_refused)};
    return cmocka_run_group_tests_name("columns of ranks", tests, NULL, NULL);
}
