/* SPDX-License-Identifier: MIT
 *
 * All rules share some hyper-parameters. They change a row's summed gradient g and its weights w before
 * the rule sees them, in this order:
 *
 *   g = grad_scale*g                                 grad_scale 0: g stays
 *   g = -g                                           if maximize
 *   every element of g to [-clip_value, clip_value]  if clip_value > 0
 *   g = clip_norm/|g|*g, |.| over the row            if clip_norm > 0 and |g| > clip_norm
 *   g = g + weight_decay*w                           L2, unless decoupled_weight_decay
 *   w = w - lr*weight_decay*w                        if decoupled_weight_decay
 *
 * All are 0 unless they are given, and then nothing changes. A clip_norm below 1e-16 is refused, since the squares of
 * such a row underflow. A rule with a weight_decay of its own (LAMB's
 * is inside a norm) does not have the last two.
 *
 * Names: torch.optim (maximize, weight_decay, decoupled_weight_decay), Keras (clipvalue, clipnorm). PyTorch
 * clips before the step, too, but over all tensors (embfuse step --clip-global-norm), and divides by
 * |g| + 1e-6. FBGEMM clips the gradients of
 * bags, before they are summed.
 */
#pragma once

#include "kernels/rule.h"

/* Sums over a row have one order: see kernels/rules.h. */
enum { ROW_LANES = 128 };

#define RULE_SHARED_PARAMS                                                                         \
    {"grad_scale", 0, RULE_NOT_NEGATIVE}, {"maximize", 0, RULE_FLAG},                              \
        {"clip_value", 0, RULE_NOT_NEGATIVE}, {"clip_norm", 0, RULE_NORM},                         \
        {"weight_decay", 0, RULE_NOT_NEGATIVE}, {                                                  \
        "decoupled_weight_decay", 0, RULE_FLAG                                                     \
    }

/* The adjustment that the shared hyper-parameters of a rule ask for. */
static inline struct adjustment adjustment_of(const struct rule *r) {
    const float *x = r->shared, decay = x[WEIGHT_DECAY];
    const bool decoupled = x[DECOUPLED_WEIGHT_DECAY] != 0;
    struct adjustment a = {false,
                           x[GRAD_SCALE] != 0 ? x[GRAD_SCALE] : 1,
                           x[CLIP_VALUE],
                           x[CLIP_NORM],
                           decoupled ? 0 : decay,
                           1};
    if (x[MAXIMIZE] != 0) a.scale = -a.scale;
    if (decoupled) a.keep = 1.0f - r->param[RULE_LR] * decay;
    a.gradient = a.scale != 1 || a.clip_value > 0 || a.clip_norm > 0 || a.decay > 0;
    return a;
}

/* Scales an element and clips its value. */
HOST_DEVICE float adjust_clip(const struct adjustment *a, float g) {
    g *= a->scale;
    const float most = a->clip_value > 0 ? a->clip_value : INFINITY;
    return g > most ? most : g < -most ? -most : g;
}

/* The factor that clips the norm. squares is the sum over the row of the squares of adjust_clip(). */
HOST_DEVICE float adjust_norm(const struct adjustment *a, float squares) {
    const float norm = sqrtf(squares);
    return norm > a->clip_norm ? a->clip_norm / norm : 1.0f;
}

/* The element's gradient for the rule. clipped: from adjust_clip(); factor: from adjust_norm(). */
HOST_DEVICE float adjust_decay(const struct adjustment *a, float clipped, float factor, float w) {
    const float g = factor * clipped;
    return a->decay > 0 ? g + a->decay * w : g;
}

/* Folds the lanes of a row's sum by halves. */
static inline float lanes_fold(float lane[ROW_LANES]) {
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* Adjusts a row's summed gradient on the host. w has the row's weights, of that type. */
static inline void adjust_row(const struct adjustment *a, enum dtype type, const void *w,
                              int32_t dim, float *g) {
    float factor = 1;
    for (int32_t d = 0; d < dim; d++) g[d] = adjust_clip(a, g[d]);
    if (a->clip_norm > 0) {
        float lane[ROW_LANES] = {0};
        for (int32_t d = 0; d < dim; d++) lane[d % ROW_LANES] += g[d] * g[d];
        factor = adjust_norm(a, lanes_fold(lane));
    }
    for (int32_t d = 0; d < dim; d++) g[d] = adjust_decay(a, g[d], factor, dtype_get(type, w, d));
}
