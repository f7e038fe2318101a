/* SPDX-License-Identifier: MIT
 *
 * The arrays of tables as files:
 *
 *     PREFIX.weight.npy       [rows][dim]
 *     PREFIX.state.K.npy      the same, for each per-element state of the rule, K = 0, 1, ...
 *     PREFIX.row_state.npy    float32 [rows], or [rows][2] if the rule has two states per row
 *
 * With several tables the names contain the table T: PREFIX.weight.T.npy, PREFIX.state.T.K.npy,
 * PREFIX.row_state.T.npy. Elements are float32, float16, bf16 as uint16 or fp8 as uint8, as in
 * the table. Where another type is wanted, float32 is read too, and rounded to the nearest value.
 */
#pragma once

#include "cli/outputs.h"
#include "harness/workload/tables.h"

/* Reads rows and dim of a table from its weight file. */
int table_files_shape(const char *weight, struct table_shape *shape, struct error *err);

/* Reads table t from the files of its arrays. NULL: the array starts as in a new table. If the rule
 * has no such array, its file must be NULL. rules: [num_tables]. If finite is set, refuses NaN and
 * infinities. */
int table_files_read(const char *const paths[TABLE_ARRAYS], bool finite, const struct rule *rules,
                     struct table_set *s, int32_t t, struct error *err);

/* Reads all tables PREFIX.*. Missing states start as in a new table; with fresh_states, all do. */
int table_files_read_all(const char *prefix, bool finite, bool fresh_states,
                         const struct rule *rules, struct table_set *s, struct error *err);

/* Reads the number of steps taken from PREFIX.tables; 0 if there is no such file. A table of the same
 * rule gets the hyper-parameters of its last step. Fails if the rule has states and another rule wrote
 * them. first: index in the record of the table rules[0]; -1: the record has the same tables. */
int table_files_past(const char *prefix, int32_t first, struct rule *rules, int32_t count,
                     int64_t *steps, struct error *err);

/* The same, for the file of one state of one table. */
int table_files_state_past(const char *state, struct rule *rule, int64_t *steps, struct error *err);

/* rules: of the last step, or NULL; steps: number of steps taken. */
int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      struct rule *rules, int64_t steps, struct error *err);
