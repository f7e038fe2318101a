/* SPDX-License-Identifier: MIT
 *
 * What the checks of a workload share, attacked: a kernel that is right teaches the check its answer, and a wrong
 * kernel after it must be found no less.
 */
#include <math.h>
#include <string.h>

#include "harness/measure/measure.h"
#include "harness/registry.h"
#include "tests/generate.h"
#include "tests/kernel_tests.h"

static const char spec[] = "workload w\ntables 2\nrows 5000\ndim 4\nbatch 60\nlength uniform 0 "
                           "9\nids zipf\nalpha 1\nrule %s\n";

struct bench {
    struct workload w;
    struct measure m;
    struct scratch_use use;
    struct check_result result;
    struct error err;
};

static void open_with(struct bench *b, const char *rule) {
    char text[sizeof spec + 40];
    memset(b, 0, sizeof *b);
    snprintf(text, sizeof text, spec, rule);
    b->w = generate(text, 2, GRAD_EXACT);
    if (measure_open(&b->m, &b->w, OP_STEP, GRAD_EXACT, 2, &b->err) ||
        measure_open_place(&b->m, ON_HOST, &b->err))
        fail_msg("%s", b->err.text);
}

static void close_all(struct bench *b) {
    measure_close(&b->m);
    workload_free(&b->w);
}

static const struct kernel *find(const char *name) {
    struct error err;
    return registry_find(OP_STEP, name, &err);
}

static int admit(struct bench *b, const struct kernel *k) {
    return measure_admit(&b->m, k, MODE_COLD, &b->use, &b->result, &b->err);
}

static int check(struct bench *b, const struct kernel *k, int batch) {
    return measure_check(&b->m, k, MODE_COLD, batch, &b->result, &b->err);
}

static float *weights_of(const struct table *io, int32_t t, int64_t row) {
    return array_row(&io[t].weight, row);
}

static void flip(float *x) {
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

static float *spoiled(const struct table *io, int32_t t, int64_t row) {
    return weights_of(io, t, row) + 3;
}

static int spoiling_run(const struct batch *in, const struct rule_step *steps,
                        const struct table *io, const struct launch *how) {
    const int status = find("cpu_sort")->run(in, steps, io, how);
    flip(spoiled(io, spoilt.table, spoilt.row));
    return status;
}

static bool touches(const struct bench *b, int batch, int32_t t, int64_t row) {
    const struct row_index *x = &b->m.index[batch];
    const struct row_run *u = &x->run[row_index_find(x, t, row)];
    return u->table == t && u->row == row;
}

/* Rows of the first and the last block, looked up by the batch, by the one before, or by none: found, and named; after
 * that all rows are as they were. */
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
    close_all(&b);
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
        flip(spoiled(io, 1, row));
        assert_int_equal(check(&b, right, 0), 1);
        assert_int_equal(check(&b, right, 0), 0); /* a wrong step restores all rows */
    }
    close_all(&b);
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
        close_all(&b);
    }
}

/* A step per lookup may round otherwise; what it left is not right for others. */
static int rounding_run(const struct batch *in, const struct rule_step *steps,
                        const struct table *io, const struct launch *how) {
    const int status = find("cpu_sort")->run(in, steps, io, how);
    float *weight = weights_of(io, spoilt.table, spoilt.row);
    *weight = nextafterf(*weight, 1);
    return status;
}

static void per_lookup(void **state) {
    (void)state;
    struct bench b;
    open_with(&b, "sgd");
    struct kernel each = *find("cpu_sort"), once = each;
    each.run = once.run = rounding_run;
    each.traits |= STEP_PER_LOOKUP;
    spoilt.table = b.m.index[0].run[0].table, spoilt.row = b.m.index[0].run[0].row;
    for (int again = 0; again < 2; again++) {
        assert_int_equal(admit(&b, &each), 0);
        assert_int_equal(admit(&b, &once), 1);
        assert_int_equal(admit(&b, find("cpu_sort")), 0);
    }
    close_all(&b);
}

int main(void) {
    add_test("one bit more", one_bit, NULL, NULL);
    add_test("a row that was not restored", wrong_reset, NULL, NULL);
    add_test("dense and lazy steps", dense_and_lazy, NULL, NULL);
    add_test("a step per lookup", per_lookup, NULL, NULL);
    return run_listed("measure");
}
