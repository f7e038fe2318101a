/* SPDX-License-Identifier: MIT */
#include "tests/library/library_small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int status, const struct embfuse_error *why) {
    if (status == 0) return;
    fprintf(stderr, "library_small: %s\n", why->text);
    abort();
}

void small_open(struct small *s, const struct embfuse_options *options) {
    static const int64_t ids[8] = {1, 2, 2, 5, 0, 3, 3, 4}, offsets[] = {0, 2, 2, 4, 5, 7, 8};
    struct embfuse_error why;
    memset(s, 0, sizeof *s);
    memcpy(s->ids, ids, sizeof ids);
    memcpy(s->offsets, offsets, sizeof offsets);
    for (int t = 0; t < 2; t++)
        for (int r = 0; r < ROWS; r++)
            for (int d = 0; d < DIM; d++) s->weight[t][r][d] = (float)(100 * t + 10 * r + d);
    for (int q = 0; q < BAGS; q++)
        for (int d = 0; d < 2 * DIM; d++) s->grad[q][d] = (float)(q + 1);
    for (int t = 0; t < 2; t++) {
        s->tables[t] =
            (struct embfuse_table){.rows = ROWS, .dim = DIM, .rule = t ? "rowwise_adagrad" : "sgd"};
        s->features[t] = (struct embfuse_feature){
            .table = t, .padding_id = -1, .pooling = t ? EMBFUSE_MEAN : EMBFUSE_SUM};
    }
    s->batch = (struct embfuse_batch){.size = sizeof s->batch,
                                      .bags = BAGS,
                                      .lookups = 8,
                                      .ids = s->ids,
                                      .offsets = s->offsets,
                                      .id_type = EMBFUSE_INT64};
    must(embfuse_model_create(&s->model, s->tables, 2, s->features, 2, options, &why), &why);
    for (int t = 0; t < 2; t++) must(embfuse_bind(s->model, t, 0, s->weight[t], 0, &why), &why);
    must(embfuse_bind(s->model, 1, 1, s->state[1], 0, &why), &why);
}

/* The example by hand: feature 0 is the first DIM columns of the output, feature 1 the others. */
