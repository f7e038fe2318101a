/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights on a device, in a pass of its own.
 *
 * Who owns what: kernels/device/dots.cuh; a group of lanes takes a bag and multiplies its rows with the
 * bag's gradient row, DOTS_IN_FLIGHT rows at a time; a fold over the lanes ends each dot.
 * Scratch and traffic: none; every lookup reads its row; the gradient row comes from L1 after the first.
 * Deterministic: a dot has one order, see kernels/weight_grad.h.
 * Expected, not measured yet: the bytes of the rows decide, as in cuda_lookup. A bag with most of the
 * lookups keeps one group busy and the others idle.
 * Source: FBGEMM's indice_weights gradient, a warp per bag, before the update.
 */
#include "kernels/device/dots.cuh"

static int run(const struct batch *in, const struct rule_step *, const struct table *io,
               const struct launch *how) {
    dots_enqueue(in, io, (float *)how->output, (cudaStream_t)how->stream);
    return cudaGetLastError();
}

DEFINE_KERNEL(cuda_dot) = {
    .name = "cuda_dot",
    .label = "CUDA gradient of weights",
    .idea = "A group of lanes takes the dots of a bag's rows with its gradient row.",
    .operation = OP_WEIGHT_GRAD,
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = NULL,
    .scratch_bytes = NULL,
    .plan = NULL,
    .run = run,
};
