/* SPDX-License-Identifier: MIT
 *
 * The lean kernels: sums of runs and updates of rows, with what is known before the launch as a constant of the code:
 * the rule, the lanes of a row, and whether all arrays are plain. kernels/device/lean.cu is compiled once for each file
 * of rules/, so a new rule gets the same kernels.
 *
 * A launch is for tables of one kind: one rule, rows of at most 4 * LANES * QUADS columns (a multiple of 4, at most
 * 256), aligned; keys of 32 bits, gradient rows that are aligned and whole, no max. runs.cu has the way of all others.
 */
#pragma once

#include "kernels/device/runs.cuh"

enum {
    LEAN_BLOCK = 128, /* threads */
    LEAN_WARPS = LEAN_BLOCK / (int)WARP,
    LEAN_COVERS = 5 /* 4, 8, 16 or 32 lanes with one quad each, 32 lanes with two */
};

/* Sums of rows to be updated, one for each key, in any order. */
struct row_list {
    const uint32_t *key;   /* [count] */
    const uint32_t *place; /* [count] the row of sums; NULL: as the keys */
    const uint32_t *count; /* in device memory */
    uint32_t padding;      /* no row has this key */
    const float *sums;     /* rows, stride floats apart */
    uint32_t stride;
    struct target target;
};

/* A rule's kernels: [cover][plain]. plain: all arrays are fp32, and no shared hyper-parameter adjusts. */
struct lean_kernels {
    void (*sum[LEAN_COVERS][2])(struct runs);
    void (*update[LEAN_COVERS][2])(struct row_list);
    int batch[LEAN_COVERS][2]; /* rows of a warp of update */
};

/* Whether there are lean kernels for tables of that kind. */
bool lean_has(struct kind kind);

/* Whether they can take this launch. */
bool lean_takes(const struct runs *r);

/* Sums all runs and updates their rows. Enqueues on the stream. */
cudaError_t lean_update(const struct runs *r, cudaStream_t stream);

/* Updates the rows of a list, at most `most`. All tables are of that kind and cover. Enqueues on the stream. */
cudaError_t lean_update_listed(const struct row_list *list, int64_t most, struct kind kind,
                               struct cover cover, cudaStream_t stream);

/* The tree over the chunks, behind the sums: finished runs go to the list. Enqueues on the stream. */
void tree_enqueue(const struct runs *r, cudaStream_t stream);
