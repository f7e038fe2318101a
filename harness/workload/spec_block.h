/* SPDX-License-Identifier: MIT
 *
 * One `workload` block of a spec file: the values of its keys as they stand, then with the
 * overrides in their place. harness/workload/spec.c makes points of it.
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

/* Starts a block with the rest of a `workload` line; *b is overwritten. */
int block_open(struct block *b, struct words *line, struct where at, struct error *err);

/* Adds the rest of a line that began with a key, or with `table`. */
int block_read_key(struct block *b, enum key k, struct words *line, struct where at,
                   struct error *err);
int block_read_table(struct block *b, struct words *line, struct where at, struct error *err);

/* Puts overrides in the place of the block's values; over may be NULL. */
int block_override(struct block *b, const struct spec_overrides *over, struct error *err);

void block_free(struct block *b);

#endif
