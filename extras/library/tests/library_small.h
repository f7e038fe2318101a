/* SPDX-License-Identifier: MIT
 *
 * A small model of the library, whose results fit on paper. Include it last, as cmocka_cases.h.
 */
#pragma once

#include "harness/registry.h"
#include "tests/support/batch_builder.h"

#include "extras/library/tests/says.h"

/* Two tables of row r = (10 r, 10 r + 1, ...), the second one 100 higher; a sum and a mean over
 * bags of them. */
enum { ROWS = 6, DIM = 4, BAGS = 3 };

struct small {
    float weight[2][ROWS][DIM], state[ROWS], output[BAGS][2 * DIM], grad[BAGS][2 * DIM];
    int64_t ids[8], offsets[2 * BAGS + 1];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static const struct embfuse_table good_table = {.rows = ROWS, .dim = DIM, .rule = "sgd"};
static const struct embfuse_feature good_feature = {0};

/* Rules sgd and rowwise_adagrad, everything bound; gradients of bag q are q + 1. */
static inline void small_open(struct small *s, const struct embfuse_options *options) {
    static const struct embfuse_table tables[] = {
        {.rows = ROWS, .dim = DIM, .rule = "sgd"},
        {.rows = ROWS, .dim = DIM, .rule = "rowwise_adagrad"}};
    static const struct embfuse_feature features[] = {{.table = 0, .pooling = EMBFUSE_SUM},
                                                      {.table = 1, .pooling = EMBFUSE_MEAN}};
    static const int64_t ids[8] = {1, 2, 2, 5, 0, 3, 3, 4}, offsets[] = {0, 2, 2, 4, 5, 7, 8};
    memset(s, 0, sizeof *s);
    memcpy(s->ids, ids, sizeof ids);
    memcpy(s->offsets, offsets, sizeof offsets);
    for (int i = 0; i < 2 * ROWS * DIM; i++)
        s->weight[i / ROWS / DIM][i / DIM % ROWS][i % DIM] =
            (float)(100 * (i / ROWS / DIM) + 10 * (i / DIM % ROWS) + i % DIM);
    for (int i = 0; i < BAGS * 2 * DIM; i++)
        s->grad[i / (2 * DIM)][i % (2 * DIM)] = (float)(i / (2 * DIM) + 1);
    s->batch = (struct embfuse_batch){.size = sizeof s->batch,
                                      .bags = BAGS,
                                      .lookups = 8,
                                      .ids = s->ids,
                                      .offsets = s->offsets,
                                      .id_type = EMBFUSE_INT64};
    FINE(embfuse_model_create(&s->model, tables, 2, features, 2, options, &why));
    for (int t = 0; t < 2; t++) FINE(embfuse_bind(s->model, t, 0, s->weight[t], 0, &why));
    FINE(embfuse_bind(s->model, 1, 1, s->state, 0, &why));
}
