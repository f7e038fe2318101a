/* SPDX-License-Identifier: MIT
 *
 * Atomic scatter straight into the weights: every lookup subtracts its own step. This is correct
 * only for rules that are linear in the gradient, such as SGD: for all others a step per lookup is
 * another function than a step for the sum. Even with SGD the weight is rounded once per lookup
 * instead of once per row.
 *
 * Who owns what: scatter.cuh; a warp takes 32 lookups. Scratch: only the scales of means.
 * Not deterministic: atomics come in any order.
 * Expected, not measured yet: wins if few rows have two lookups or more; loses if hot rows make
 * atomics queue up. Source: the default of HugeCTR's SGD ("atomic update").
 */
#include "kernels/device/scatter.cuh"

static float *lay_out(struct scratch *s, const struct batch *in) {
    return mean_scales_take(s, in);
}

static const char *accepts(const struct batch *shape) {
    for (int32_t t = 0; t < shape->num_tables; t++)
        if (shape->tables[t].weight_type != FP32) return "weights are not fp32";
    return NULL;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct scratch s = {NULL, 0};
    lay_out(&s, shape);
    return s.used;
}

/* The destination is the weights. The factor is what a step makes of a weight of 0 for a gradient of 1. */
struct step_down {
    const struct table_shape *tables;
    const struct rule_step *steps;
    const struct table *io;

    __device__ struct destination operator()(const struct lookup &l) const {
        const struct rule_step *step = &steps[l.table];
        const struct pair rate = rule_row(step->rule.kind, step, {0, 0}, tables[l.table].dim, NULL);
        return {(float *)array_row(&io[l.table].weight, l.row),
                rule_weight(step->rule.kind, rule_element(step, rate, 0, {}, 1), 1)};
    }
};

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct scratch s = {(char *)how->scratch, 0};
    float *scale = lay_out(&s, in);
    mean_scales_fill(in, scale, stream);
    struct step_down to = {in->device_tables, steps, io};
    cudaError_t status = scatter_enqueue(in, scale, to, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_atomic_direct) = {
    .name = "cuda_atomic_direct",
    .label = "CUDA atomic scatter into weights",
    .idea = "Every lookup subtracts its step from the weights atomically; for linear rules.",
    .place = ON_DEVICE,
    .traits = STEP_PER_LOOKUP,
    .accepts = accepts,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
