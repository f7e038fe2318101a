/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in the file of embfuse_save(): whole tables, as one process writes them (extras/library/README.md). So
 * neither the number of ranks nor the sharding matters: any of them, and embfuse_load(), read what any of them has
 * written.
 *
 * A save. Rank 0 gathers the rows, a chunk at a time, and writes and commits them by the library's own functions. A
 * rank that fails or dies before the commit leaves the file that was there.
 *
 * A load. Rank 0 verifies the file. Then every rank reads its rows alone, without checksums: a file that changes in
 * place between the two is not noticed; one that is replaced is. Rows that lie apart in a file (row-modulo, column) are
 * read with what lies between them.
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
    struct state_file file;
    struct state state;
    struct embfuse_error why; /* of the file */
};

/* Opens a file and verifies it for tables of these shapes, which outlive the checkpoint. Collective: all ranks get the
 * same. checkpoint_close() in any case. */
int checkpoint_open(struct checkpoint *c, struct transport *t, const char *path,
                    const struct table_shape *shapes, int32_t num_tables, struct error *err);
void checkpoint_close(struct checkpoint *c);

/* Reads the shards of a rank into tables of these shapes. */
int checkpoint_read(const struct checkpoint *c, const struct sharding *s, int rank,
                    const struct table_shape *local, struct table_set *own, struct error *err);

/* Saves the tables of a place of ranks. state: their shapes and rules, the steps taken and the seed; this frees its
 * tables. On rank 0. */
int checkpoint_save(struct place *p, const char *path, struct state *state, struct error *err);
