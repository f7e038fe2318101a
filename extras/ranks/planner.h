/* SPDX-License-Identifier: MIT
 *
 * Chooses how each table is cut, and where it lies, by memory and expected cost (extras/ranks/cost.h). The
 * expectation comes from a batch: the lookups and unique rows that each part of a table gets, so that hot rows
 * at the beginning of a table count against blocks of rows.
 *
 * The search is HugeCTR's loop (samples/dlrm/sharding/planner.py: place the largest first where the load is
 * least, then split the most expensive and place again), with every kind of cut as a split: the most
 * expensive tables first, each is taken out and put back in the best way and place, again and again until
 * nothing gains. It starts from an empty plan, from every kind of cut for all tables, and from whole tables
 * dealt round-robin; so the plan is never worse than these by its own cost.
 */
#pragma once

#include <stdio.h>

#include "harness/workload/row_index.h"
#include "extras/ranks/cost.h"

struct planner_options {
    bool all_rows;  /* see extras/ranks/route.h */
    int ring;       /* batches that a place holds; at least 1 */
    unsigned leave; /* kinds not to use: 1 << enum sharding_kind */
};

struct table_plan {
    int32_t num_tables;
    int ranks;
    enum sharding_kind *kind; /* [num_tables] */
    int32_t *place; /* [num_tables] the rank of a whole table, the node of a table-row; else 0 */
    struct load *loads; /* [ranks] */
    struct cost cost;
    struct cost round_robin; /* of whole tables dealt in turn, for comparison */
    char *text;              /* for sharding_make(): "table@1,row,data" */
    char **why;              /* [num_tables] one line each, without a newline */
    struct machine machine;
    int ring;
};

/* Fails if nothing fits, and says how many bytes lack on the fullest rank of the plan that lacks least. */
int planner_plan(struct table_plan *out, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o, struct error *err);
void planner_free(struct table_plan *p);

/* The cost of a given sharding, which has a word for each table: NULL: round-robin. */
int planner_cost(const char *sharding, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o, struct cost *out,
                 struct error *err);

/* The reason of every table, and the prediction of every rank with the largest over the mean. */
void planner_print(const struct table_plan *p, FILE *to);
