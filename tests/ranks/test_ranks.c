/* SPDX-License-Identifier: MIT
 *
 * Steps of several ranks beside steps of one process: threads are the ranks, and deliver messages in random
 * orders. Exact sums: the same bits for every kernel, and also in each row's states. Real gradients: the
 * same bits for kernels with the trait OWN_LOOKUPS, and all others within the bound of the check.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/measure/runner.h"
#include "ranks/place_ranks.h"
#include "tests/ranks/ranks_case.h"

#include "tests/support/kernel_tests.h"

static void build(struct builder *b, const struct kernel *k, bool exact, bool weighted,
                  int first_rule) {
    builder_begin(b, exact ? 21 : 22, exact);
    b->weighted = weighted;
    ranks_case(b, 47, POOL_MEAN, 5, 5);
    builder_rules(b, k, (enum rule_kind)first_rule);
    b->step = 3;
}

/* One way to cut the tables. */
struct cut {
    const char *sharding;
    int ranks, nodes;
    bool all_rows, columns, overlap;
};

struct work {
    struct builder *b;
    const struct kernel *kernel, *forward;
    const struct cut *cut;
    bool given; /* rank 0 gives the content of the tables; otherwise each rank draws its part */
    char wrong[600];
};

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

/* A step, a forward, or both as an iteration, which the runner also checks. */
static int lead(void *ctx, struct transport *t, struct error *err) {
    struct work *w = ctx;
    struct builder *b = w->b;
    const bool writes = w->forward || w->kernel->operation == OP_FORWARD;
    const struct ranks_options options = {w->cut->sharding, w->cut->all_rows, w->cut->overlap};
    const struct place_setup setup = {.shapes = b->in.tables,
                                      .num_tables = b->in.num_tables,
                                      .batches = &b->in,
                                      .index = &b->index,
                                      .ring = 1,
                                      .threads = 2,
                                      .seed = b->seed,
                                      .tables = w->given ? &b->before : NULL,
                                      .operation = w->kernel->operation};
    const struct check check = {.in = &b->in,
                                .index = &b->index,
                                .rules = b->rules,
                                .step = b->step,
                                .before = tables_copy_row,
                                .before_ctx = &b->before,
                                .exact = b->sums_exact};
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    struct rule_step steps[8];
    for (int32_t i = 0; i < b->in.num_tables; i++) steps[i] = rule_step(b->rules[i], b->step);
    struct place_scratch scratch = {0}, output = {0};
    const struct place_job job = {.kernel = w->kernel,
                                  .forward = w->forward,
                                  .steps = steps,
                                  .scratch = &scratch,
                                  .output = writes ? &output : NULL};
    struct check_result result = {0};
    int status = runner_scratch_open(p, w->kernel, &scratch, err);
    if (status == 0 && writes) status = runner_output_open(p, &setup, OP_FORWARD, &output, err);
    if (status == 0) status = runner_step(p, &job, POISON, err);
    if (status == 0) status = runner_check(p, &job, check, &result, err);
    if (status == 1 && result.message[0]) (fail)(err, "%s", result.message);
    if (status == 0) status = place_get_tables(p, &b->tables, err);
    if (status == 0 && !w->given) status = restored(p, w->kernel, b, err);
    p->ops->scratch_close(p, &scratch);
    p->ops->scratch_close(p, &output);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    return ranks_live(t, lead, w, w->wrong, sizeof w->wrong);
}

static const struct cut cuts[] = {{"table", 1, 1, false, true},
                                  {"table", 2, 1, false, true},
                                  {"table", 3, 1, false, true},
                                  {"table", 5, 1, false, true},
                                  {"row", 1, 1, false, false},
                                  {"row", 2, 1, false, false},
                                  {"row", 3, 1, false, false},
                                  {"row", 5, 1, false, false},
                                  {"row", 5, 1, true, false},
                                  {"row-modulo", 1, 1, false, false},
                                  {"row-modulo", 2, 1, false, false},
                                  {"row-modulo", 3, 1, true, false},
                                  {"row-modulo", 5, 1, false, false},
                                  {"table-row", 4, 2, false, false},
                                  {"table-row", 5, 1, false, false},
                                  {"data", 1, 1, false, false},
                                  {"data", 2, 1, false, false},
                                  {"data", 3, 1, false, false},
                                  {"data", 5, 1, false, false},
                                  {"row,data,table", 3, 1, false, false},
                                  {"column", 1, 1, false, true},
                                  {"column", 2, 1, false, true},
                                  {"column", 3, 1, false, true},
                                  {"column", 5, 1, false, true},
                                  {"column-modulo", 1, 1, false, true},
                                  {"column-modulo", 2, 1, false, true},
                                  {"column-modulo", 3, 1, false, true},
                                  {"column-modulo", 5, 1, false, true},
                                  {"column,row-modulo,data", 5, 1, false, true},
                                  {"data-dense", 1, 1},
                                  {"data-dense", 2, 1},
                                  {"data-dense", 3, 1},
                                  {"data-dense", 5, 1},
                                  {"row,data-dense,table", 3, 1, .overlap = true},
                                  {"row", 3, 1, .overlap = true},
                                  {"data,row,table", 5, 1, .overlap = true}};

/* Sanitizers are slow: each cut meets every second variant. */
enum { EVERY = WITH_SANITIZER ? 2 : 1 };

static void equals_one_process(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    if (k->place != ON_HOST) skip();
    for (int variant = 0; variant < 4; variant++) {
        const bool exact = variant % 2 == 0, weighted = variant >= 2;
        for (size_t i = (size_t)variant % EVERY; i < sizeof cuts / sizeof *cuts; i += EVERY) {
            struct builder b;
            /* Rules on single elements where columns are cut. */
            build(&b, k, exact, weighted, cuts[i].columns ? RULE_adagrad : RULE_rowwise_adagrad);
            if (cuts[i].columns)
                for (int32_t t = 0; t < b.in.num_tables; t++)
                    builder_rule(&b, t, kernel_applies(k, RULE_adagrad) ? RULE_adagrad : RULE_sgd);
            builder_start(&b);
            const char *wrong = builder_run(&b, k, 2);
            if (wrong) fail_msg("%s", wrong);
            size_t bytes;
            void *one = builder_snapshot(&b, &bytes);
            struct work w = {.b = &b, .kernel = k, .cut = &cuts[i], .given = weighted};
            tables_reset(&b.tables);
            const int status = transport_threads(cuts[i].ranks, cuts[i].nodes, 1 + i, live, &w);
            if (strstr(cuts[i].sharding, "data") && !strstr(cuts[i].sharding, "dense") &&
                cuts[i].ranks > 1 && !(k->traits & DETERMINISTIC)) {
                assert_int_not_equal(status, 0);
                assert_non_null(strstr(w.wrong, "drift apart"));
                free(one);
                builder_free(&b);
                continue;
            }
            if (status)
                fail_msg("%s on %d ranks, %s: %s", cuts[i].sharding, cuts[i].ranks, k->name,
                         w.wrong);
            void *many = builder_snapshot(&b, &bytes);
            const bool same = memcmp(one, many, bytes) == 0;
            const char *judged = builder_judge(&b, k);
            if (judged)
                fail_msg("%s on %d ranks, %s: %s", cuts[i].sharding, cuts[i].ranks, k->name,
                         judged);
            /* A dense gradient is a sum of the ranks' sums. */
            const bool ordered = k->traits & OWN_LOOKUPS && !strstr(cuts[i].sharding, "dense");
            if (!same && (b.sums_exact || ordered))
                fail_msg("%s on %d ranks, %s: other bits than one process (%s)", cuts[i].sharding,
                         cuts[i].ranks, k->name, exact ? "exact" : "real");
            free(one);
            free(many);
            builder_free(&b);
        }
    }
}

/* All rows of an output, whoever has the bag; and iterations, whose step has other exchanges before it. */
static void forwards_and_iterations(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct error err;
    if (k->place != ON_HOST) skip();
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        for (int variant = (int)i / 2 % EVERY; variant < 4; variant += EVERY) {
            struct builder b;
            const bool iteration = variant % 2;
            const struct kernel *step = registry_find(OP_STEP, "cpu_fused", &err);
            build(&b, step, variant % 2 == 0, variant >= 2,
                  cuts[i].columns ? RULE_adagrad : RULE_rowwise_adagrad);
            for (int32_t t = 0; cuts[i].columns && t < b.in.num_tables; t++)
                builder_rule(&b, t, RULE_adagrad);
            builder_start(&b);
            const char *wrong = builder_run(&b, step, 2); /* sets b.before */
            if (wrong) fail_msg("%s", wrong);
            struct work w = {.b = &b,
                             .kernel = iteration ? step : k,
                             .forward = iteration ? k : NULL,
                             .cut = &cuts[i]};
            if (transport_threads(cuts[i].ranks, cuts[i].nodes, 1 + i, live, &w))
                fail_msg("%s on %d ranks, %s: %s", cuts[i].sharding, cuts[i].ranks,
                         iteration ? "iteration" : "forward", w.wrong);
            builder_free(&b);
        }
}

TESTS(ranks) {
    add_operation_tests(OP_FORWARD, "forward and iteration", forwards_and_iterations, NULL);
    add_kernel_tests("ranks equal one process", equals_one_process, NULL);
    return run_listed("ranks");
}
