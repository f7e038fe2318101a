/* SPDX-License-Identifier: MIT
 *
 * What the files of ranks/checkpoint.h share.
 */
#pragma once

#include "ranks/checkpoint.h"
#include "ranks/group.h"

/* A state that is saved. */
struct saving {
    struct transport *transport;
    const struct table_shape *shapes; /* whole, with their places in memory */
    struct state state;
    struct state_save to;
    struct embfuse_error why;
};

/* A status of the library as one of ranks. */
int checkpoint_failed(int status, const struct embfuse_error *why, struct error *err);

/* Writes `count` rows of a shard, the first of which is its row `first`, to the files out[TABLE_ARRAYS] that are open. */
int checkpoint_write(struct saving *x, const struct shard *shard, int64_t first, int64_t count,
                     const struct table *rows, const struct state_out *out);

/* Reads a part of a file. */
int checkpoint_read_part(const struct checkpoint *c, const struct state_part *part, int32_t table,
                         int a, const struct array *to, int64_t rows, struct embfuse_error *why);

/* --- tables of the kind column-modulo: ranks/checkpoint_columns.c */

/* Saves those of a group. A rank whose *status is not 0 writes nothing, but takes part. Collective; -1: the transport
 * failed. */
int checkpoint_save_columns(struct saving *x, const struct group *g, int *status,
                            struct error *err);
int checkpoint_read_columns(const struct checkpoint *c, const struct sharding *s,
                            const struct shard *shard, const struct table_shape *local,
                            struct table *own, struct embfuse_error *why);
