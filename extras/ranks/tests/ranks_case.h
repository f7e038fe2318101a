/* SPDX-License-Identifier: MIT
 *
 * What tests of ranks share: a batch with two features of one table, a table with fewer rows than
 * ranks, sequences, a mean with padding and hot rows; and how rank 0 takes steps at a place of
 * ranks.
 */
#pragma once

#include <stdio.h>

#include "harness/measure/runner.h"
#include "extras/ranks/place_ranks.h"
#include "tests/support/batch_builder.h"

enum { RANKS_TABLES = 32 /* the most that a test has */ };

/* Tables, features and bags between builder_begin() and the choice of rules. The second feature
 * that reads table 0, whose rows have more than two lots of ROW_LANES floats, has the pooling `other`. Bags have up to
 * `longest` lookups, bags of a mean up to `mean`. */
static inline void ranks_case(struct builder *b, int64_t bags, enum pooling other, int64_t longest,
                              int64_t mean) {
    const int32_t wide = builder_table(b, 23, 300), few = builder_table(b, 3, 8),
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

static inline struct place_setup ranks_setup(const struct builder *b) {
    return (struct place_setup){.shapes = b->in.tables,
                                .num_tables = b->in.num_tables,
                                .batches = &b->in,
                                .index = &b->index,
                                .ring = 1,
                                .threads = 1,
                                .seed = b->seed};
}

/* Steps of the builder's rules, from its step on. */
static inline int ranks_steps(struct place *p, const struct builder *b, const struct kernel *k,
                              int count, struct error *err) {
    struct place_scratch scratch = {0};
    struct rule_step steps[RANKS_TABLES];
    const struct place_job job = {.kernel = k, .steps = steps, .scratch = &scratch};
    int status = runner_scratch_open(p, k, &scratch, err);
    for (int n = 0; n < count && status == 0; n++) {
        for (int32_t t = 0; t < b->in.num_tables; t++)
            steps[t] = rule_step(b->rules[t], b->step + n);
        status = runner_step(p, &job, POISON, err);
    }
    p->ops->scratch_close(p, &scratch);
    return status;
}

/* A step, a forward, or both as an iteration, that the runner checks; the tables go to the
 * builder. */
struct ranks_trial {
    const struct kernel *kernel, *forward; /* forward: of an iteration, or NULL */
    int batch;
    row_before before;
    const void *before_ctx;
    void *output; /* from malloc: what was written, if anything was */
    size_t output_bytes;
};

static inline int ranks_try(struct ranks_trial *x, struct place *p, const struct place_setup *setup,
                            struct builder *b, struct error *err) {
    const bool writes = x->forward || x->kernel->operation == OP_FORWARD;
    struct place_scratch scratch = {0}, output = {0};
    struct rule_step steps[RANKS_TABLES];
    struct check_result result = {0};
    const struct place_job job = {.kernel = x->kernel,
                                  .forward = x->forward,
                                  .batch = x->batch,
                                  .steps = steps,
                                  .scratch = &scratch,
                                  .output = writes ? &output : NULL};
    const struct check check = {.in = &b->in,
                                .index = &b->index,
                                .rules = b->rules,
                                .step = b->step,
                                .before = x->before,
                                .before_ctx = x->before_ctx,
                                .exact = b->sums_exact};
    for (int32_t i = 0; i < b->in.num_tables; i++) steps[i] = rule_step(b->rules[i], b->step);
    int status = runner_scratch_open(p, x->kernel, &scratch, err);
    if (status == 0 && writes) status = runner_output_open(p, setup, OP_FORWARD, &output, err);
    if (status == 0) status = runner_step(p, &job, POISON, err);
    if (status == 0) status = runner_check(p, &job, check, &result, err);
    if (status == 1 && result.message[0]) (fail)(err, "%s", result.message);
    if (status == 0) status = place_get_tables(p, &b->tables, err);
    if (status == 0 && writes) {
        x->output_bytes = output.bytes;
        x->output = malloc(output.bytes);
        status = p->ops->scratch_get(p, &output, x->output, err);
    }
    p->ops->scratch_close(p, &scratch);
    p->ops->scratch_close(p, &output);
    return status;
}

/* A rank of a test: rank 0 leads, the others follow. wrong[size]: what rank 0 says of a failure. */
static inline int ranks_live(struct transport *t,
                             int (*lead)(void *ctx, struct transport *t, struct error *err),
                             void *ctx, char *wrong, size_t size) {
    struct error err = {""};
    if (t->rank) return ranks_follow(t, &err);
    const int status = lead(ctx, t, &err);
    if (status) snprintf(wrong, size, "%.*s", (int)size - 1, err.text);
    return ranks_dismiss(t, &err) || status ? -1 : 0;
}
