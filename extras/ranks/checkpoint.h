/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in the files of embfuse_save(): whole tables, as one process writes them
 * (extras/library/README.md). So neither the number of ranks nor the sharding matters: any of them, and
 * embfuse_load(), read what any of them has written.
 *
 * A save. Rank 0 gathers the rows, a chunk at a time, and writes and commits them by the library's own functions. A
 * rank that fails or dies before the commit leaves the states that were there.
 *
 * A load. Rank 0 finds the newest state whose files are whole. Then every rank reads its rows alone. No rank compares
 * a checksum that time: a file that changes between the two is not noticed. Rows that lie apart in a file
 * (row-modulo, column) cost a system call each.
 *
 * So one rank writes all bytes of a state, and reads them before a load. All ranks see one file system. Memory: 4 MiB,
 * or a row.
 */
#pragma once

#include "extras/library/state.h"
#include "harness/measure/place.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/transport.h"

/* A state that is loaded. */
struct checkpoint {
    char folder[PATH_MAX];
    struct state state;
    struct embfuse_loaded loaded;
};

/* Finds and verifies the newest whole state for tables of these shapes. Collective: all ranks get the same. */
int checkpoint_open(struct checkpoint *c, struct transport *t, const char *directory,
                    const struct table_shape *shapes, int32_t num_tables, struct error *err);
void checkpoint_close(struct checkpoint *c);

/* Reads the shards of a rank into tables of these shapes. */
int checkpoint_read(const struct checkpoint *c, const struct sharding *s, int rank,
                    const struct table_shape *local, struct table_set *own, struct error *err);

/* Saves the tables of a place of ranks. state: their shapes and rules, the steps taken and the seed; its files are
 * filled in. *number receives the number of the new state. On rank 0. */
int checkpoint_save(struct place *p, const char *directory, struct state *state, int64_t *number,
                    struct error *err);
