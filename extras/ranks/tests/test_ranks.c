/* SPDX-License-Identifier: MIT
 *
 * Steps of several ranks beside steps of one process: threads are the ranks, and deliver messages
 * in random orders. Exact sums: the same bits for every kernel, and also in each row's states. Real
 * gradients: the same bits for kernels with the trait OWN_LOOKUPS, and all others within the bound
 * of the check. Every sharding, on drawn numbers of ranks: SEED=n draws others.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/kernel_tests.h"

static const char *const shardings[] = {"table",
                                        "row",
                                        "row-modulo",
                                        "table-row",
                                        "data",
                                        "data-dense",
                                        "column",
                                        "row,data,table",
                                        "column,row-modulo,data",
                                        "row,data-dense,table"};
enum { SHARDINGS_TESTED = sizeof shardings / sizeof *shardings, OF_EACH = WITH_SANITIZER ? 3 : 6 };

/* One way to cut the tables, and a batch. */
struct cut {
    const char *sharding;
    uint64_t seed, number;
    int ranks, nodes;
    bool all_rows, overlap, exact, weighted;
    char name[160];
};

static struct cut draw(int n) {
    const char *seed = getenv("SEED");
    struct cut c = {.sharding = shardings[n % SHARDINGS_TESTED],
                    .seed = seed ? strtoull(seed, NULL, 10) : 21,
                    .number = (uint64_t)n};
    const uint64_t key = rng_key(c.seed, (uint64_t)n);
    c.ranks = n < SHARDINGS_TESTED ? 5 : 1 + (int)(key % 5);
    c.nodes = c.ranks == 4 ? 2 : 1;
    c.all_rows = key >> 10 & 1;
    c.overlap = key >> 11 & 1;
    c.exact = key >> 12 & 1;
    c.weighted = key >> 13 & 1;
    snprintf(c.name, sizeof c.name, "SEED=%d: %s on %d ranks%s%s, %s gradients%s", (int)c.seed,
             c.sharding, c.ranks, c.all_rows ? ", all rows" : "", c.overlap ? ", overlap" : "",
             c.exact ? "exact" : "real", c.weighted ? ", weighted" : "");
    return c;
}

struct work {
    struct builder *b;
    const struct kernel *kernel, *forward;
    const struct cut *cut;
    char wrong[1024];
};

/* The first of the tables' rules. */
static enum rule_kind rule_of(const struct kernel *k, const struct cut *c) {
    const enum rule_kind drawn = (enum rule_kind)(rng_key(c->seed, 99 + c->number) % RULE_COUNT);
    return kernel_applies(k, drawn) ? drawn : RULE_rowwise_adagrad;
}

/* Fresh tables. Where columns are cut, rules work on single elements. */
static void build(struct builder *b, const struct kernel *k, const struct cut *c) {
    const bool columns = strstr(c->sharding, "column");
    builder_begin(b, c->seed + c->exact, c->exact);
    b->weighted = c->weighted;
    ranks_case(b, 47, POOL_MEAN, 5, 5);
    builder_rules(b, k, rule_of(k, c));
    for (int32_t t = 0; columns && t < b->in.num_tables; t++)
        builder_rule(b, t, kernel_applies(k, RULE_adagrad) ? RULE_adagrad : RULE_sgd);
    b->step = 3;
    builder_start(b);
    const char *wrong = builder_run(b, k, 2); /* sets b->before */
    if (wrong) fail_msg("%s", wrong);
}

/* Touched rows get their initial values back, on whichever rank they are. */
static int restored(struct place *p, const struct kernel *k, const struct builder *b,
                    struct error *err) {
    struct table_set now;
    if (p->ops->restore(p, k->traits & DENSE_STEP ? -1 : 0, err) ||
        tables_create(&now, b->in.tables, b->in.num_tables, b->seed + 1, err))
        return -1;
    int status = place_get_tables(p, &now, err);
    for (int32_t t = 0; t < b->in.num_tables && status == 0; t++)
        for (int a = 0; a < TABLE_ARRAYS && status == 0; a++)
            if (table_memory_bytes(&b->in.tables[t], a) &&
                memcmp(now.tables[t].array[a].data, b->before.tables[t].array[a].data,
                       table_memory_bytes(&b->in.tables[t], a)))
                status = (fail)(err, "table %d has other initial values than in one process", t);
    tables_free(&now);
    return status;
}

static int lead(void *ctx, struct transport *t, struct error *err) {
    struct work *w = ctx;
    struct builder *b = w->b;
    const struct ranks_options options = {w->cut->sharding, w->cut->all_rows, w->cut->overlap};
    struct place_setup setup = ranks_setup(b);
    setup.threads = 2;
    setup.operation = w->kernel->operation;
    struct ranks_trial trial = {.kernel = w->kernel,
                                .forward = w->forward,
                                .before = tables_copy_row,
                                .before_ctx = &b->before};
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    int status = ranks_try(&trial, p, &setup, b, err);
    free(trial.output);
    if (status == 0) status = restored(p, w->kernel, b, err);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    return ranks_live(t, lead, w, w->wrong, sizeof w->wrong);
}

static void steps_equal(const struct kernel *k, const struct cut *c) {
    const bool dense = strstr(c->sharding, "dense"), copies = strstr(c->sharding, "data") && !dense;
    struct builder b;
    size_t bytes;
    build(&b, k, c);
    void *one = builder_snapshot(&b, &bytes), *many = NULL;
    struct work w = {.b = &b, .kernel = k, .cut = c};
    tables_reset(&b.tables);
    const int status = transport_threads(c->ranks, c->nodes, 1 + c->number, live, &w);
    if (copies && c->ranks > 1 && !(k->traits & DETERMINISTIC)) {
        assert_int_not_equal(status, 0);
        assert_non_null(strstr(w.wrong, "drift apart"));
    } else {
        if (status) fail_msg("%s: %s", c->name, w.wrong);
        many = builder_snapshot(&b, &bytes);
        const char *judged = builder_judge(&b, k);
        if (judged) fail_msg("%s: %s", c->name, judged);
        /* A dense gradient is a sum of the ranks' sums. */
        if ((b.sums_exact || (k->traits & OWN_LOOKUPS && !dense)) && memcmp(one, many, bytes))
            fail_msg("%s: other bits than one process", c->name);
    }
    free(one);
    free(many);
    builder_free(&b);
}

static void equals_one_process(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    for (int n = 0; n < OF_EACH * SHARDINGS_TESTED; n++) {
        const struct cut c = draw(n);
        steps_equal(k, &c);
    }
}

/* All rows of an output, whichever rank has the bag; and iterations, whose step has other exchanges
 * before it. */
static void forwards_and_iterations(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct error err;
    const struct kernel *step = registry_find(OP_STEP, "cpu_fused", &err);
    for (int n = 0; n < OF_EACH * SHARDINGS_TESTED; n++) {
        const bool iteration = n / SHARDINGS_TESTED % 2 == 0;
        const struct cut c = draw(n);
        struct builder b;
        build(&b, step, &c);
        struct work w = {
            .b = &b, .kernel = iteration ? step : k, .forward = iteration ? k : NULL, .cut = &c};
        if (transport_threads(c.ranks, c.nodes, 1 + c.number, live, &w))
            fail_msg("%s, %s: %s", c.name, iteration ? "iteration" : "forward", w.wrong);
        builder_free(&b);
    }
}

TESTS(ranks) {
    for (const struct registered *r = registry(); r->kernel; r++) {
        if (r->kernel->place != ON_HOST) continue;
        if (r->kernel->operation == OP_FORWARD)
            add_test("forward and iteration", forwards_and_iterations, r->kernel, NULL);
        if (r->kernel->operation == OP_STEP)
            add_test("ranks equal one process", equals_one_process, r->kernel, NULL);
    }
    return run_listed("ranks");
}
