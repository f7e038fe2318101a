/* SPDX-License-Identifier: MIT
 *
 * The arrays of tables as files:
 *
 *     PREFIX.weight.npy       float32 [rows][dim]
 *     PREFIX.state.K.npy      the same, for each per-element state of the rule, K = 0, 1
 *     PREFIX.row_state.npy    float32 [rows], where the rule has one
 *
 * Where there are several tables the names have the table before .npy: PREFIX.weight.T.npy,
 * PREFIX.state.T.K.npy, PREFIX.row_state.T.npy. Weights of another type than fp32 are widened when they
 * are written, and rounded when they are read.
 */
#ifndef EMBFUSE_CLI_TABLE_FILES_H
#define EMBFUSE_CLI_TABLE_FILES_H

#include "cli/outputs.h"
#include "harness/workload/tables.h"

/* Files of the arrays of one table. NULL: its array starts at zero; an array that the rule has not
 * must be NULL. */
struct table_paths {
    union {
        const char *array[TABLE_ARRAYS];
        struct {
            const char *weight, *row, *elem[RULE_ELEM_STATES];
        };
    };
};

/* Rows and dim of a table from its weights. */
int table_files_shape(const char *weight, struct table_shape *shape, struct error *err);

/* Reads one table; with finite, NaN and infinities are refused. */
int table_files_read(const struct table_paths *paths, bool finite, struct table_set *s, int32_t t,
                     struct error *err);

/* Reads all tables by their names; states whose file is missing, or all, start at zero. */
int table_files_read_all(const char *prefix, bool finite, bool zero_states, struct table_set *s,
                         struct error *err);

/* The steps that PREFIX.tables says were taken; 0 where there is no such file. Fails where states
 * are of another rule than the one that is to read them. */
int table_files_steps(const char *prefix, const struct table_shape *shapes, int32_t count,
                      int64_t *steps, struct error *err);

/* The same, where state is the name of one table's state. */
int table_files_state_steps(const char *state, const struct table_shape *shape, int64_t *steps,
                            struct error *err);

/* steps: that were taken. */
int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      int64_t steps, struct error *err);

#endif
