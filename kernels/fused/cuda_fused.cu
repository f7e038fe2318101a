/* SPDX-License-Identifier: MIT
 *
 * Fully fused: entries are sorted by row, then one kernel sums the gradients of every run in
 * registers and updates the row at once. No gradient of any size is written, but for the partial
 * sums of runs that cross the border of a chunk.
 *
 * Who owns what: runs.cuh; a group of lanes takes 128 sorted entries, a lane 4 columns. Tables
 * whose gradient fits in shared memory go another way, without the sort: small.cuh.
 * Scratch and traffic per lookup: 16 bytes of entries (24 with weights or means), 8*dim/CHUNK bytes
 * of partial rows, and what CUB's sort asks for (no further copy of the entries); about 68 bytes
 * move through the index (sorted.cuh). Gradient rows are read once per lookup, touched rows and
 * their state read and written once.
 * Deterministic: the shape of every sum depends on the batch alone.
 * Expected, not measured yet: wins where rows do not fit in L2; where they do, the sort decides.
 * The idea: FBGEMM's exact fused optimizers, whose split into warps and blocks by length of the run
 * is replaced by one tree over all entries.
 */
#include "kernels/fused/fused.cuh"

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct fused p;
    fused_lay_out(&p, in, how->scratch);
    cudaError_t status = fused_index(&p, in, stream);
    stage_done(how, STAGE_INDEX);
    if (status == cudaSuccess) status = fused_update(&p, in, steps, io, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_fused) = {
    .name = "cuda_fused",
    .label = "CUDA fully fused",
    .idea = "Sort lookups by row; one kernel sums runs over a tree of chunks and updates the rows.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = fused_accepts,
    .scratch_bytes = fused_scratch_bytes,
    .plan = NULL,
    .run = run,
};
