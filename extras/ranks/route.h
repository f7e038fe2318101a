/* SPDX-License-Identifier: MIT
 *
 * A route is the messages of a rank for one batch. The batch is cut by bags: each rank has a block of bags, with all
 * features (`own`). The tables are cut into shards; each rank receives from all ranks the lookups of its shards,
 * over all bags, which make a batch like any other (`local`).
 *
 *   route_ids       own lookups -> their owners. Once per batch; all that follows reuses it
 *   route_output    output rows of the owners -> the ranks that have the bags
 *   route_gradient  gradient rows -> the owners
 *
 * A local batch has its lookups in the order of the whole batch: by feature, then rank, bag, position. So a
 * row gets its gradients in the same order as in one process, and a kernel with the trait OWN_LOOKUPS
 * gives its row the same bits.
 *
 * The local features of a rank are the features of its shards, by table and feature; tables of the kind `data` come
 * last. Gradient rows of pooled features travel as a matrix [bags][columns of the local features].
 * If a table is cut by rows, only gradient rows of bags with a lookup there travel; `all_rows` sends them all, as
 * TorchRec's all-gather. A mean divides by the lookups of the whole bag: the divisor is in the per-sample weights.
 *
 * Rows lie in host memory, or, after route_use_device(), in device memory, and so do their messages: then a kernel
 * packs and unpacks them, and transport.device exchanges them. Ids, lengths and the lists of rows are the host's
 * in any case.
 *
 * The bytes of all this, before it runs: extras/ranks/rank_model.py.
 *
 * Routes have no max pooling and no gradients of per-sample weights.
 */
#pragma once

#include "harness/device/device_rows.h"
#include "extras/ranks/sharding.h"
#include "extras/ranks/transport.h"

/* Memory that grows. */
struct room {
    void *data;
    size_t bytes;
};

/* Room for that many bytes; what was there is lost. Ends the program when out of memory. */
void *room_for(struct room *m, size_t bytes);

/* Gradient rows: those in a list, or consecutive ones. */
struct row_list {
    int64_t first, count;
    int32_t *row;         /* [count], or NULL: first, first + 1, ... */
    const int32_t *there; /* the same in device memory, if the rows lie there */
    size_t most;          /* capacity */
};

/* A feature of the local batch of a rank. Every rank knows the local features of all ranks. */
struct local_feature {
    int32_t feature, shard;
    bool matrix;    /* its gradient rows are in the matrix */
    bool weighted;  /* its lookups have weights: of the batch, or one over the length */
    int64_t column; /* its first column there */
};

struct local_features {
    int32_t count, shared; /* the last `shared` ones are of tables of the kind data */
    struct local_feature *feature;
    int64_t columns, own_columns; /* of the matrix; without tables of the kind data */
};

/* Rows in device memory. */
struct route_device {
    bool used;
    const void *own_grad; /* own->grad */
    void *local_grad;     /* the local batch's, as the place of one process has it */
    struct device_buffer send, receive, lists, blocks;
};

/* Rows that are to move. */
struct row_moves {
    struct row_block *block;
    int32_t count, most;
};

struct route {
    const struct sharding *sharding;
    struct transport *transport;
    struct local_features *of; /* [ranks] */
    int64_t bags;              /* of the whole batch */
    const struct batch *own;   /* this rank's bags */
    struct batch local;        /* tables, features, offsets, ids, weights, gradient are its own */
    struct batch forward;      /* the same without tables of the kind data */
    struct batch shared;       /* own bags of tables that every rank has */
    struct row_list **out;     /* [ranks][features there] own gradient rows that go there */
    struct row_list **in;      /* [ranks][local features] local rows that come from there */
    struct parts lengths_out, lengths_in, ids_out, ids_in, rows_out, rows_in;
    struct room send, receive, lengths_sent, lengths_received, offsets, ids, weights, grad,
        shared_offsets, shared_ids, shared_weights;
    bool weighted; /* local batches have per-sample weights */
    struct row_moves moves;
    struct route_device device;
};

/* NULL, or why such a batch cannot be cut. */
const char *route_refuses(const struct sharding *s, const struct batch *whole);

/* True if output rows round in another way than in one process: ranks sum parts of them, or the divisor of a mean is in
 * the weights of its lookups. */
bool route_sums_in_parts(const struct sharding *s, const struct batch *whole);

/* bags: of each feature of the whole batch. own: outlives the route. */
int route_open(struct route *r, const struct sharding *s, struct transport *t, int64_t bags,
               const struct batch *own, bool all_rows, struct error *err);
void route_close(struct route *r);

/* True if `shared` has features: of tables that every rank has. */
bool route_has_copies(const struct route *r);

/* Call it after the first route_ids(). Gradients and outputs are device memory afterwards. own_grad, local_grad: see
 * struct route_device. */
int route_use_device(struct route *r, const void *own_grad, void *local_grad, struct error *err);

int route_ids(struct route *r, struct error *err);
/* Other work may come in between. */
int route_gradient_start(struct route *r, struct error *err);
int route_gradient_finish(struct route *r, struct error *err);
/* output: of the forward on r->forward, as kernels/forward.h lays it out; shared: of that on r->shared. to:
 * elements of own's gradient type, laid out as own's gradient. All three in device memory if rows lie there. */
int route_output(struct route *r, const void *output, const void *shared, void *to,
                 struct error *err);
