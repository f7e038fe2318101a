/* SPDX-License-Identifier: MIT
 *
 * Tables with a part of their rows in slots beside tables in memory: after many steps over several batches all rows and
 * states have the same bits, for every kernel, policy and budget; with real gradients for kernels that sum a row in the
 * order of its lookups. Slots are in host memory over a disk, and in device memory over host memory. And after a commit,
 * in another process.
 */
#define TIER_FOLDER "tier_place"
#include "tests/tiers/tier_case.h"

static void expect_counts(const struct tier_counts *c, double budget, bool least) {
    assert_true(c->batches == STEPS && c->row_misses <= c->rows && c->row_misses > 0);
    assert_true(c->lookup_misses >= c->row_misses && c->lookup_misses < c->lookups);
    if (least) assert_true(c->written_back > 0);
    if (budget == 1) assert_int_equal(c->written_back, 0);
    assert_int_equal(c->store.fetched, c->row_misses);
}

/* Rows that batches have touched, as a model of one line counts them. */
static void expect_rows(const struct test *x, const struct tier_counts *c) {
    int64_t rows = 0;
    for (int step = 0; step < STEPS; step++) rows += x->index[step % RING].rows;
    assert_int_equal(c->rows, rows);
}

/* Sanitizers are slow. */
enum { EVERY = WITH_SANITIZER ? 3 : 1 };

static void with_slots(struct test *x, const struct kernel *k, const struct table_set *want) {
    const double budgets[] = {least_budget(x), 0.7, 1};
    const int aheads[] = {0, 1, 2, 4};
    struct error err;
    char what[100];
    for (int p = 0; p < POLICIES; p++)
        for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
            if (((size_t)p + b) % EVERY) continue;
            state_no_folder(TIER_FOLDER);
            struct place *tier = open_over(x, k->place, (enum policy)p, budgets[b], b == 0);
            snprintf(what, sizeof what, "%s, budget %g", policy_names[p], budgets[b]);
            if (steps_ahead(x, tier, k, 0, STEPS, aheads[((size_t)p + b) % 4], &err))
                fail_msg("%s: %s", what, err.text);
            struct tier_counts c = tier_counts(tier);
            expect_counts(&c, budgets[b], b == 0);
            expect_rows(x, &c);
            struct table_set got = tables_of(x, tier);
            expect_same(x, want, &got, what);
            tables_free(&got);
            tier->ops->close(tier);
        }
}

static void same_bits(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const enum grad_mode *kind = ((const struct kernel_test *)*state)->param;
    struct error err;
    if (*kind == GRAD_REAL && !(k->traits & OWN_LOOKUPS)) skip();
    if (k->traits & STEP_PER_LOOKUP) skip(); /* not for these rules */
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct test x;
        begin(&x, specs[s], *kind);
        struct place *whole = place_open(k->place, &x.setup, &err);
        if (k->traits & DENSE_STEP) {
            struct place *p = open_tier_on(&x, k->place, POLICY_LRU, 1);
            assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
            assert_non_null(strstr(err.text, "changes rows that no lookup touches"));
            p->ops->close(p);
        } else {
            if (steps(&x, whole, k, 0, STEPS, &err)) fail_msg("%s", err.text);
            struct table_set want = tables_of(&x, whole);
            with_slots(&x, k, &want);
            tables_free(&want);
        }
        whole->ops->close(whole);
        end(&x);
    }
}

/* With real gradients, each batch alone. */
static void within_bounds(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct error err;
    if (k->traits & (DENSE_STEP | STEP_PER_LOOKUP)) skip();
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct test x;
        struct rule rules[4];
        struct rule_step steps[4];
        struct place_scratch scratch;
        begin(&x, specs[s], GRAD_REAL);
        const struct table_set before = {
            .count = x.w.num_tables, .shapes = x.w.tables, .seed = SEED};
        struct place *p = open_tier_on(&x, k->place, POLICY_LRU, least_budget(&x));
        if (runner_scratch_open(p, k, &scratch, &err)) fail_msg("%s", err.text);
        for (int32_t t = 0; t < x.w.num_tables; t++) {
            rules[t] = rule_default(x.w.tables[t].rule);
            steps[t] = rule_step(rules[t], 1);
        }
        for (int b = 0; b < RING; b++) {
            const struct place_job job = {
                .kernel = k, .batch = b, .steps = steps, .scratch = &scratch};
            const struct check check = {.in = &x.w.batches[b],
                                        .index = &x.index[b],
                                        .rules = rules,
                                        .step = 1,
                                        .before = tables_initial_row,
                                        .before_ctx = &before};
            struct check_result result = {0};
            if (runner_step(p, &job, POISON, &err)) fail_msg("%s", err.text);
            if (runner_check(p, &job, check, &result, &err))
                fail_msg("batch %d: %s", b, result.message[0] ? result.message : err.text);
            if (p->ops->restore(p, b, &err)) fail_msg("%s", err.text);
        }
        p->ops->scratch_close(p, &scratch);
        p->ops->close(p);
        end(&x);
    }
}

static void no_cold_caches(void **state) {
    (void)state;
    struct test x;
    struct ceiling ceilings;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    struct place *p = open_tier_on(&x, ON_DEVICE, POLICY_LRU, 1);
    assert_int_equal(p->ops->flush(p, &err), -1);
    assert_non_null(strstr(err.text, "no cold caches and no ceilings"));
    assert_int_equal(p->ops->ceilings(p, &ceilings, &err), -1);
    p->ops->close(p);
    end(&x);
}

/* Steps, a commit, another place goes on; what came after its commit is gone. */
static void goes_on(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct place *whole = place_host_open(&x.setup, &err);
    if (steps(&x, whole, k, 0, 9, &err)) fail_msg("%s", err.text);
    struct table_set want = tables_of(&x, whole);
    struct place *p = open_tier(&x, POLICY_LRU, 0.4);
    assert_int_equal(steps(&x, p, k, 0, 4, &err), 0);
    assert_int_equal(tier_commit(p, 4, &err), 0);
    assert_int_equal(steps(&x, p, k, 4, 8, &err), 0);
    p->ops->close(p);
    p = open_tier(&x, POLICY_CLOCK, 0.5);
    assert_int_equal(steps(&x, p, k, 4, 9, &err), 0);
    struct table_set got = tables_of(&x, p);
    expect_same(&x, &want, &got, "after a commit");
    /* Restored rows are initial ones again. */
    assert_int_equal(p->ops->restore(p, 2, &err), 0);
    assert_int_equal(whole->ops->restore(whole, 2, &err), 0);
    tables_free(&got);
    tables_free(&want);
    got = tables_of(&x, p), want = tables_of(&x, whole);
    expect_same(&x, &want, &got, "restored");
    assert_int_equal(p->ops->restore(p, -1, &err), 0);
    assert_int_equal(whole->ops->restore(whole, -1, &err), 0);
    tables_free(&got);
    tables_free(&want);
    got = tables_of(&x, p), want = tables_of(&x, whole);
    expect_same(&x, &want, &got, "all restored");
    assert_true(tier_bytes(p) > 0);
    tables_free(&got);
    tables_free(&want);
    p->ops->close(p);
    whole->ops->close(whole);
    end(&x);
}

TESTS(tier_place) {
    static const enum grad_mode exact = GRAD_EXACT, real = GRAD_REAL;
    add_kernel_tests("exact sums have the bits of memory", same_bits, &exact);
    add_kernel_tests("real sums have the bits of memory", same_bits, &real);
    add_kernel_tests("real sums stay within the bound", within_bounds, NULL);
    add_test("no cold caches on a device", no_cold_caches, NULL, NULL);
    add_test("goes on after a commit", goes_on, NULL, NULL);
    return run_listed("tables with rows in slots");
}
