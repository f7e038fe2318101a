/* SPDX-License-Identifier: MIT
 *
 * Batches of a place with rows in slots that are announced or refused, and rows so wide
 * that they travel in several turns: what has run before is kept.
 */
#define _GNU_SOURCE
#define TIER_FOLDER "tier_refused"
#include "extras/tiers/tests/tier_case.h"

/* Batches are run as they were announced, and what goes wrong ahead is said by the run. */
static void announced(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct place *p = open_over(&x, ON_HOST, POLICY_LRU, least_budget(&x), true);
    assert_int_equal(tier_announce(p, 0, &err), 0);
    assert_int_equal(tier_announce(p, 0, &err), -1);
    assert_non_null(strstr(err.text, "batch 0 is announced, and has not run"));
    assert_int_equal(tier_commit(p, &err), -1);
    assert_non_null(strstr(err.text, "batches are announced; run them first"));
    assert_int_equal(p->ops->restore(p, -1, &err), -1);
    assert_int_equal(steps(&x, p, k, 1, 2, &err), -1);
    assert_non_null(strstr(err.text, "batch 1 runs, and batch 0 was announced"));
    assert_int_equal(steps(&x, p, k, 0, 1, &err), 0);
    p->ops->close(p);
    /* Closed while one has its slots, and others wait for them. */
    for (int device = 0; device < 2; device++) {
        p = open_over(&x, device ? ON_DEVICE : ON_HOST, POLICY_LRU, least_budget(&x), true);
        for (int b = 0; b < RING; b++) assert_int_equal(tier_announce(p, b, &err), 0);
        p->ops->close(p);
    }
    end(&x);
}

static int64_t rows_in(const struct test *x, int batch, int32_t table) {
    return row_index_find(&x->index[batch], table + 1, 0) -
           row_index_find(&x->index[batch], table, 0);
}

static bool fits(const struct test *x, int batch, int32_t table, double budget) {
    return rows_in(x, batch, table) <= tier_slots(budget, x->w.tables[table].rows);
}

/* A budget that suffices for one batch, and for another one's first table but not for its
 * second. */
static double budget_between(const struct test *x, int *small, int *large) {
    for (double budget = 0.01; budget < 1; budget += 0.002)
        for (*small = 0; *small < RING; ++*small)
            for (*large = 0; *large < RING; ++*large)
                if (fits(x, *small, 0, budget) && fits(x, *small, 1, budget) &&
                    fits(x, *large, 0, budget) && !fits(x, *large, 1, budget))
                    return budget;
    fail_msg("no such budget");
    return 0;
}

/* What has run before is not lost, and other batches run. */
static void after_a_refused_batch(void **state) {
    const enum backend fast = *(const enum backend *)((const struct kernel_test *)*state)->param;
    struct test x;
    struct error err;
    int small, large;
    begin(&x, specs[0], GRAD_EXACT);
    const struct kernel *k =
        registry_find(OP_STEP, fast == ON_HOST ? "cpu_sort" : "cuda_sort", &err);
    const double budget = budget_between(&x, &small, &large);
    struct place *whole = place_open(fast, &x.setup, &err),
                 *p = open_over(&x, fast, POLICY_LRU, budget, true);
    for (int round = 0; round < 6; round++) {
        const int ahead = round % 3;
        for (int n = 0; n < ahead; n++)
            assert_int_equal(tier_announce(p, n ? large : small, &err), 0);
        assert_int_equal(steps(&x, p, k, small, small + 1, &err), 0);
        assert_int_equal(steps(&x, whole, k, small, small + 1, &err), 0);
        assert_int_equal(steps(&x, p, k, large, large + 1, &err), -1);
        assert_non_null(strstr(err.text, "table 1, with the rows of the budget: a batch touches"));
        assert_int_equal(tier_commit(p, &err), 0);
    }
    expect_places(&x, whole, p, "beside refused batches");
    p->ops->close(p);
    whole->ops->close(whole);
    end(&x);
}

/* Rows are so wide that a batch travels in several turns, also when all are committed,
 * read and restored. */
static void several_turns(void **state) {
    static const char spec[] = "workload c\nrows 400\ndim 4096\nbatch 250\nlength fixed 2\nids "
                               "zipf\nalpha 0.4\nrule adam\n";
    const enum backend fast = *(const enum backend *)((const struct kernel_test *)*state)->param;
    struct test x;
    struct error err;
    begin(&x, spec, GRAD_EXACT);
    const struct kernel *k =
        registry_find(OP_STEP, fast == ON_HOST ? "cpu_sort" : "cuda_sort", &err);
    struct place *whole = place_open(fast, &x.setup, &err),
                 *p = open_over(&x, fast, POLICY_LFU, 0.8, true);
    assert_true(x.index[0].rows > 2 * (4 << 20) / tier_resident(p)->records[0].bytes);
    if (steps(&x, whole, k, 0, 4, &err) || steps_ahead(&x, p, k, 0, 4, 1, &err) ||
        tier_commit(p, &err))
        fail_msg("%s", err.text);
    for (int restored = 0; restored < 3; restored++) {
        expect_places(&x, whole, p, restored ? "wide rows, restored" : "wide rows");
        const int batch = restored ? -1 : 0; /* its rows, then all */
        if (p->ops->restore(p, batch, &err) || whole->ops->restore(whole, batch, &err))
            fail_msg("%s", err.text);
    }
    p->ops->close(p);
    whole->ops->close(whole);
    end(&x);
}

static void refused(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    struct tier_options o = options_of(&x, ON_HOST, POLICY_LRU, 1.5);
    assert_null(place_tier_open(&o, &x.setup, &err));
    assert_non_null(strstr(err.text, "budget 1.5: a share of the rows, above 0 and up to 1"));
    o.budget = 1;
    x.w.tables[0].rounding = ROUND_STOCHASTIC;
    assert_null(place_tier_open(&o, &x.setup, &err));
    assert_non_null(strstr(err.text, "there are no stochastic rounding"));
    x.w.tables[0].rounding = ROUND_NEAREST;
    end(&x);
}

TESTS(tier_refused) {
    static const enum backend host = ON_HOST, device = ON_DEVICE;
    add_test("announced", announced, NULL, NULL);
    add_test("after a refused batch", after_a_refused_batch, NULL, &host);
    add_test("after a refused batch, on a device", after_a_refused_batch, NULL, &device);
    add_test("wide rows take several turns", several_turns, NULL, &host);
    add_test("wide rows take several turns on a device", several_turns, NULL, &device);
    add_test("refused", refused, NULL, NULL);
    return run_listed("tables with rows in slots: what is refused");
}
