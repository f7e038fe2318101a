/* SPDX-License-Identifier: MIT
 *
 * What the checks of a workload share, attacked: a kernel that is right teaches the check its
 * answer, and a wrong kernel after it must be found no less. And what samples share: ceilings, and
 * the run before a warm sample.
 */
#include <math.h>
#include <string.h>

#include "harness/registry.h"
#include "tests/support/bench_case.h"
#include "tests/support/kernel_tests.h"

static void open_with(struct bench *b, const char *rule) {
    char more[60];
    snprintf(more, sizeof more, "rule %s\n", rule);
    bench_must(bench_open(b, more, OP_STEP, ON_HOST), b);
}

static const struct kernel *find(const char *name) {
    struct error err;
    return registry_find(OP_STEP, name, &err);
}

static int admit(struct bench *b, const struct kernel *k) {
    return bench_admit(b, k, MODE_COLD);
}

static int check(struct bench *b, const struct kernel *k, int batch) {
    return bench_check(b, k, MODE_COLD, batch);
}

/* Another last bit of a weight of the row. */
static void flip(const struct table *io, int32_t t, int64_t row) {
    float *x = (float *)array_row(&io[t].weight, row) + 3;
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    bits ^= 1;
    memcpy(x, &bits, sizeof bits);
}

/* --- one more bit than a right kernel writes */

static struct {
    int32_t table;
    int64_t row;
} spoilt; /* by the runs to come */

static int spoiling_run(const struct batch *in, const struct rule_step *steps,
                        const struct table *io, const struct launch *how) {
    const int status = find("cpu_sort")->run(in, steps, io, how);
    flip(io, spoilt.table, spoilt.row);
    return status;
}

static bool touches(const struct bench *b, int batch, int32_t t, int64_t row) {
    const struct row_index *x = &b->m.index[batch];
    const struct row_run *u = &x->run[row_index_find(x, t, row)];
    return u->table == t && u->row == row;
}

/* Rows of the first and the last block, looked up by the batch, by the one before, or by none:
 * found, and named; after that all rows are as they were. */
static void one_bit(void **state) {
    (void)state;
    struct bench b;
    open_with(&b, "rowwise_adagrad");
    const struct kernel *right = find("cpu_sort");
    struct kernel wrong = *right;
    int kinds[2][2] = {{0}};
    wrong.run = spoiling_run;
    assert_int_equal(admit(&b, right), 0);
    for (int batch = 0; batch < 2; batch++) assert_int_equal(check(&b, right, batch), 0);
    for (int32_t t = 0; t < 2; t++)
        for (int64_t row = 0; row < 5000; row += row < 20 || row > 4980 ? 1 : 71) {
            char where[60];
            spoilt.table = t, spoilt.row = row;
            kinds[touches(&b, 0, t, row)][touches(&b, 1, t, row)]++;
            assert_int_equal(check(&b, &wrong, 1), 1);
            assert_int_equal(b.result.wrong, 1);
            snprintf(where, sizeof where, "table %d row %d (", (int)t, (int)row);
            assert_memory_equal(b.result.message, where, strlen(where));
            assert_int_equal(check(&b, right, 1), 0);
        }
    assert_true(kinds[0][0] && kinds[0][1] && kinds[1][0] && kinds[1][1]);
    bench_close(&b);
}

/* A row that was not restored shows with the next kernel. */
static void wrong_reset(void **state) {
    (void)state;
    struct bench b;
    open_with(&b, "adagrad");
    const struct kernel *right = find("cpu_sort");
    const struct table *io = b.m.at[ON_HOST].place->ops->tables(b.m.at[ON_HOST].place);
    assert_int_equal(admit(&b, right), 0);
    for (int64_t row = 0; row < 5000; row += 4999) {
        flip(io, 1, row);
        assert_int_equal(check(&b, right, 0), 1);
        assert_int_equal(check(&b, right, 0), 0); /* a wrong step restores all rows */
    }
    bench_close(&b);
}

/* --- kernels with other right answers */

/* Adam moves idle rows if the step is dense: what is right with the trait is wrong without it. */
static void dense_and_lazy(void **state) {
    (void)state;
    for (int dense_first = 0; dense_first < 2; dense_first++) {
        struct bench b;
        open_with(&b, "adam");
        const struct kernel *lazy = find("cpu_sort"), *dense = find("cpu_dense");
        struct kernel as_lazy = *dense, as_dense = *lazy;
        as_lazy.traits &= ~(unsigned)DENSE_STEP;
        as_dense.traits |= DENSE_STEP;
        assert_int_equal(admit(&b, dense_first ? dense : lazy), 0);
        assert_int_equal(admit(&b, &as_dense), 1);
        assert_int_equal(admit(&b, &as_lazy), 1);
        assert_int_equal(admit(&b, dense_first ? lazy : dense), 0);
        assert_int_equal(admit(&b, &as_dense), 1);
        assert_int_equal(admit(&b, &as_lazy), 1);
        bench_close(&b);
    }
}

/* A step per lookup may round otherwise; what it left is not right for others. */
static void per_lookup(void **state) {
    (void)state;
    struct bench b;
    open_with(&b, "sgd");
    struct kernel each = *find("cpu_sort"), once = each;
    each.run = once.run = spoiling_run;
    each.traits |= STEP_PER_LOOKUP;
    spoilt.table = b.m.index[0].run[0].table, spoilt.row = b.m.index[0].run[0].row;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(admit(&b, &each), 0);
        assert_int_equal(admit(&b, &once), 1);
        assert_int_equal(admit(&b, find("cpu_sort")), 0);
    }
    bench_close(&b);
}

/* --- samples */

static struct {
    double copy_gbs; /* of the ceilings to come */
    int ceilings, runs;
} seen;

static int given_ceilings(struct place *p, struct ceiling *out, struct error *err) {
    (void)p, (void)err;
    seen.ceilings++;
    *out = (struct ceiling){.copy_gbs = seen.copy_gbs, .rmw_gbs = 2, .gather_gbs = 3};
    return 0;
}

static int counted_run(struct place *p, const struct place_job *job, struct error *err) {
    (void)p, (void)job, (void)err;
    seen.runs++;
    return 0;
}

static int counted_time(struct place *p, const struct place_job *job, bool cold,
                        struct step_times *out, struct error *err) {
    *out = (struct step_times){.seconds = cold ? 2 : 1};
    return counted_run(p, job, err);
}

/* A place without clock and kernels. */
static void open_counted(struct bench *b, struct place_ops *ops) {
    open_with(b, "sgd");
    struct place *p = b->m.at[ON_HOST].place;
    *ops = *p->ops;
    ops->ceilings = given_ceilings;
    ops->run = counted_run;
    ops->time = counted_time;
    p->ops = ops;
    seen.copy_gbs = 10;
    seen.ceilings = seen.runs = 0;
}

static struct sample take(struct bench *b, enum cache_mode mode, int round,
                          const struct sample *after) {
    struct sample s;
    if (measure_sample(&b->m, find("cpu_sort"), mode, round, after, &s, &b->err))
        fail_msg("%s", b->err.text);
    return s;
}

/* They hold for eight samples. */
static void ceilings_hold(void **state) {
    (void)state;
    struct bench b;
    struct place_ops ops;
    open_counted(&b, &ops);
    for (int i = 0; i < 17; i++) {
        if (i == 3) seen.copy_gbs = 11;
        const struct sample s = take(&b, MODE_COLD, i, NULL);
        assert_int_equal(seen.ceilings, i / 8 + 1);
        assert_true(s.ceiling.copy_gbs == (i < 8 ? 10 : 11));
    }
    bench_close(&b);
}

static void a_cold_sample_warms(void **state) {
    (void)state;
    struct bench b;
    struct place_ops ops;
    open_counted(&b, &ops);
    for (int round = 0; round < 2; round++) {
        seen.runs = 0;
        const struct sample cold = take(&b, MODE_COLD, round, NULL);
        assert_int_equal(seen.runs, 1);
        const int measured = seen.ceilings;
        const struct sample warm = take(&b, MODE_WARM, 0, &cold);
        assert_int_equal(seen.runs, 2);
        assert_int_equal(seen.ceilings, measured);
        assert_true(cold.times.seconds == 2 && warm.times.seconds == 1);
        assert_true(cold.batch == round && warm.batch == round);
        assert_true(warm.ceiling.copy_gbs == cold.ceiling.copy_gbs);
        take(&b, MODE_WARM, round, NULL);
        assert_int_equal(seen.runs, 4);
    }
    bench_close(&b);
}

TESTS(measure) {
    add_test("one bit more", one_bit, NULL, NULL);
    add_test("a row that was not restored", wrong_reset, NULL, NULL);
    add_test("dense and lazy steps", dense_and_lazy, NULL, NULL);
    add_test("a step per lookup", per_lookup, NULL, NULL);
    add_test("ceilings hold for a round", ceilings_hold, NULL, NULL);
    add_test("a cold sample warms", a_cold_sample_warms, NULL, NULL);
    return run_listed("measure");
}
