/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in the files of embfuse_save(): whole tables, as one process writes them (extras/library/README.md). So neither
 * the number of ranks nor the sharding matters: any of them, and embfuse_load(), read what any of them has written.
 *
 * A save. Rank 0 makes the folder and the files with their heads. Every rank writes the rows of its shards to their
 * places, and syncs each file; of tables that every rank has, one rank writes its copy. When all ranks have done so,
 * each file is read back whole by one rank, for its checksum. Rank 0 writes the manifest and renames the folder. A
 * rank that fails or dies before that leaves the states that were there.
 *
 * A load. Rank 0 lists the states, newest first. Each file is read whole by one rank, which compares its checksum; a
 * state that is damaged is passed over, as in embfuse_load(). Then every rank reads its rows alone. Nobody compares a
 * checksum that time: a file that changes between the two is not noticed, as it is in one process.
 *
 * So a file's checksum costs one rank the time to read it: checksums of many files run on many ranks at once, that of
 * one huge table on one. Rows that lie apart in a file (row-modulo, column) cost a system call each.
 *
 * All ranks see one file system. Memory: 4 MiB, or a row, of each array.
 */
#pragma once

#include "extras/library/state.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/transport.h"

struct group;

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

/* Saves the tables of all groups. On rank 0, state has their shapes and rules, the steps taken and the seed, and
 * *number receives the number of the new state; NULL elsewhere. Collective. */
int checkpoint_save(struct transport *t, const struct group *groups, int num_groups,
                    const struct table_shape *shapes, int32_t num_tables, const char *directory,
                    const struct state *state, int64_t *number, struct error *err);
