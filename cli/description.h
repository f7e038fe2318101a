/* SPDX-License-Identifier: MIT
 *
 * PREFIX.batch: what the arrays of a batch mean, one thing a line, # starts a comment.
 *
 *     bags 51200                               per feature; may be left out
 *     weighted 1                               there are lookup weights
 *     table rows 1000 dim 64 rule adam lr 0.1  repeatable: table 0, 1, ...
 *     feature table 0 pooling mean padding 3   repeatable, in the order of offsets and gradient
 *
 * A table may have the hyper-parameters of its rule; those that are left out are as in rules/. A feature has pooling sum and no padding where nothing is said. Nothing is said twice,
 * and there are at most SPEC_TABLES_MAX tables.
 *
 * PREFIX.tables is a record of how the tables beside it came to be:
 *
 *     steps 3                            that were taken
 *     table rows 1000 dim 64 rule adam   of each table, the rule whose states they are
 */
#ifndef EMBFUSE_CLI_DESCRIPTION_H
#define EMBFUSE_CLI_DESCRIPTION_H

#include <stdio.h>

#include "harness/workload/spec_keys.h"
#include "harness/workload/workload.h"

enum { STEPS_MAX = 2000000000 };

struct description {
    int64_t bags; /* 0: not said */
    bool weighted;
    int64_t steps; /* of a record */
    int32_t num_tables, num_features;
    struct table_shape *tables; /* [num_tables] rows, dim, rule */
    struct rule *rules;         /* [num_tables] */
    struct feature *features;   /* [num_features] table, pooling, padding_id */
};

int description_read(const char *path, struct description *out, struct error *err);
int description_read_tables(const char *path, struct description *out, struct error *err);
void description_free(struct description *d);

/* Appends a table or a feature. Fails when out of memory. */
int description_add_table(struct description *d, struct table_shape table, struct rule rule,
                          struct error *err);
int description_add_feature(struct description *d, struct feature feature, struct error *err);

/* What the features must be like; path is for messages. */
int description_check(const struct description *d, const char *path, struct error *err);

void description_write(FILE *file, const struct workload *w, int batch);
void description_write_tables(FILE *file, const struct table_shape *tables, int32_t count,
                              int64_t steps);

/* The hyper-parameters of all rules: number 0, 1, ... of their names; NULL: there are no more. */
enum { HYPERS_MAX = 60 };
const char *hyper_name(int i);
/* Which one of a rule's that is; -1: it has none of that name. One that is given all the same is a
 * mistake. */
int hyper_of(enum rule_kind rule, const char *name);
/* Sets the rule's of that name, which it has, from a text. */
int hyper_set(struct rule *rule, const char *name, const char *text, struct where at,
              struct error *err);

#endif
