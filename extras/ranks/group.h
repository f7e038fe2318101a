/* SPDX-License-Identifier: MIT
 *
 * A group is the tables of a rank that take their step together: their shards in a place of one process, the routes to
 * them, and the scratch of a kernel there. Most tables are in one group. Tables of the kind data-dense have a group of
 * their own, and there is one more if exchanges and updates overlap.
 */
#pragma once

#include "harness/measure/place.h"
#include "extras/ranks/checkpoint.h"
#include "extras/ranks/deal.h"
#include "extras/ranks/dense.h"

struct group {
    struct sharding sharding; /* of its tables */
    struct transport *transport;
    const struct batch *own; /* [ring] */
    int ring, threads;
    bool is_dense;
    /* [ring] own gradients in device memory; NULL: rows travel through host memory */
    const struct device_buffer *own_grads;
    struct route routes[RING_MAX];
    struct dense dense[RING_MAX]; /* a dense group exchanges gradients here, not by its routes */
    /* The inner place has local batches, then batches of the forward, then own bags of tables that every rank has. */
    struct batch batches[PLACE_RING_MAX];
    struct row_index index[PLACE_RING_MAX];
    struct table_set tables; /* of a saved state */
    struct place *inner;     /* NULL: this rank has no shard */
    struct place_scratch none, scratch, output, shared_output;
    const struct kernel *scratch_of;
    struct room output_copy, shared_copy; /* of a place with memory of its own */
    struct rule_step *steps;              /* of its shards */
};

/* All groups of a rank are opened with the same setup. */
struct group_setup {
    const struct sharding *sharding; /* of all tables */
    struct transport *transport;
    const struct deal *deal;
    const struct batch *own;               /* [ring] bags of this rank */
    const struct device_buffer *own_grads; /* as in struct group */
    bool all_rows;
    const struct checkpoint *from; /* the tables begin with this state; NULL: with initial values */
    enum backend backend;
    struct place_setup inner; /* without tables, batches and index */
};

/* keep: [num_tables] the tables of this group. Collective. */
int group_open(struct group *g, const struct group_setup *setup, const bool *keep, bool is_dense,
               struct error *err);
void group_close(struct group *g);

int32_t group_shards(const struct group *g);

int group_ids(struct group *g, int batch, struct error *err);
/* A dense group exchanges in the second call. Then the inner place has what came. */
int group_gradient_start(struct group *g, int batch, struct error *err);
int group_gradient_finish(struct group *g, int batch, struct error *err);
/* The forward of a batch, and its rows in `to`, laid out as own[batch].grad; in device memory, if own_grads are. */
int group_lookup(struct group *g, const struct kernel *k, int batch, struct error *err);
int group_output(struct group *g, int batch, void *to, struct error *err);

/* Bytes of scratch of a kernel on this rank. */
int group_scratch_bytes(struct group *g, const struct kernel *k, size_t *bytes, struct error *err);
int group_open_scratch(struct group *g, const struct kernel *k, int fill, struct error *err);
int group_open_outputs(struct group *g, struct error *err);

int group_plan(struct group *g, const struct kernel *k, int batch, struct error *err);
/* The step of a batch, after its plan. */
int group_run(struct group *g, const struct kernel *k, int batch, void (*mark)(void *, enum stage),
              void *ctx, struct error *err);
/* Runs the step with fresh scratch. *appeared: bytes of memory that appeared during the run; -1: unknown. */
int group_parts(struct group *g, const struct kernel *k, int batch, int64_t *appeared,
                struct error *err);
