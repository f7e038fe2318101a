/* SPDX-License-Identifier: MIT
 *
 * Averages of the weights of a training with three tables of three types, full and lazy, of SWA and
 * of two decays: against the mean of all snapshots in double precision; the same bits for any
 * number of threads; what is refused, with nothing changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "extras/library/embfuse.h"
#include "kernels/dtype.h"
#include "extras/library/tests/state_case.h"

#include "extras/library/tests/says.h"

enum {
    TABLES = 3,
    ROWS = 900,
    DIM = 96,
    STRIDE = DIM + 4, /* of averages, in elements */
    STEPS = 40,
    KINDS = 3,
    WAYS = 2,
    AVERAGES = TABLES * KINDS * WAYS,
};

struct training {
    struct state_case c;
    struct embfuse_average averages[AVERAGES]; /* of each table and kind a full and a lazy one */
    float data[AVERAGES][ROWS * STRIDE];
    int64_t row_updates[AVERAGES][ROWS];
    double expected[TABLES][KINDS][ROWS * DIM];
};

static const double decays[] = {0.9, 0.999};
static const enum embfuse_type types[TABLES] = {EMBFUSE_FP32, EMBFUSE_BF16, EMBFUSE_FP16};

static struct training *training_open(const char *kernel, int threads) {
    struct training *x = calloc(1, sizeof *x);
    struct state_case *c = &x->c;
    struct embfuse_table tables[TABLES];
    for (int t = 0; t < TABLES; t++)
        tables[t] = (struct embfuse_table){.rows = ROWS,
                                           .dim = DIM,
                                           .weight_type = types[t],
                                           .rounding = EMBFUSE_STOCHASTIC,
                                           .rule = t == 1 ? "sgd" : "adam"};
    const struct embfuse_options options = {
        .size = sizeof options, .kernel = kernel, .threads = threads, .rounding_seed = 5};
    state_case_open(c, tables, TABLES, &options, 0, 0);
    state_case_begin(c, 1);
    c->bags = 48;
    c->length = 40; /* enough for several threads */
    embfuse_set(c->model, -1, "lr", 0.05, NULL);
    embfuse_set(c->model, 1, "lr", 0.01, NULL);
    for (int i = 0; i < AVERAGES; i++) {
        const int kind = i / WAYS % KINDS;
        for (int64_t d = 0; d < ROWS * STRIDE; d++) x->data[i][d] = NAN; /* never to be read */
        x->averages[i] =
            (struct embfuse_average){.size = sizeof x->averages[i],
                                     .table = i / WAYS / KINDS,
                                     .kind = kind ? EMBFUSE_EMA : EMBFUSE_SWA,
                                     .decay = kind ? decays[kind - 1] : 7,
                                     .data = x->data[i],
                                     .stride = STRIDE * (int64_t)sizeof(float),
                                     .row_updates = i % WAYS ? x->row_updates[i] : NULL};
    }
    return x;
}

static void training_free(struct training *x) {
    state_case_free(&x->c);
    free(x);
}

static void training_step(struct training *x, uint64_t n) {
    state_case_draw(&x->c, n);
    FINE(embfuse_average_before_step(x->c.model, x->averages, AVERAGES, &x->c.batch, &why));
    state_case_take(&x->c);
}

/* Snapshot number n, from 0. */
static void expect_snapshot(struct training *x, int64_t n) {
    for (int t = 0; t < TABLES; t++)
        for (int k = 0; k < KINDS; k++)
            for (int64_t i = 0; i < ROWS * DIM; i++) {
                double *a = &x->expected[t][k][i];
                const double w = (double)dtype_get((enum dtype)types[t], x->c.arrays[t][0].data, i);
                *a = n == 0   ? w
                     : k == 0 ? (*a * (double)n + w) / (double)(n + 1)
                              : decays[k - 1] * *a + (1 - decays[k - 1]) * w;
            }
}

static void training_update(struct training *x) {
    expect_snapshot(x, x->averages[0].updates);
    FINE(embfuse_average_update(x->c.model, x->averages, AVERAGES, &why));
}

static void training_finish(struct training *x) {
    FINE(embfuse_average_finish(x->c.model, x->averages, AVERAGES, &why));
}

/* Every average is what it must be. Every update rounds it once, by 2^-24 of it at most. A mean of
 * n keeps j/n of the error that its j-th update made; an EMA keeps decay^(n-j) of it. */
static void training_expect(const struct training *x) {
    for (int i = 0; i < AVERAGES; i++) {
        const int kind = i / WAYS % KINDS;
        const double *expected = x->expected[i / WAYS / KINDS][kind], largest = 8;
        const double n = (double)x->averages[i].updates;
        const double kept = kind ? fmin(n, 1 / (1 - decays[kind - 1])) : (n + 1) / 2;
        for (int64_t r = 0; r < ROWS; r++) {
            for (int d = 0; d < DIM; d++) {
                const double want = expected[r * DIM + d], got = (double)x->data[i][r * STRIDE + d];
                if (!(fabs(want) < largest)) fail_msg("the bound is for weights up to 8");
                if (!(fabs(got - want) <= largest * (kept * 0x1p-24 + n * 0x1p-50)))
                    fail_msg("average %d, row %d, column %d: %.9g, not %.9g", i, (int)r, d, got,
                             want);
            }
            for (int d = DIM; d < STRIDE; d++)
                assert_true(isnan(x->data[i][r * STRIDE + d])); /* between rows */
        }
    }
}

/* --- averages */

/* The weights that no average has seen move: several steps lie between updates, several updates
 * between steps, and a first update late in the training. The mean must come out at each look, and
 * the bits must not depend on threads. */
static void averages_of_snapshots(void **state) {
    (void)state;
    struct training *both[] = {training_open("cpu_fused", 4), training_open("cpu_fused", 1)};
    for (int i = 0; i < 2; i++)
        for (uint64_t n = 0; n < STEPS; n++) {
            struct training *x = both[i];
            training_step(x, n);
            if (n < 5) continue;
            for (int k = 0; k < (int)(n % 4); k++) training_update(x);
            if (n % 9 == 8 || n == STEPS - 1) training_finish(x), training_expect(x);
        }
    assert_int_equal(both[0]->averages[0].updates, 54);
    assert_memory_equal(both[0]->data, both[1]->data, sizeof both[0]->data);
    assert_memory_equal(both[0]->row_updates, both[1]->row_updates, sizeof both[0]->row_updates);
    training_free(both[0]), training_free(both[1]);
}

/* --- what is refused */

static void expect_refused(struct training *x, int status, const char *says) {
    struct training *kept = malloc(sizeof *kept);
    struct embfuse_model *m = x->c.model;
    memcpy(kept, x, sizeof *kept);
    SAYS(status, says, embfuse_average_before_step(m, x->averages, AVERAGES, &x->c.batch, &why));
    if (status == EMBFUSE_INVALID) {
        SAYS(status, says, embfuse_average_update(m, x->averages, AVERAGES, &why));
        SAYS(status, says, embfuse_average_finish(m, x->averages, AVERAGES, &why));
    }
    assert_memory_equal(kept, x, sizeof *kept);
    free(kept);
}

/* Refuses an average with another value of one field. */
#define WRONG(words, field, value)                                                                 \
    do {                                                                                           \
        const struct embfuse_average good = *last;                                                 \
        last->field = (value);                                                                     \
        expect_refused(x, EMBFUSE_INVALID, words);                                                 \
        *last = good;                                                                              \
    } while (0)

static void wrong_averages(void **state) {
    (void)state;
    struct training *x = training_open("cpu_fused", 2);
    struct embfuse_average *last = &x->averages[AVERAGES - 1];
    state_case_draw(&x->c, 0);
    WRONG("size is not", size, 8);
    WRONG("no such table", table, TABLES);
    WRONG("kind is", kind, 3);
    WRONG("decay is", decay, 1);
    WRONG("decay is", decay, (double)NAN);
    WRONG("4 bytes", stride, STRIDE * 4 + 2);
    WRONG("4 bytes", data, (float *)2);
    WRONG("data is not NULL", data, NULL);
    WRONG("rows overlap", stride, DIM * 4 - 4);
    WRONG("8 bytes", row_updates, (int64_t *)((char *)x->row_updates[0] + 4));
    WRONG("overlap an array of the model", data, (float *)x->c.arrays[0][2].data);
    WRONG("overlap those of average 0", data, x->data[0] + ROWS * STRIDE - STRIDE);
    WRONG("overlap those of average", row_updates, (int64_t *)x->data[AVERAGES - 1]);
    WRONG("overlap those of average", row_updates, x->row_updates[AVERAGES - 3]);
    WRONG("updates is below 0", updates, -1);
    /* Two averages may share rows, each its columns. */
    x->averages[1].data = x->data[0] + DIM;
    x->averages[0].stride = x->averages[1].stride = 2 * DIM * (int64_t)sizeof(float);
    FINE(embfuse_average_update(x->c.model, x->averages, 2, &why));
    assert_int_equal(embfuse_average_update(x->c.model, NULL, 1, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_average_update(x->c.model, x->averages, -1, NULL), EMBFUSE_INVALID);
    training_free(x);
}

/* A batch with a wrong id; a step that lazy averages did not hear of, which the next call notices,
 * and full ones do not mind; a dense step of Adam, which moves rows that the batch does not look
 * up. */
static void wrong_steps(void **state) {
    (void)state;
    struct training *x = training_open("cpu_fused", 2);
    training_step(x, 0), training_update(x);
    state_case_draw(&x->c, 1);
    x->c.ids[17] = ROWS;
    expect_refused(x, EMBFUSE_BAD_BATCH, "no row");
    training_step(x, 1);
    state_case_take(&x->c);
    expect_refused(x, EMBFUSE_INVALID, "a step was taken without");
    FINE(embfuse_average_update(x->c.model, x->averages, 1, &why));
    training_free(x);
    x = training_open("cpu_dense", 2);
    state_case_draw(&x->c, 0);
    expect_refused(x, EMBFUSE_REFUSED, "cpu_dense changes all rows of table 0");
    training_free(x);
}

TESTS(averages) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(averages_of_snapshots),
                                       cmocka_unit_test(wrong_averages),
                                       cmocka_unit_test(wrong_steps)};
    return cmocka_run_group_tests_name("averages", tests, NULL, NULL);
}
