/* SPDX-License-Identifier: MIT
 *
 * A training with three tables of three types, and averages of all kinds: full and lazy, of SWA and of two
 * decays. It keeps what the averages of its snapshots must be, in double precision.
 */
#pragma once

#include "include/embfuse.h"

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
    struct embfuse_average averages[AVERAGES];
    float *data[AVERAGES];
    int64_t *row_updates[AVERAGES];
    double *expected[TABLES][KINDS]; /* [ROWS][DIM], in double */
    int64_t ids[MOST], offsets[FEATURES * BAGS + 1];
    float grad[BAGS * FEATURES * DIM];
    struct embfuse_batch batch;
};

extern const int32_t training_tables[FEATURES]; /* of the features */
extern const enum embfuse_type training_types[TABLES];

/* A model with the training's tables and features, without arrays; table 1 has rule sgd in any case. */
struct embfuse_model *training_model(const char *kernel, const char *rule, int threads);

struct training *training_open(int threads);
void training_free(struct training *x);

/* Batch n: few rows often, others seldom, repeats within bags, and empty bags. */
void training_batch(struct training *x, uint64_t n);
/* A step with the batch that is there, or with batch n. */
void training_take(struct training *x);
void training_step(struct training *x, uint64_t n);
/* The weights are a snapshot. */
void training_update(struct training *x);
void training_finish(struct training *x);

/* The largest error of an average of this kind, for weights up to `largest`. */
double training_bound(const struct training *x, int kind, double largest);
/* Fails unless every average is what it must be. */
void training_expect(const struct training *x);
