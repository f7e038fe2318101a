/* SPDX-License-Identifier: MIT
 *
 * Fully fused: a radix sort orders entries by row, then one kernel sums the gradients of every run in
 * registers and updates its rows in batches, by the code of the rule alone. The only gradients in memory are partial
 * sums of runs that are longer than the reach of a chunk.
 *
 * Who owns what: runs.cuh, lean_sum.cuh; a group of lanes takes a chunk of 32 to 128 sorted entries, a lane 4 columns.
 * Rows that lean code does not take: general.cuh. Tables of different kinds: classes.cuh.
 * Scratch and traffic per lookup: 16 bytes of entries (24 with weights or means), 8*dim/chunk bytes
 * of partial rows, and 1.6 for the words of the sort (no further copy of the entries). The
 * index moves about 69 bytes in a memset and 4 kernels (sorted.cuh). Gradient rows are read once per
 * lookup; touched rows and their state are read and written once.
 * Deterministic: the shape of every sum depends only on the batch.
 * The gradient of per-sample weights, if it is wanted, is a pass of its own before the update, as in
 * cuda_dot.
 * Measured on an H200 (docs/cuda.md): the fastest kernel that builds its index in the step, on every workload there.
 * CUB sorted the entries then, as it does in cuda_fused_cub, and the index took a quarter of the step. Today's sort
 * and sums were counted, not timed.
 * Source: FBGEMM's exact fused optimizers. They assign runs to warps or blocks by length; here one
 * tree over all entries replaces that.
 */
#include "kernels/fused/fused.cuh"

DEFINE_KERNEL(cuda_fused) = {
    .name = "cuda_fused",
    .label = "CUDA fully fused",
    .idea = "Sort lookups by row; one kernel sums runs over a tree of chunks and updates the rows.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = entries_refuse,
    .variant = fused_variant,
    .scratch_bytes = fused_scratch_bytes<struct sorted>,
    .plan = NULL,
    .run = fused_run<struct sorted>,
};
