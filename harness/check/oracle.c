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
        const float *g = in->grad + x->grad_offset + r * x->grad_stride;
        for (int32_t d = 0; d < dim; d++) {
            grad[d].value += c * g[d];
            grad[d].error += relative * fabs(c * g[d]) + tiny * (fabs(w) + fabs(g[d]) + 1);
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

void oracle_update(const struct rule *rule, int64_t t, int32_t dim, const struct num *grad,
                   struct oracle_row *row) {
    const struct rule_case c = {rule->param, t, dim, grad};
    switch (rule->kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: rule(&c, row); break;
        RULES(X)
#undef X
    case RULE_COUNT: break;
    }
}

void oracle_store(enum dtype type, int32_t dim, struct num *weight) {
    if (type == FP32) return;
    for (int32_t d = 0; d < dim; d++) {
        struct num *w = &weight[d];
        w->error += dtype_unit(type) * (fabs(w->value) + w->error) + dtype_tiny(type);
        if (fabs(w->value) + w->error >= dtype_limit(type)) w->error = INFINITY;
    }
}
