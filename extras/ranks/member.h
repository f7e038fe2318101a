/* SPDX-License-Identifier: MIT
 *
 * A member is one rank of a place of ranks. It has its own bags of each batch, its shards of the tables in a place
 * of one process, and the routes between them. Rank 0 gives orders (place_ranks.c), and all ranks, rank 0 too,
 * carry them out together.
 */
#pragma once

#include "extras/ranks/group.h"
#include "extras/ranks/times.h"

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

/* The answer to an order. Ranks merge it: the largest of all, or the sum of the ceilings. */
struct reply {
    size_t scratch; /* bytes */
    int64_t appeared;
    struct rank_times times;
    struct ceiling ceiling;
};

/* Rank 0 sends this to all ranks when a place opens. */
struct opening {
    enum backend backend;
    char sharding[1 << 14];
    char load[PATH_MAX]; /* file of a saved state, or "" */
    bool all_rows, overlap, staged, timed, weighted;
    int32_t num_tables, num_features;
    int64_t bags;
    enum id_type id_type;
    enum dtype grad_type;
    int ring, threads;
    uint64_t seed;
    enum operation operation;
};

enum { GROUPS_MOST = 3 };

struct member {
    struct transport *transport;
    struct opening opening;
    struct sharding sharding;   /* of all tables */
    struct table_shape *shapes; /* whole */
    struct checkpoint loaded;   /* if opening.load names one */
    struct feature *features;
    struct batch own[RING_MAX];
    struct group groups[GROUPS_MOST];
    int num_groups;
    struct rank_times *of_rank; /* [ranks] of the last operation */
    void *result;               /* of a forward, laid out as own[batch].grad */
    bool on_device;             /* rows travel between devices, and these are in their memory: */
    struct device_buffer own_grads[RING_MAX], device_result;
    struct rule_step *steps;
};

/* Opens the member of this rank. shapes, and whole: [ring] the batches to be cut, are on rank 0, NULL elsewhere.
 * Collective. */
int member_open(struct member *m, struct transport *t, const struct opening *o,
                const struct table_shape *shapes, const struct batch *whole, struct error *err);
void member_close(struct member *m);

/* Carries out an order of rank 0. steps: [num_tables] of a step, or NULL. Collective. */
int member_do(struct member *m, const struct order *o, const struct rule_step *steps,
              struct reply *out, struct error *err);
