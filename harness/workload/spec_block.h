/* SPDX-License-Identifier: MIT
 *
 * One `workload` block of a spec file: the values of its keys, which overrides may replace.
 * harness/workload/spec.c expands it to points.
 */
#ifndef EMBFUSE_SPEC_BLOCK_H
#define EMBFUSE_SPEC_BLOCK_H

#include "harness/workload/spec_keys.h"

struct block {
    char name[WORD_MAX];
    struct where at; /* line 0: no block was opened */
    struct values values[KEY_COUNT];
    enum key order[KEY_COUNT]; /* keys with values, in file order */
    int keys;
    struct table_spec *tables; /* [num_tables], from table lines; otherwise NULL */
    int num_tables;
};

/* Starts a block with the rest of a `workload` line; overwrites *b. */
int block_open(struct block *b, struct words *line, struct where at, struct error *err);

/* Add the rest of a line that starts with a key, or with `table`. */
int block_read_key(struct block *b, enum key k, struct words *line, struct where at,
                   struct error *err);
int block_read_table(struct block *b, struct words *line, struct where at, struct error *err);

/* Replaces the block's values with the overrides; over may be NULL. */
int block_override(struct block *b, const struct spec_overrides *over, struct error *err);

void block_free(struct block *b);

#endif
