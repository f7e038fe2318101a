/* SPDX-License-Identifier: MIT
 *
 * The arrays of tables as files:
 *
 *     PREFIX.weight.npy       float32 [rows][dim]
 *     PREFIX.state.K.npy      the same, for each per-element state of the rule, K = 0, 1, ...
 *     PREFIX.row_state.npy    float32 [rows], if the rule has one state per row
 *
 * With several tables the names contain the table T: PREFIX.weight.T.npy, PREFIX.state.T.K.npy,
 * PREFIX.row_state.T.npy. Weights of other types than fp32 are widened in files, and rounded when
 * they are read.
 */
#ifndef EMBFUSE_CLI_TABLE_FILES_H
#define EMBFUSE_CLI_TABLE_FILES_H

#include "cli/outputs.h"
#include "harness/workload/tables.h"

/* The files of one table. NULL: the array starts at zero. If the rule lacks an array, its file must
 * be NULL. */
struct table_paths {
    union {
        const char *array[TABLE_ARRAYS];
        struct {
            const char *weight, *row, *elem[RULE_ELEM_STATES];
        };
    };
};

/* Reads rows and dim of a table from its weight file. */
int table_files_shape(const char *weight, struct table_shape *shape, struct error *err);

/* Reads one table. If finite is set, refuses NaN and infinities. */
int table_files_read(const struct table_paths *paths, bool finite, struct table_set *s, int32_t t,
                     struct error *err);

/* Reads all tables PREFIX.*. Missing states start at zero; with zero_states, all states do. */
int table_files_read_all(const char *prefix, bool finite, bool zero_states, struct table_set *s,
                         struct error *err);

/* Reads the number of steps taken from PREFIX.tables; 0 if there is no such file. Fails if the rule
 * has states and another rule wrote them. first: index in the record of the table shapes[0]; -1: the
 * record has the same tables. */
int table_files_steps(const char *prefix, int32_t first, const struct table_shape *shapes,
                      int32_t count, int64_t *steps, struct error *err);

/* The same, for the file of one state of one table. */
int table_files_state_steps(const char *state, const struct table_shape *shape, int64_t *steps,
                            struct error *err);

/* steps: number of steps taken. */
int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      int64_t steps, struct error *err);

#endif
