/* SPDX-License-Identifier: MIT
 *
 * A small model of the library, whose results fit on paper: two tables of row r = (10 r, 10 r + 1, ...), the second one
 * 100 higher; a sum and a mean over bags of them.
 */
#pragma once

#include "include/embfuse.h"

enum { ROWS = 6, DIM = 4, BAGS = 3 };

struct small {
    float weight[2][ROWS][DIM], state[2][ROWS], output[BAGS][2 * DIM], grad[BAGS][2 * DIM];
    int64_t ids[8], offsets[2 * BAGS + 1];
    struct embfuse_table tables[2];
    struct embfuse_feature features[2];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

/* Rules sgd and rowwise_adagrad, everything bound; gradients of bag q are q + 1. Ends the program if that fails. */
void small_open(struct small *s, const struct embfuse_options *options);
