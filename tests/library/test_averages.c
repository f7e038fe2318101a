/* SPDX-License-Identifier: MIT
 *
 * Averages of the weights of a training with three tables of three types, full and lazy, of SWA and of two decays:
 * against the mean of all snapshots in double precision; the same bits for any number of threads; what is refused, with
 * nothing changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "include/embfuse.h"
#include "kernels/dtype.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

enum {
    TABLES = 3,
    FEATURES = 4,
    ROWS = 900,
    USED = 700, /* rows from here on are never looked up */
    DIM = 96,
    STRIDE = DIM + 4, /* of averages, in elements */
    BAGS = 48,
    STEPS = 40,
    MOST = FEATURES * BAGS * 40, /* lookups: enough for several threads */
};

enum { KINDS = 3, WAYS = 2, AVERAGES = TABLES * KINDS * WAYS };

struct training {
    struct embfuse_model *model;
    char weight[TABLES][ROWS * DIM * 4];
    float state[TABLES][ROWS];
    struct embfuse_average averages[AVERAGES]; /* of each table and kind a full and a lazy one */
    float data[AVERAGES][ROWS * STRIDE];
    int64_t row_updates[AVERAGES][ROWS];
    double expected[TABLES][KINDS][ROWS * DIM];
    int64_t ids[MOST], offsets[FEATURES * BAGS + 1];
    float grad[BAGS * FEATURES * DIM];
    struct embfuse_batch batch;
};

static const double decays[] = {0.9, 0.999};

static void fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

static const int32_t training_tables[FEATURES] = {0, 1, 1, 2};
static const enum embfuse_type training_types[TABLES] = {EMBFUSE_FP32, EMBFUSE_BF16, EMBFUSE_FP16};

/* A model of the training's weights, without states; table 1 has rule sgd in any case. */
static struct embfuse_model *training_model(struct training *x, const char *kernel,
                                            const char *rule, int threads) {
    struct embfuse_table tables[TABLES];
    struct embfuse_feature features[FEATURES];
    struct embfuse_error why;
    struct embfuse_model *m;
    for (int t = 0; t < TABLES; t++)
        tables[t] = (struct embfuse_table){.rows = ROWS,
                                           .dim = DIM,
                                           .weight_type = training_types[t],
                                           .rounding = EMBFUSE_STOCHASTIC,
                                           .rule = t == 1 ? "sgd" : rule};
    for (int f = 0; f < FEATURES; f++)
        features[f] =
            (struct embfuse_feature){.table = training_tables[f], .padding_id = f == 3 ? 7 : -1};
    const struct embfuse_options options = {
        .size = sizeof options, .kernel = kernel, .threads = threads, .rounding_seed = 5};
    fine(embfuse_model_create(&m, tables, TABLES, features, FEATURES, &options, &why), &why);
    for (int t = 0; t < TABLES; t++) fine(embfuse_bind(m, t, 0, x->weight[t], 0, &why), &why);
    return m;
}

/* A model that goes on with the training after so many steps. */
static void training_goes_on(struct training *x, int64_t steps, int threads) {
    struct embfuse_error why;
    embfuse_model_free(x->model);
    x->model = training_model(x, "cpu_fused", "rowwise_adagrad", threads);
    for (int t = 0; t < TABLES; t++) {
        if (t != 1) fine(embfuse_bind(x->model, t, 1, x->state[t], 0, &why), &why);
        fine(embfuse_set(x->model, t, "lr", t == 1 ? 0.01 : 0.05, &why), &why);
        fine(embfuse_set_steps(x->model, t, steps, &why), &why);
    }
}

static struct training *training_open(int threads) {
    struct training *x = calloc(1, sizeof *x);
    training_goes_on(x, 0, threads);
    for (int t = 0; t < TABLES; t++)
        for (int64_t i = 0; i < ROWS * DIM; i++)
            dtype_set((enum dtype)training_types[t], x->weight[t], i,
                      (float)rng_unit((uint64_t)t, (uint64_t)i) - 0.5f);
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
    embfuse_model_free(x->model);
    free(x);
}

/* Batch n: few rows often, others seldom, repeats within bags, and empty bags. */
static void training_batch(struct training *x, uint64_t n) {
    int64_t lookups = 0;
    for (int q = 0; q < FEATURES * BAGS; q++) {
        x->offsets[q] = lookups;
        const int length = (int)(40 * rng_unit(n, (uint64_t)q));
        for (int i = 0; i < length; i++, lookups++) {
            const double u = rng_unit(n + 1000, (uint64_t)lookups);
            x->ids[lookups] = (int64_t)(USED * u * u * u * u);
        }
    }
    x->offsets[FEATURES * BAGS] = lookups;
    for (int64_t i = 0; i < BAGS * FEATURES * DIM; i++)
        x->grad[i] = (float)rng_unit(n + 2000, (uint64_t)i) - 0.5f;
    x->batch = (struct embfuse_batch){.size = sizeof x->batch,
                                      .bags = BAGS,
                                      .lookups = lookups,
                                      .ids = x->ids,
                                      .offsets = x->offsets,
                                      .id_type = EMBFUSE_INT64};
}

static void training_take(struct training *x) {
    struct embfuse_error why;
    fine(embfuse_average_before_step(x->model, x->averages, AVERAGES, &x->batch, &why), &why);
    fine(embfuse_step(x->model, &x->batch, x->grad, &why), &why);
}

static void training_step(struct training *x, uint64_t n) {
    training_batch(x, n);
    training_take(x);
}

/* Snapshot number n, from 0. */
static void expect_snapshot(struct training *x, int64_t n) {
    for (int t = 0; t < TABLES; t++)
        for (int k = 0; k < KINDS; k++)
            for (int64_t i = 0; i < ROWS * DIM; i++) {
                double *a = &x->expected[t][k][i];
                const double w = (double)dtype_get((enum dtype)training_types[t], x->weight[t], i);
                *a = n == 0   ? w
                     : k == 0 ? (*a * (double)n + w) / (double)(n + 1)
                              : decays[k - 1] * *a + (1 - decays[k - 1]) * w;
            }
}

static void training_update(struct training *x) {
    struct embfuse_error why;
    expect_snapshot(x, x->averages[0].updates);
    fine(embfuse_average_update(x->model, x->averages, AVERAGES, &why), &why);
}

static void training_finish(struct training *x) {
    struct embfuse_error why;
    fine(embfuse_average_finish(x->model, x->averages, AVERAGES, &why), &why);
}

/* Every average is what it must be. Every update rounds it once, by 2^-24 of it at most. A mean of n keeps j/n of the error
 * that its j-th update made; an EMA keeps decay^(n-j) of it. */
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

/* The weights that no average has seen move: several steps lie between updates, several updates between steps, and a first
 * update late in the training. In its middle another model takes over. The mean must come out at each look. */
static void averages_of_snapshots(void **state) {
    (void)state;
    struct training *x = training_open(3);
    for (uint64_t n = 0; n < STEPS; n++) {
        if (n == STEPS / 2) training_goes_on(x, (int64_t)n, 1);
        training_step(x, n);
        if (n < 5) continue;
        for (int k = 0; k < (int)(n % 4); k++) training_update(x);
        if (n % 9 == 8 || n == STEPS - 1) training_finish(x), training_expect(x);
    }
    assert_int_equal(x->averages[0].updates, 54);
    training_free(x);
}

/* After an update, only rows that a batch looks up have caught up, and they alone. */
static void lazy_rows_wait(void **state) {
    (void)state;
    struct training *x = training_open(2);
    training_step(x, 0);
    training_update(x);
    training_update(x);
    training_step(x, 1);
    char seen[TABLES][ROWS] = {{0}};
    for (int f = 0; f < FEATURES; f++)
        for (int64_t i = x->offsets[f * BAGS]; i < x->offsets[(f + 1) * BAGS]; i++)
            seen[training_tables[f]][x->ids[i]] = 1;
    for (int i = 0; i < AVERAGES; i++)
        for (int r = 0; i % WAYS && r < ROWS; r++) {
            assert_int_equal(x->row_updates[i][r], seen[x->averages[i].table][r] ? 2 : 0);
            assert_int_equal(isnan(x->data[i][r * STRIDE]), !seen[x->averages[i].table][r]);
        }
    training_free(x);
}

/* In the last steps four threads meet at the same rows at the same time: each has a quarter of a feature's lookups. */
static void threads_do_not_matter(void **state) {
    (void)state;
    struct training *both[] = {training_open(1), training_open(4)};
    for (int k = 0; k < 2; k++)
        for (uint64_t n = 0; n < 50; n++) {
            struct training *x = both[k];
            training_batch(x, n);
            for (int64_t i = 0; n >= 10 && i < MOST; i++) x->ids[i] = i % (MOST / FEATURES / 4);
            for (int q = 0; n >= 10 && q <= FEATURES * BAGS; q++)
                x->offsets[q] = q * (MOST / FEATURES / BAGS);
            if (n >= 10) x->batch.lookups = MOST;
            training_take(x);
            assert_int_equal(embfuse_average_update(x->model, x->averages, AVERAGES, NULL), 0);
            if (n == 9) training_finish(x);
        }
    for (int i = 0; i < AVERAGES; i++) {
        assert_memory_equal(both[0]->data[i], both[1]->data[i], sizeof(float) * ROWS * STRIDE);
        assert_memory_equal(both[0]->row_updates[i], both[1]->row_updates[i],
                            ROWS * sizeof(int64_t));
    }
    training_free(both[0]), training_free(both[1]);
}

/* --- what is refused */

static void expect_refused(struct training *x, int status, const char *says) {
    struct embfuse_error why;
    struct embfuse_average kept[AVERAGES];
    memcpy(kept, x->averages, sizeof kept);
    float *data = malloc(sizeof(float) * ROWS * STRIDE);
    memcpy(data, x->data[1], sizeof(float) * ROWS * STRIDE);
    assert_int_equal(embfuse_average_before_step(x->model, x->averages, AVERAGES, &x->batch, &why),
                     status);
    if (!strstr(why.text, says)) fail_msg("'%s' lacks '%s'", why.text, says);
    if (status == EMBFUSE_INVALID) {
        assert_int_equal(embfuse_average_update(x->model, x->averages, AVERAGES, &why), status);
        assert_int_equal(embfuse_average_finish(x->model, x->averages, AVERAGES, NULL), status);
    }
    assert_memory_equal(kept, x->averages, sizeof kept);
    assert_memory_equal(data, x->data[1], sizeof(float) * ROWS * STRIDE);
    free(data);
}

/* Refuses an average with another value of one field; averages before it do not change either. */
#define WRONG(words, field, value)                                                                 \
    do {                                                                                           \
        const struct embfuse_average good = *last;                                                 \
        last->field = (value);                                                                     \
        expect_refused(x, EMBFUSE_INVALID, words);                                                 \
        assert_true(isnan(x->data[0][0]));                                                         \
        *last = good;                                                                              \
    } while (0)

static void wrong_averages(void **state) {
    (void)state;
    struct training *x = training_open(2);
    struct embfuse_average *last = &x->averages[AVERAGES - 1];
    training_batch(x, 0);
    WRONG("size is not", size, 8);
    WRONG("no such table", table, TABLES);
    WRONG("no such table", table, -1);
    WRONG("kind is", kind, 3);
    WRONG("decay is", decay, 1);
    WRONG("decay is", decay, -0.5);
    WRONG("decay is", decay, (double)NAN);
    WRONG("4 bytes", stride, STRIDE * 4 + 2);
    WRONG("4 bytes", data, (float *)2);
    WRONG("data is not NULL", data, NULL);
    WRONG("rows overlap", stride, DIM * 4 - 4);
    WRONG("updates is below 0", updates, -1);
    assert_int_equal(embfuse_average_update(NULL, x->averages, 1, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_average_update(x->model, NULL, 1, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_average_update(x->model, x->averages, -1, NULL), EMBFUSE_INVALID);
    training_free(x);
}

static void wrong_batch(void **state) {
    (void)state;
    struct training *x = training_open(2);
    training_step(x, 0), training_update(x);
    training_batch(x, 1);
    x->ids[17] = ROWS;
    expect_refused(x, EMBFUSE_BAD_BATCH, "no row");
    training_free(x);
}

/* A step that lazy averages did not hear of is noticed at the next call; full ones need none. */
static void step_without_notice(void **state) {
    (void)state;
    struct training *x = training_open(2);
    struct embfuse_error why;
    training_step(x, 0), training_update(x), training_step(x, 1);
    fine(embfuse_step(x->model, &x->batch, x->grad, &why), &why);
    expect_refused(x, EMBFUSE_INVALID, "a step was taken without");
    fine(embfuse_average_update(x->model, x->averages, 1, &why), &why);
    for (int i = 0; i < AVERAGES; i++) {
        x->averages[i].updates = 0;
        memset(x->row_updates[i], 0, ROWS * sizeof(int64_t));
    }
    training_update(x), training_step(x, 2), training_update(x), training_finish(x);
    training_expect(x);
    training_free(x);
}

/* A dense step of Adam moves rows that the batch does not look up. */
static void dense_steps(void **state) {
    (void)state;
    struct training *x = training_open(2);
    embfuse_model_free(x->model);
    x->model = training_model(x, "cpu_dense", "adam", 2);
    training_batch(x, 0);
    expect_refused(x, EMBFUSE_REFUSED, "cpu_dense changes all rows of table 0");
    training_free(x);
}

TESTS(averages) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_of_snapshots), cmocka_unit_test(lazy_rows_wait),
        cmocka_unit_test(threads_do_not_matter), cmocka_unit_test(wrong_averages),
        cmocka_unit_test(wrong_batch),           cmocka_unit_test(step_without_notice),
        cmocka_unit_test(dense_steps),
    };
    return cmocka_run_group_tests_name("averages", tests, NULL, NULL);
}
