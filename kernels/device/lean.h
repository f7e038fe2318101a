/* SPDX-License-Identifier: MIT
 *
 * What the kernels of one rule are: kernels/device/lean.cu is compiled once for each file of rules/, so a new rule gets
 * the same kernels, and no kernel knows two rules.
 *
 * Lean kernels know before the launch, as constants of the code: the rule, the lanes of a row, and whether all arrays
 * are plain. They take tables of one kind (target.cuh), and gradient rows that are whole. The rule's general kernels
 * take the others: a warp works on a row tile by tile, in memory (general.cuh).
 */
#pragma once

#include "kernels/device/runs.cuh"

enum {
    LEAN_BLOCK = 128, /* threads */
    LEAN_WARPS = LEAN_BLOCK / (int)WARP,
};

/* Each enqueues a kernel on the stream; [cover][plain]. */
struct rule_kernels {
    void (*sum[COVERS][2])(const struct runs *, cudaStream_t);
    void (*update[COVERS][2])(const struct row_list *, int64_t most, cudaStream_t);
    void (*sum_general)(const struct runs *, cudaStream_t);
    void (*update_general)(const struct row_list *, int64_t most, cudaStream_t);
};

/* The tree over the chunks, behind the sums: finished runs go to the list, or to the compact gradient. Enqueues on the
 * stream. */
void tree_enqueue(const struct runs *r, cudaStream_t stream);
