/* SPDX-License-Identifier: MIT
 *
 * The fused kernel with an index from the forward pass. The forward pass reads rows by the same
 * ids, so a system can write and sort the entries then, off the critical path of the backward pass.
 * The time of the step is only the sum and the update; the time of the plan is reported
 * separately. Do not compare this with kernels that sort in the step: it shows what their sort
 * costs, and what a training system gains if it can hide the sort.
 *
 * Everything else as in cuda_fused.cu. Source: torchrec's Triton TBE, which moves the transpose
 * into the forward pass; FBGEMM's proposed preprocessing of backward indices.
 */
#include "kernels/fused/fused.cuh"

/* run expects the sorted entries in the first pair of buffers. If the sort ends in the other pair,
 * plan copies them. */
static int plan(const struct batch *in, const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct fused<struct sorted> p;
    fused_lay_out(&p, in, how->scratch);
    struct entries e = index_entries(&p.index);
    cudaError_t status = fused_index(&p, in, stream);
    struct entries sorted = index_entries(&p.index);
    if (status != cudaSuccess || sorted.key == e.key) return status;
    status = cudaMemcpyAsync(e.key, sorted.key, (size_t)e.count * sizeof *e.key,
                             cudaMemcpyDeviceToDevice, stream);
    if (status != cudaSuccess) return status;
    return cudaMemcpyAsync(e.value, sorted.value, (size_t)e.count * value_bytes(&e),
                           cudaMemcpyDeviceToDevice, stream);
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct fused<struct sorted> p;
    fused_lay_out(&p, in, how->scratch);
    /* The plan zeroed them too, but a plan may serve several steps. */
    cudaError_t status = counters_zero(&p.counters, stream);
    if (status == cudaSuccess) status = fused_update(&p, in, steps, io, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_fused_planned) = {
    .name = "cuda_fused_planned",
    .label = "CUDA fused, planned ahead",
    .idea = "As cuda_fused, with entries sorted ahead of the step: the sort is not in its time.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = entries_refuse,
    .variant = fused_variant,
    .scratch_bytes = fused_scratch_bytes<struct sorted>,
    .plan = plan,
    .run = run,
};
