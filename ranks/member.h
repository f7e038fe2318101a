/* SPDX-License-Identifier: MIT
 *
 * What every rank does for a place of ranks: it has its own bags of each batch, its shards of the tables
 * in a place of one process, and the routes between them. Rank 0 gives orders (place_ranks.c), and all
 * ranks, rank 0 too, carry them out together.
 */
#pragma once

#include "harness/measure/place.h"
#include "ranks/route.h"

enum what {
    DO_OPEN,
    DO_SCRATCH, /* how much scratch does the kernel need here? */
    DO_RUN,
    DO_PARTS,
    DO_TIME,
    DO_CEILINGS,
    DO_RESTORE,
    DO_ROWS, /* rows begin .. end-1 of a table go to rank 0 */
    DO_INTACT,
    DO_CLOSE,
    DO_EXIT, /* no more orders */
};

struct order {
    enum what what;
    int kernel, forward; /* numbers in the registry; -1: none */
    int batch;           /* -1: all rows */
    int fill;            /* of scratch, before the step; AS_IT_IS: none */
    bool cold, gather;   /* gather: the output goes to rank 0 */
    int32_t table;
    int64_t begin, end;
};

/* What an order tells. Ranks merge it: the largest of all, or the sum of the ceilings. */
struct reply {
    size_t scratch; /* bytes */
    int64_t appeared;
    struct step_times times;
    struct ceiling ceiling;
};

/* What rank 0 knows, and tells all when a place opens. */
struct opening {
    enum backend backend;
    char sharding[256];
    bool all_rows, timed, weighted, own_tables;
    int32_t num_tables, num_features;
    int64_t bags;
    enum id_type id_type;
    enum dtype grad_type;
    int ring, threads;
    uint64_t seed;
    enum operation operation;
};

struct member {
    struct transport *transport;
    struct opening opening;
    struct sharding sharding;
    struct table_shape *shapes; /* whole */
    struct feature *features;
    struct batch own[RING_MAX];
    struct route routes[RING_MAX];
    /* Of the inner place: local batches, then those of the forward, then own bags of tables of the kind
     * data. The latter two are the same, and none, without such tables. */
    struct batch batches[PLACE_RING_MAX];
    struct row_index index[PLACE_RING_MAX];
    struct table_set tables; /* with the content that rank 0 gave */
    struct place *inner;     /* NULL: this rank has no shard */
    struct place_scratch none, scratch, output, shared_output;
    const struct kernel *scratch_of;
    struct room output_copy, shared_copy; /* of a place with memory of its own */
    void *result;                         /* of a forward, laid out as own[batch].grad */
    struct rule_step *steps, *local_steps;
};

/* Opens the member of this rank. On rank 0, whole: [ring] the batches to be cut; tables: their content, or
 * NULL: initial values. All NULL elsewhere. Collective. */
int member_open(struct member *m, struct transport *t, const struct opening *o,
                const struct table_shape *shapes, const struct batch *whole,
                const struct table_set *tables, struct error *err);
void member_close(struct member *m);

/* Carries out an order of rank 0. steps: [num_tables] of a step, or NULL. Collective. */
int member_do(struct member *m, const struct order *o, const struct rule_step *steps,
              struct reply *out, struct error *err);

/* Rows of a table that came from a rank, in the order of arrays: see member_rows_bytes(). */
size_t member_rows_bytes(const struct sharding *s, const struct shard *part,
                         const struct table_shape *shapes, int64_t rows);

/* The rows of a shard that are among rows begin .. end-1 of its table: shard rows *first .. *first+count-1. */
int64_t member_rows_in(const struct shard *part, int64_t begin, int64_t end, int64_t *first);

enum { TAG_SLICE = 1, TAG_ROWS, TAG_OUTPUT };
