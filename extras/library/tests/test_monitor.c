/* SPDX-License-Identifier: MIT
 *
 * The monitor of libembfuse: what it counts is what a plain loop over the batches counts, for every
 * kernel that it allows; a sample of the rows estimates the share of all; results of steps keep
 * their bits.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "extras/library/embfuse.h"
#include "extras/library/tests/state_case.h"

#include "tests/support/kernel_tests.h"
#include "extras/library/tests/says.h"

enum { ROWS = 4000, DIM = 20, STEPS = 30 };

/* A model of one table, and what a plain loop sees. */
struct training {
    struct state_case c;
    struct embfuse_model *model; /* that of c */
    uint32_t touches[ROWS], last[ROWS];
    double norm[ROWS], largest[ROWS], norms[ROWS * STEPS]; /* norms: of all touches */
    int64_t all;
};

static struct training *training_open(const char *kernel, int threads) {
    const struct embfuse_table table = {.rows = ROWS, .dim = DIM, .rule = "rowwise_adagrad"};
    const struct embfuse_options options = {
        .size = sizeof options, .kernel = kernel, .threads = threads};
    struct training *x = calloc(1, sizeof *x);
    state_case_open(&x->c, &table, 1, &options, 0, 0);
    state_case_begin(&x->c, 1);
    x->c.bags = 400;
    x->c.length = 11;
    x->model = x->c.model;
    return x;
}

static void training_close(struct training *x) {
    state_case_free(&x->c);
    free(x);
}

/* Gradients of some steps are 0; some rows have large ones. */
static void draw(struct training *x, int step) {
    state_case_draw(&x->c, (uint64_t)step);
    for (int q = 0; q < x->c.bags; q++)
        for (int d = 0; d < DIM; d++)
            x->c.grad[q * DIM + d] *= step % 5 == 4 ? 0 : q == 3 ? 1000.0f : 0.1f;
}

static void look(struct training *x, int step) {
    static double sum[ROWS][DIM];
    static bool touched[ROWS];
    memset(sum, 0, sizeof sum);
    memset(touched, 0, sizeof touched);
    for (int q = 0; q < x->c.bags; q++)
        for (int64_t i = x->c.offsets[q]; i < x->c.offsets[q + 1]; i++) {
            touched[x->c.ids[i]] = true;
            for (int d = 0; d < DIM; d++) sum[x->c.ids[i]][d] += (double)x->c.grad[q * DIM + d];
        }
    for (int r = 0; r < ROWS; r++) {
        double squares = 0;
        if (!touched[r]) continue;
        for (int d = 0; d < DIM; d++) squares += sum[r][d] * sum[r][d];
        x->touches[r]++;
        x->last[r] = (uint32_t)step + 1;
        x->norm[r] = x->norms[x->all++] = sqrt(squares);
        if (x->norm[r] > x->largest[r]) x->largest[r] = x->norm[r];
    }
}

static void train(struct training *x) {
    for (int step = 0; step < STEPS; step++) {
        draw(x, step);
        look(x, step);
        state_case_take(&x->c);
    }
}

static void expect_records(struct training *x, int64_t every) {
    const struct embfuse_watched_row *rows;
    int64_t count, first;
    FINE(embfuse_monitor_rows(x->model, 0, &rows, &count, &first, &why));
    assert_int_equal(count, (ROWS - 1 - first) / every + 1);
    for (int64_t i = 0; i < count; i++) {
        const int64_t r = first + i * every;
        assert_int_equal(rows[i].touches, x->touches[r]);
        assert_int_equal(rows[i].last_step, x->last[r]);
        assert_float_equal(rows[i].last_norm, x->norm[r], 1e-5 * x->norm[r]);
        assert_float_equal(rows[i].largest_norm, x->largest[r], 1e-5 * x->largest[r]);
    }
}

static void counts_as_a_plain_loop(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    for (int way = 0; way < 2; way++) {
        struct training *x = training_open(k->name, way ? 1 : 3);
        const int64_t every = way ? 8 : 1;
        if (k->traits & (DENSE_STEP | STEP_PER_LOOKUP)) {
            SAYS(EMBFUSE_REFUSED, k->name, embfuse_monitor_start(x->model, 0, every, &why));
        } else {
            FINE(embfuse_monitor_start(x->model, 0, every, &why));
            train(x);
            expect_records(x, every);
        }
        training_close(x);
    }
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The figures of all rows against a plain count. Of one row in 8 the share of rows that were never
 * touched lies within four standard errors. Steps without a monitor give the same bits. */
static void figures(void **state) {
    (void)state;
    struct training *x = training_open("cpu_fused", 2), *some = training_open(NULL, 1),
                    *none = training_open("cpu_fused", 2);
    struct embfuse_monitor m, of_some;
    int64_t never = 0, stale = 0, dead = 0;
    FINE(embfuse_monitor_start(x->model, 0, 1, &why));
    train(x);
    for (int r = 0; r < ROWS; r++) {
        never += !x->touches[r];
        stale += x->touches[r] && STEPS - x->last[r] >= 3;
        dead += x->touches[r] && x->norm[r] == 0;
    }
    FINE(embfuse_monitor_read(x->model, 0, 3, &m, &why));
    assert_true(m.rows == ROWS && m.watched == ROWS);
    assert_int_equal(m.touches, x->all);
    assert_int_equal(m.never, never);
    assert_int_equal(m.stale, stale);
    assert_int_equal(m.dead, dead);
    assert_true(never > 0 && stale > 0 && dead > 0 && m.outliers > 0);
    qsort(x->norms, (size_t)x->all, sizeof *x->norms, by_value);
    const double p50 = x->norms[x->all / 2], p90 = x->norms[x->all * 9 / 10],
                 largest = x->norms[x->all - 1];
    assert_float_equal(m.norm_p50, p50, 0.08 * p50);
    assert_float_equal(m.norm_p90, p90, 0.08 * p90);
    assert_float_equal(m.norm_largest, largest, 1e-5 * largest);
    assert_float_equal(m.never_error, 0, 0);
    FINE(embfuse_monitor_start(some->model, 0, 8, &why));
    train(some);
    FINE(embfuse_monitor_read(some->model, 0, 1, &of_some, &why));
    assert_true(of_some.never_error > 0);
    assert_float_equal(of_some.never_share, (double)never / ROWS, 4 * of_some.never_error);
    assert_int_equal(embfuse_monitor_start(some->model, 0, 3, NULL), EMBFUSE_INVALID);
    FINE(embfuse_monitor_start(some->model, 0, 1 << 20, &why)); /* anew */
    FINE(embfuse_monitor_read(some->model, 0, 1, &of_some, &why));
    assert_true(of_some.watched == 1 && of_some.never == 1 && of_some.touches == 0);
    FINE(embfuse_monitor_start(some->model, 0, 0, &why));
    assert_int_equal(embfuse_monitor_read(some->model, 0, 1, &m, NULL), EMBFUSE_INVALID);
    train(none);
    assert_null(state_case_differs(&x->c, &none->c));
    training_close(x), training_close(some), training_close(none);
}

TESTS(monitor) {
    add_kernel_tests_on(ON_HOST, "counts as a plain loop", counts_as_a_plain_loop, NULL);
    add_test("figures", figures, NULL, NULL);
    return run_listed("monitor");
}
