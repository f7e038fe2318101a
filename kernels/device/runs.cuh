/* SPDX-License-Identifier: MIT
 *
 * Sums the gradients of every run of equal keys. Each sum goes to the rule, which updates the row
 * at once, or to a compact gradient. One launch handles runs of all lengths.
 *
 * Entries are cut into chunks, regardless of runs. A group of lanes takes a chunk: a lane fetches the
 * metadata of one entry, and eight gradient rows are in flight at once. The sums of the runs that end among
 * these wait in memory of the block, while their rows are updated.
 *
 * The group that has the first entry of a run finishes it, if it ends at most REACH entries after the chunk.
 * A longer run *crosses* the chunk's border. Its sum in the chunk where it comes from is that chunk's *tail*,
 * and the one where it goes on is the *head* there: partial rows in scratch. Chunks are the leaves of a tree with
 * FAN children per node. A chunk or node that no run crosses into or out of has nothing for its parent. Of the
 * others an integer counter per node shows which child arrives last. The group of that child adds up the heads and
 * tails in the order of the children, finishes the runs that end in the node, and leaves a head and a tail for
 * the next level. So a row with 10^8 lookups costs a few levels, and no group waits for another. No float add is
 * atomic: the shape of every sum depends only on the positions of the entries.
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
    FAN = 1 << FAN_BITS, /* a head and a tail of each child make one item per lane of a warp */
    MOST_LEVELS = 10,
    FLIGHT = 8, /* loads in flight per lane: gradient rows, or tiles of them */
};

/* Nodes of all levels, the chunks first. */
struct tree {
    int chunk; /* entries */
    int levels;
    int64_t count[MOST_LEVELS], first[MOST_LEVELS];
};

/* Few entries make short chunks, so that there are enough warps; so do narrow rows, of which a warp has several groups. */
static inline struct tree tree_of(int64_t entries, int32_t dim) {
    struct tree t = {CHUNK_MOST};
    const int lanes = cover_of(dim).count;
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

/* Gradient rows: all of them whole and aligned, so that a lane loads its four columns at once; or any, or with
 * winners. */
enum gradient_rows { ROWS_FP32, ROWS_16BIT, ROWS_ANY };

struct runs {
    struct entries entries;
    struct tree tree;
    enum dtype type; /* of gradients */
    enum gradient_rows rows;
    bool read_once;         /* about as many gradient rows as lookups */
    const void *source;     /* batch.grad */
    uint32_t unit_bytes;    /* of a value of the entries */
    int64_t source_bytes;   /* of all gradient rows */
    const int32_t *winners; /* of the batch; NULL without a max */
    int32_t dim;            /* the widest of its tables */
    int32_t stride;         /* floats of a partial row */
    float *partial;         /* [nodes][2][stride] head and tail */
    uint32_t *arrived;      /* [inner nodes], zero */
    /* Behind the lean kernels: rows of runs that are longer than a chunk reaches, and where in partial their sums are. */
    uint32_t *listed;                /* their number, zero */
    uint32_t *list_key, *list_place; /* [chunks] */
    struct kind kind;
    struct target target;
    struct compact compact;
};

static inline int64_t tree_nodes(const struct tree *t) {
    return t->first[t->levels - 1] + t->count[t->levels - 1];
}

static inline int64_t inner_nodes(const struct tree *t) {
    return tree_nodes(t) - t->count[0];
}

/* Sets all fields except entries, rows, arrived, listed, target and compact. dim: the widest of the tables; kind: of all
 * of them. */
static inline void runs_lay_out(struct runs *r, struct scratch *s, const struct batch *in,
                                int64_t entries, int32_t dim,
                                struct kind kind = {ANY_KIND, false}) {
    *r = {};
    r->dim = dim;
    r->kind = kind;
    r->tree = tree_of(entries, dim);
    r->type = in->grad_type;
    r->read_once = in->lookups * widest(in) <= 2 * in->grad_elements;
    r->source = in->grad;
    r->source_bytes = in->grad_elements * dtype_bytes(in->grad_type);
    r->unit_bytes = (uint32_t)(grad_unit(in) * dtype_bytes(in->grad_type));
    r->winners = in->winners;
    r->stride = stride_of(dim);
    r->partial = (float *)scratch_take(s, 2 * tree_nodes(&r->tree) * r->stride, sizeof(float));
    r->list_key = (uint32_t *)scratch_take(s, r->tree.count[0], sizeof *r->list_key);
    r->list_place = (uint32_t *)scratch_take(s, r->tree.count[0], sizeof *r->list_place);
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

/* Whether all gradient rows begin and end at a multiple of so many bytes. */
static inline bool rows_are_whole(const struct runs *r, const struct batch *in, int bytes) {
    const int elements = bytes / dtype_bytes(r->type);
    bool whole = r->entries.unit % elements == 0 && (uintptr_t)r->source % (unsigned)bytes == 0;
    for (int32_t t = 0; t < in->num_tables; t++) whole &= in->tables[t].dim % elements == 0;
    return whole;
}

/* Sums all runs and updates their rows. Enqueues on the stream. */
cudaError_t runs_update(const struct runs *r, const struct batch *in, cudaStream_t stream);

/* Sums all runs into r->compact. Enqueues on the stream. */
cudaError_t runs_reduce(const struct runs *r, const struct batch *in, cudaStream_t stream);
