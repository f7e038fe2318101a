/* SPDX-License-Identifier: MIT
 *
 * Tables with a part of their rows in slots beside tables in memory: after many steps over several
 * batches all rows and states have the same bits, for every kernel and policy, and several budgets;
 * with real gradients for kernels that sum a row in the order of its lookups. Slots are in host
 * memory over a disk, and in device memory over host memory.
 */
#define _GNU_SOURCE
#define TIER_FOLDER "tier_place"
#include "extras/tiers/tests/tier_case.h"

static void expect_counts(const struct test *x, const struct tier_counts *c, double budget,
                          bool least) {
    int64_t rows = 0; /* that batches have touched */
    for (int step = 0; step < STEPS; step++) rows += x->index[step % RING].rows;
    assert_true(c->batches == STEPS && c->rows == rows);
    assert_true(c->row_misses > 0 && c->row_misses <= c->rows);
    assert_true(c->lookup_misses >= c->row_misses && c->lookup_misses < c->lookups);
    if (least) assert_true(c->written_back > 0);
    if (budget == 1) assert_int_equal(c->written_back, 0);
}

/* Each policy with one budget and number of batches ahead; which ones depends on the number of
 * the case. */
static void with_slots(struct test *x, const struct kernel *k, const struct table_set *want,
                       int number) {
    const double budgets[] = {least_budget(x), 0.7, 1};
    static const int aheads[] = {0, 1, 2, 4};
    struct error err;
    char what[100];
    for (int p = 0; p < POLICIES; p++) {
        const double budget = budgets[(p + number) % 3];
        const bool least = budget == budgets[0];
        no_folder(TIER_FOLDER);
        struct place *tier = open_over(x, k->place, (enum policy)p, budget, least);
        snprintf(what, sizeof what, "%s, budget %g", policy_names[p], budget);
        if (steps_ahead(x, tier, k, 0, STEPS, aheads[(p + number / 3) % 4], &err))
            fail_msg("%s: %s", what, err.text);
        expect_counts(x, &tier_resident(tier)->counts, budget, least);
        expect_tables(x, want, tier, what);
        tier->ops->close(tier);
    }
}

static void same_bits(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct error err;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int real = 0; real < (k->traits & OWN_LOOKUPS ? 2 : 1); real++) {
            struct test x;
            begin(&x, specs[s], real ? GRAD_REAL : GRAD_EXACT);
            if (k->traits & DENSE_STEP) {
                struct place *p = open_over(&x, k->place, POLICY_LRU, 1, true);
                assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
                assert_non_null(strstr(err.text, "changes rows that no lookup touches"));
                p->ops->close(p);
            } else {
                struct place *whole = place_open(k->place, &x.setup, &err);
                if (steps(&x, whole, k, 0, STEPS, &err)) fail_msg("%s", err.text);
                struct table_set want = tables_of(&x, whole);
                with_slots(&x, k, &want, (int)(strlen(k->name) + 2 * s) + real);
                tables_free(&want);
                whole->ops->close(whole);
            }
            end(&x);
        }
}

/* Another place finds the rows of the last commit in RocksDB. */
static void rocksdb_lasts(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_EXACT);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct tier_options o = options_of(&x, ON_HOST, POLICY_LRU, least_budget(&x));
    struct place *whole = place_open(ON_HOST, &x.setup, &err);
    o.store = &rocksdb_store;
    for (int run = 0; run < 3; run++) {
        struct place *p = place_tier_open(&o, &x.setup, &err);
        if (!p && strstr(err.text, "this build has no RocksDB")) skip();
        if (!p) fail_msg("%s", err.text);
        expect_places(&x, whole, p, run ? "opened again" : "opened");
        if (steps(&x, p, k, 4 * run, 4 * run + 4, &err) || tier_commit(p, &err) ||
            steps(&x, whole, k, 4 * run, 4 * run + 4, &err))
            fail_msg("%s", err.text);
        p->ops->close(p);
    }
    whole->ops->close(whole);
    end(&x);
}

TESTS(tier_place) {
    for (const struct registered *r = registry(); r->kernel; r++) /* not for these rules */
        if (r->kernel->operation == OP_STEP && !(r->kernel->traits & STEP_PER_LOOKUP))
            add_test("the bits of memory", same_bits, r->kernel, NULL);
    add_test("RocksDB has the rows of the last commit", rocksdb_lasts, NULL, NULL);
    return run_listed("tables with rows in slots");
}
