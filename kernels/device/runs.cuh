/* SPDX-License-Identifier: MIT
 *
 * Sums of the gradients of every run of equal keys, and what becomes of them: an update of the run's row, or a row of a
 * compact gradient.
 *
 * Entries are cut into chunks, regardless of runs; a group of lanes takes a chunk (lean_sum.cuh, general.cuh,
 * reduce.cu). The group that has the first entry of a run finishes it, if it ends at most REACH entries after the
 * chunk. A longer run *crosses* the chunk's border. Its sum in the chunk where it comes from is that chunk's *tail*,
 * and the one where it goes on is the *head* there: partial rows in scratch. Chunks are the leaves of a tree with FAN
 * children per node (tree.cu). A chunk or node that no run crosses into or out of has nothing for its parent. Of the
 * others an integer counter per node shows which child arrives last; the warp of that child goes on with the node. So a
 * row with 10^8 lookups costs a few levels, and no warp waits for another. No float add is atomic: the shape of every
 * sum depends only on the positions of the entries.
 *
 * Source: merge-based CSR SpMV splits by entries, not by runs (Merrill and Garland 2016); in the
 * threadFenceReduction sample of the CUDA toolkit the last block finishes the sum.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/target.cuh"

enum {
    CHUNK_MOST = 128,
    CHUNK_LEAST = 32,
    WARPS_ENOUGH = 4096, /* fill a device of 132 multiprocessors with 16 warps each, twice */
    REACH = 32,          /* at most CHUNK_LEAST */
    FAN_BITS = 4,
    FAN = 1 << FAN_BITS,
    MOST_LEVELS = 10,
    FLIGHT = 8, /* gradient rows in flight per lane */
};

/* Nodes of all levels, the chunks first. */
struct tree {
    int chunk; /* entries */
    int levels;
    int64_t count[MOST_LEVELS], first[MOST_LEVELS];
};

/* Few entries make short chunks, so that there are enough warps; so do narrow rows, of which a warp has several groups.
 * */
static inline struct tree tree_of(int64_t entries, int32_t dim) {
    struct tree t = {CHUNK_MOST};
    const int lanes = lanes_of_cover(cover_of(dim));
    const int64_t groups = lanes < WARP ? WARPS_ENOUGH * (WARP / lanes) : WARPS_ENOUGH;
    while (t.chunk > CHUNK_LEAST && entries < groups * t.chunk) t.chunk /= 2;
    int64_t nodes = (entries + t.chunk - 1) / t.chunk, first = 0;
    for (;;) {
        t.count[t.levels] = nodes;
        t.first[t.levels++] = first;
        if (nodes <= 1) return t;
        first += nodes;
        nodes = (nodes + FAN - 1) / FAN;
    }
}

/* A compact gradient: the unique keys in the order of the entries, and a gradient row for each. */
struct compact {
    const uint32_t *key;   /* [runs] */
    const uint32_t *begin; /* [runs] first entry of each */
    const uint32_t *runs;  /* their number, in device memory */
    float *grad;           /* [runs][stride]; NULL: rows are updated */
    int64_t stride;
};

struct runs {
    struct entries entries;
    struct tree tree;
    enum dtype type;        /* of gradients */
    const void *source;     /* batch.grad */
    uint32_t unit_bytes;    /* of a value of the entries */
    bool aligned;           /* gradient rows begin aligned, and there are no winners */
    bool whole;             /* and they are whole quads, of all tables */
    const int32_t *winners; /* of the batch; NULL without a max */
    int32_t dim;            /* the widest of its tables */
    int32_t stride;         /* floats of a partial row */
    float *partial;         /* [nodes][2][stride] head and tail */
    uint32_t *arrived;      /* [inner nodes], zero */
    /* Rows of runs that are longer than a chunk reaches, and where in partial their sums are; not with compact. */
    uint32_t *listed;                /* their number, zero */
    uint32_t *list_key, *list_place; /* [chunks] */
    struct kind kind;                /* of all tables; not with compact */
    struct target target;
    struct compact compact;
};

static inline int64_t tree_nodes(const struct tree *t) {
    return t->first[t->levels - 1] + t->count[t->levels - 1];
}

static inline int64_t inner_nodes(const struct tree *t) {
    return tree_nodes(t) - t->count[0];
}

/* Sets all fields except entries, kind, arrived, listed, target and compact. dim: the widest of the tables. */
static inline void runs_lay_out(struct runs *r, struct scratch *s, const struct batch *in,
                                int64_t entries, int32_t dim) {
    *r = {};
    r->dim = dim;
    r->tree = tree_of(entries, dim);
    r->type = in->grad_type;
    r->source = in->grad;
    r->unit_bytes = (uint32_t)(grad_unit(in) * dtype_bytes(in->grad_type));
    r->winners = in->winners;
    r->stride = stride_of(dim);
    r->partial = (float *)scratch_take(s, 2 * tree_nodes(&r->tree) * r->stride, sizeof(float));
    r->list_key = (uint32_t *)scratch_take(s, r->tree.count[0], sizeof *r->list_key);
    r->list_place = (uint32_t *)scratch_take(s, r->tree.count[0], sizeof *r->list_place);
    const int64_t whole = LANE_COLUMNS * dtype_bytes(r->type);
    r->aligned = !r->winners && r->unit_bytes % whole == 0 &&
                 in->grad_elements / LANE_COLUMNS <= UINT32_MAX &&
                 (uintptr_t)r->source % (unsigned)whole == 0;
    r->whole = r->aligned;
    for (int32_t t = 0; t < in->num_tables; t++) r->whole &= in->tables[t].dim % LANE_COLUMNS == 0;
}

/* Counters that a kernel before them zeroes. */
struct counters {
    uint32_t *at;
    int64_t count;
};

/* Those of `count` runs[], in one piece. */
static inline struct counters counters_take(struct runs *runs, int count, struct scratch *s) {
    struct counters c = {NULL, 0};
    for (int k = 0; k < count; k++) c.count += inner_nodes(&runs[k].tree) + 1;
    c.at = (uint32_t *)scratch_take(s, c.count, sizeof *c.at);
    uint32_t *next = c.at;
    for (int k = 0; k < count && c.at; k++) {
        runs[k].arrived = next;
        runs[k].listed = next + inner_nodes(&runs[k].tree);
        next = runs[k].listed + 1;
    }
    return c;
}

static inline cudaError_t counters_zero(const struct counters *c, cudaStream_t stream) {
    if (c->count == 0) return cudaSuccess;
    return cudaMemsetAsync(c->at, 0, (size_t)c->count * sizeof *c->at, stream);
}

/* Sums all runs and updates their rows. Enqueues on the stream. */
cudaError_t runs_update(const struct runs *r, cudaStream_t stream);

/* Sums all runs into r->compact. Enqueues on the stream. */
cudaError_t runs_reduce(const struct runs *r, cudaStream_t stream);

/* Most rows that a batch of this shape can touch, padding counted as one. */
static inline int64_t touchable_rows(const struct batch *in) {
    int64_t rows = has_padding(in);
    for (int32_t t = 0; t < in->num_tables; t++) rows += table_touchable(in, t);
    return rows;
}

/* Updates rows by sums that are in memory, one for each row, in any order. */
struct row_list {
    const uint32_t *key;   /* [count] */
    const uint32_t *place; /* [count] the row of sums; NULL: as the keys */
    const uint32_t *count; /* in device memory */
    uint32_t padding;      /* no row has this key */
    const float *sums;     /* rows, stride floats apart */
    uint32_t stride;
    const int64_t *
        first; /* [num_tables]; not NULL: row i of a table is at first[table] + i * dim, by no place */
    struct target target;
    /* Set by the launches: the rows of one, and how many a warp takes. */
    struct kind kind;
    bool mixed, general; /* other rows are in the list, too; as struct classes */
    uint32_t each;
};

/* Updates all rows of a list, at most `most`, of any tables of the batch: a launch for each kind of them. Enqueues on
 * the stream. */
cudaError_t rows_update(const struct row_list *list, int64_t most, const struct batch *in,
                        cudaStream_t stream);

/* The rows of a compact gradient, as a list. padding: the key of padding. */
static inline struct row_list compact_list(const struct compact *c, uint32_t padding,
                                           const struct target &to) {
    return {c->key, NULL, c->runs, padding, c->grad, (uint32_t)c->stride, NULL, to};
}
