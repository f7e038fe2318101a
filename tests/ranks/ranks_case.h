/* SPDX-License-Identifier: MIT
 *
 * The batch of the tests of ranks: two features of one table, a table with fewer rows than ranks, sequences, a mean
 * with padding, hot rows.
 */
#pragma once

#include <stdio.h>

#include "ranks/place_ranks.h"
#include "tests/support/batch_builder.h"

/* Tables, features and bags between builder_begin() and the choice of rules. The second feature that reads table 0 has the
 * pooling `other`; bags have up to `longest` lookups, those of a mean up to `mean`. */
static inline void ranks_case(struct builder *b, int64_t bags, enum pooling other, int64_t longest,
                              int64_t mean) {
    const int32_t wide = builder_table(b, 61, 37), few = builder_table(b, 3, 8),
                  narrow = builder_table(b, 500, 5);
    const struct {
        int32_t table;
        enum pooling pooling;
        int64_t padding;
    } features[] = {{wide, POOL_SUM, -1},
                    {few, POOL_MEAN, 1},
                    {wide, other, 7},
                    {narrow, POOL_NONE, 0},
                    {narrow, POOL_SUM, -1}};
    for (size_t f = 0; f < sizeof features / sizeof *features; f++) {
        builder_feature(b, features[f].table, features[f].pooling, features[f].padding);
        builder_random_bags(b, bags, features[f].pooling == POOL_MEAN ? mean : longest);
    }
    builder_finish(b);
}

/* A rank of a test: rank 0 leads, the others follow. wrong[size]: what rank 0 says of a failure. */
static inline int ranks_live(struct transport *t,
                             int (*lead)(void *ctx, struct transport *t, struct error *err),
                             void *ctx, char *wrong, size_t size) {
    struct error err = {""};
    if (t->rank) return ranks_follow(t, &err);
    const int status = lead(ctx, t, &err);
    if (status) snprintf(wrong, size, "%s", err.text);
    return ranks_dismiss(t, &err) || status ? -1 : 0;
}
