/* SPDX-License-Identifier: MIT
 *
 * PREFIX.batch describes the arrays of a batch, one statement per line; # starts a comment.
 *
 *     bags 51200                               of features without an own number; optional
 *     weighted 1                               the batch has per-sample weights
 *     grad_type bf16                           fp32, bf16 or fp16; optional: as in the gradient's file
 *     seed 7                                   of stochastic rounding; optional
 *     table rows 1000 dim 64 rule adam lr 0.1  repeatable: table 0, 1, ...
 *     feature table 0 pooling mean padding 3   repeatable, in the order of offsets and gradient
 *     feature table 0 bags 700                 bags of its own
 *
 * A table line may set weight_type, momentum_type, rounding and row_state, with presets as in a
 * workload spec, and hyper-parameters of its rule [presets in rules/]. The
 * default of a feature is pooling sum without padding. A key occurs at most once per line.
 *
 * PREFIX.tables records how the tables beside it were made:
 *
 *     steps 3                                   number of steps taken
 *     table rows 1000 dim 64 rule adam lr 0.1   for each table: the rule of its states, and the
 *                                               hyper-parameters of the last step, if there was one
 */
#pragma once

#include <stdio.h>

#include "harness/workload/spec_keys.h"
#include "harness/workload/workload.h"

enum { STEPS_MAX = 2000000000 };

struct description {
    int64_t bags; /* 0: not given */
    int no_rule;  /* line of the first table without a rule; 0: all have one */
    bool weighted;
    bool grad_type_given;
    enum dtype grad_type;
    int64_t steps; /* in PREFIX.tables only */
    int32_t num_tables, num_features;
    struct table_shape *tables; /* [num_tables] rows, dim, rule */
    struct rule *rules;         /* [num_tables]; in PREFIX.tables NAN where nothing is said */
    struct feature *features;   /* [num_features] table, pooling, padding_id; bags, -1: not given */
};

int description_read(const char *path, struct description *out, struct error *err);
int description_read_tables(const char *path, struct description *out, struct error *err);
void description_free(struct description *d);

/* Appends a table or a feature. Fails when out of memory. */
int description_add_table(struct description *d, struct table_shape table, struct rule rule,
                          struct error *err);
int description_add_feature(struct description *d, struct feature feature, struct error *err);

/* Gives each table its key of stochastic rounding. */
void description_seed(struct description *d, uint64_t seed);

/* Checks tables and features against each other; path is for messages. */
int description_check(const struct description *d, const char *path, struct error *err);

void description_write(FILE *file, const struct workload *w, int batch);
/* rules: of the last step, or NULL. */
void description_write_tables(FILE *file, const struct table_shape *tables, struct rule *rules,
                              int32_t count, int64_t steps);

/* Name number i of the hyper-parameters of all rules; NULL after the last. */
enum { HYPERS_MAX = RULE_COUNT * RULE_PARAMS + RULE_SHARED };
const char *hyper_name(int i);
