/* SPDX-License-Identifier: MIT
 *
 * The arrays of tables as files:
 *
 *     PREFIX.weight.npy       float32 [rows][dim]
 *     PREFIX.state.K.npy      the same, for each per-element state of the rule, K = 0, 1
 *     PREFIX.row_state.npy    float32 [rows], where the rule has one
 *
 * Where there are several tables the names have the table before .npy: PREFIX.weight.T.npy,
 * PREFIX.state.T.K.npy, PREFIX.row_state.T.npy.
 */
#ifndef EMBFUSE_CLI_TABLE_FILES_H
#define EMBFUSE_CLI_TABLE_FILES_H

#include "cli/outputs.h"
#include "harness/tables.h"

/* Files of the arrays of one table. NULL: its array starts at zero; an array that the rule has not
 * must be NULL. */
struct table_paths {
    const char *weight, *elem[RULE_ELEM_STATES], *row;
};

/* Rows and dim of a table from its weights. */
int table_files_shape(const char *weight, struct table_shape *shape, struct error *err);

/* Reads one table; with finite, NaN and infinities are refused. */
int table_files_read(const struct table_paths *paths, bool finite, struct table_set *s, int32_t t,
                     struct error *err);

/* Reads all tables by their names; states whose file is missing start at zero. */
int table_files_read_all(const char *prefix, bool finite, struct table_set *s, struct error *err);

int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      struct error *err);

/* Makes *to a copy. */
int table_set_copy(const struct table_set *from, struct table_set *to, struct error *err);

#endif
