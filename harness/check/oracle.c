/* SPDX-License-Identifier: MIT */
#include "harness/check/oracle.h"

#include "oracle_files.h" /* generated: #include "harness/check/rules/sgd.h" ... */

void oracle_sum(const struct batch *in, const struct row_lookup *lookups, int64_t count, bool exact,
                int32_t dim, struct num *grad) {
    const double relative = (double)(count + 3) * unit * 1.001;
    for (int32_t d = 0; d < dim; d++) grad[d] = exactly(0);
    for (int64_t k = 0; k < count; k++) {
        int64_t i = lookups[k].lookup, q = lookups[k].bag, f = q / in->bags;
        const struct feature *x = &in->features[f];
        double w = in->lookup_weights ? in->lookup_weights[i] : 1.0, c = w;
        int64_t r = q - f * in->bags; /* gradient row within the feature */
        if (x->pooling == POOL_NONE) r = i - in->offsets[f * in->bags];
        if (x->pooling == POOL_MEAN) {
            int64_t length = 0;
            for (int64_t j = in->offsets[q]; j < in->offsets[q + 1]; j++)
                length += batch_id(in, j) != x->padding_id;
            c /= (double)length;
        }
        for (int32_t d = 0; d < dim; d++) {
            const int64_t at = x->grad_offset + r * x->grad_stride + d;
            if (x->pooling == POOL_MAX && in->winners[at] != i - in->offsets[q]) continue;
            const double g = batch_grad(in, at);
            grad[d].value += c * g;
            grad[d].error += relative * fabs(c * g) + tiny * (fabs(w) + fabs(g) + 1);
        }
    }
    for (int32_t d = 0; d < dim; d++) {
        if (!(grad[d].error / relative < FLT_MAX)) grad[d].error = INFINITY; /* >= sum|c g| */
        if (exact) grad[d].error = 0;
    }
}

void oracle_update_per_lookup(const struct rule *r, int64_t count, int32_t dim, const struct num *g,
                              struct oracle_row *x) {
    const double flushed = 3 * 0x1p-126; /* two terms and their sum */
    const double lr = r->param[RULE_LR], growth = expm1((double)count * log1p(unit));
    for (int32_t d = 0; d < dim; d++) {
        double all = g[d].error / ((double)(count + 3) * unit); /* >= sum|g| */
        double largest = fabs(x->weight[d].value) + x->weight[d].error + fabs(lr) * all;
        x->weight[d] = sub(x->weight[d], mul(exactly(lr), g[d]));
        x->weight[d].error +=
            growth * (largest + x->weight[d].error) + (1 + growth) * (double)count * flushed;
    }
}

/* The factor that shortens a row of this sum of squares to `most`: min(1, most/norm). */
static struct num shortening(const struct total *squares, int32_t dim, double most) {
    const struct num norm = root(total_of(squares, dim));
    const double low = greater(norm.value - norm.error, most);
    return rounded(lesser(1, most / norm.value), norm.error * most / (low * low));
}

/* Adjusts the gradient and the weights as kernels/adjust.h says. */
static void adjust(const struct rule *rule, int32_t dim, struct num *g, struct num *w) {
    const float *x = rule->shared, clip = x[CLIP_VALUE];
    const struct num decay = exactly(x[WEIGHT_DECAY]);
    const bool decoupled = x[DECOUPLED_WEIGHT_DECAY] != 0, decays = decay.value > 0;
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < dim; d++) {
        if (x[GRAD_SCALE] != 0) g[d] = mul(exactly(x[GRAD_SCALE]), g[d]);
        if (x[MAXIMIZE] != 0) g[d].value = -g[d].value;
        if (clip > 0) g[d].value = greater(-clip, lesser(clip, g[d].value));
        if (clip > 0) g[d].error = lesser(g[d].error, clip + fabs(g[d].value));
        total_add(&squares, mul(g[d], g[d]));
    }
    const struct num factor = shortening(&squares, dim, x[CLIP_NORM]);
    const struct num keep = sub(exactly(1), mul(exactly(rule->param[RULE_LR]), decay));
    for (int32_t d = 0; d < dim; d++) {
        if (x[CLIP_NORM] > 0) g[d] = mul(factor, g[d]);
        if (decays && decoupled) w[d] = mul(keep, w[d]);
        if (decays && !decoupled) g[d] = add(g[d], mul(decay, w[d]));
    }
}

void oracle_update(const struct rule *rule, int64_t t, int32_t dim, struct num *grad,
                   struct oracle_row *row) {
    const struct rule_case c = {rule->param, t, dim, grad};
    adjust(rule, dim, grad, row->weight);
    switch (rule->kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: rule(&c, row); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

void oracle_store(const struct table_shape *t, struct oracle_row *row) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const enum dtype type = table_array_type(t, a);
        if (type == FP32) continue;
        const double relative = dtype_unit(type, t->rounding), absolute = dtype_tiny(type);
        for (int64_t d = 0; d < rule_array_width(t->rule, t->dim, a); d++) {
            struct num *x = &row->array[a][d];
            const double most = fabs(x->value) + x->error;
            x->error = most < dtype_most(type) ? x->error + relative * most + absolute : INFINITY;
        }
    }
}
