/* SPDX-License-Identifier: MIT */
#include "tests/library/average_case.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/dtype.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

static const double decays[] = {0.9, 0.999};

static void fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

const int32_t training_tables[FEATURES] = {0, 1, 1, 2};
const enum embfuse_type training_types[TABLES] = {EMBFUSE_FP32, EMBFUSE_BF16, EMBFUSE_FP16};

struct embfuse_model *training_model(const char *kernel, const char *rule, int threads) {
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
    return m;
}

struct training *training_open(int threads) {
    struct training *x = calloc(1, sizeof *x);
    struct embfuse_error why;
    x->model = training_model("cpu_fused", "rowwise_adagrad", threads);
    for (int t = 0; t < TABLES; t++) {
        for (int64_t i = 0; i < ROWS * DIM; i++)
            dtype_set((enum dtype)training_types[t], x->weight[t], i,
                      (float)rng_unit((uint64_t)t, (uint64_t)i) - 0.5f);
        fine(embfuse_bind(x->model, t, 0, x->weight[t], 0, &why), &why);
        if (t != 1) fine(embfuse_bind(x->model, t, 1, x->state[t], 0, &why), &why);
        for (int k = 0; k < KINDS; k++) x->expected[t][k] = calloc(ROWS * DIM, sizeof(double));
    }
    fine(embfuse_set(x->model, -1, "lr", 0.05, &why), &why);
    fine(embfuse_set(x->model, 1, "lr", 0.01, &why), &why);
    for (int i = 0; i < AVERAGES; i++) {
        const int kind = i / WAYS % KINDS;
        x->data[i] = malloc(sizeof(float) * ROWS * STRIDE);
        for (int64_t d = 0; d < ROWS * STRIDE; d++) x->data[i][d] = NAN; /* never to be read */
        x->row_updates[i] = i % WAYS ? calloc(ROWS, sizeof(int64_t)) : NULL;
        x->averages[i] = (struct embfuse_average){.size = sizeof x->averages[i],
                                                  .table = i / WAYS / KINDS,
                                                  .kind = kind ? EMBFUSE_EMA : EMBFUSE_SWA,
                                                  .decay = kind ? decays[kind - 1] : 7,
                                                  .data = x->data[i],
                                                  .stride = STRIDE * (int64_t)sizeof(float),
                                                  .row_updates = x->row_updates[i]};
    }
    return x;
}

void training_free(struct training *x) {
    embfuse_model_free(x->model);
    for (int i = 0; i < AVERAGES; i++) {
        free(x->data[i]);
        free(x->row_updates[i]);
    }
    for (int t = 0; t < TABLES; t++)
        for (int k = 0; k < KINDS; k++) free(x->expected[t][k]);
    free(x);
}

void training_batch(struct training *x, uint64_t n) {
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

void training_take(struct training *x) {
    struct embfuse_error why;
    fine(embfuse_average_before_step(x->model, x->averages, AVERAGES, &x->batch, &why), &why);
    fine(embfuse_step(x->model, &x->batch, x->grad, &why), &why);
}

void training_step(struct training *x, uint64_t n) {
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

void training_update(struct training *x) {
    struct embfuse_error why;
    expect_snapshot(x, x->averages[0].updates);
    fine(embfuse_average_update(x->model, x->averages, AVERAGES, &why), &why);
}

/* Every update rounds the average once, by 2^-24 of it at most. A mean of n keeps j/n of the error that
 * its j-th update made; an EMA keeps decay^(n-j) of it. */
double training_bound(const struct training *x, int kind, double largest) {
    const double n = (double)x->averages[0].updates;
    const double kept = kind ? fmin(n, 1 / (1 - decays[kind - 1])) : (n + 1) / 2;
    return largest * (kept * 0x1p-24 + n * 0x1p-50);
}

void training_expect(const struct training *x) {
    for (int i = 0; i < AVERAGES; i++) {
        const int t = i / WAYS / KINDS, kind = i / WAYS % KINDS;
        const double most = training_bound(x, kind, 8);
        for (int64_t r = 0; r < ROWS; r++)
            for (int d = 0; d < DIM; d++) {
                const double got = (double)x->data[i][r * STRIDE + d];
                const double want = x->expected[t][kind][r * DIM + d];
                if (!(fabs(want) < 8)) fail_msg("the bound is for weights up to 8");
                if (!(fabs(got - want) <= most))
                    fail_msg("average %d, row %d, column %d: %.9g, not %.9g", i, (int)r, d, got,
                             want);
            }
        for (int64_t r = 0; r < ROWS; r++)
            for (int d = DIM; d < STRIDE; d++)
                assert_true(isnan(x->data[i][r * STRIDE + d])); /* between rows */
    }
}

void training_finish(struct training *x) {
    struct embfuse_error why;
    fine(embfuse_average_finish(x->model, x->averages, AVERAGES, &why), &why);
}
