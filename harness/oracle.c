/* SPDX-License-Identifier: MIT */
#include "harness/oracle.h"

#include <math.h>

/* Relative error of one rounding to float, and the absolute one where floats are subnormal. */
static const double unit = 0x1p-24, tiny = 0x1p-149;

static struct num exactly(double value) {
    return (struct num){value, 0};
}

/* A value that is `inherited` off before its own rounding to float. */
static struct num rounded(double value, double inherited) {
    return (struct num){value, inherited + unit * (fabs(value) + inherited) + tiny};
}

static struct num add(struct num a, struct num b) {
    return rounded(a.value + b.value, a.error + b.error);
}

static struct num sub(struct num a, struct num b) {
    return rounded(a.value - b.value, a.error + b.error);
}

static struct num mul(struct num a, struct num b) {
    return rounded(a.value * b.value,
                   fabs(a.value) * b.error + fabs(b.value) * a.error + a.error * b.error);
}

static struct num quot(struct num a, struct num b) {
    double value = a.value / b.value, least = fabs(b.value) - b.error;
    if (!(least > 0)) return (struct num){value, INFINITY};
    return rounded(value, (a.error + fabs(value) * b.error) / least);
}

static struct num root(struct num a) {
    double value = sqrt(a.value), low = sqrt(fmax(a.value - a.error, 0));
    return rounded(value, fmax(sqrt(a.value + a.error) - value, value - low));
}

void oracle_sum(const struct batch *in, const struct row_lookup *lookups, int64_t count, bool exact,
                int32_t dim, struct num *grad) {
    for (int32_t d = 0; d < dim; d++) grad[d] = exactly(0); /* error holds sum |c g| for now */
    for (int64_t k = 0; k < count; k++) {
        int64_t i = lookups[k].lookup, q = lookups[k].bag, f = q / in->bags;
        const struct feature *x = &in->features[f];
        double c = in->lookup_weights ? in->lookup_weights[i] : 1.0;
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
            grad[d].error += fabs(c * g[d]);
        }
    }
    for (int32_t d = 0; d < dim; d++)
        grad[d].error = exact ? 0 : (double)(count + 3) * unit * grad[d].error * 1.001 + tiny;
}

static void sgd(const struct rule *r, int32_t dim, const struct num *g, struct oracle_row *x) {
    for (int32_t d = 0; d < dim; d++) x->weight[d] = sub(x->weight[d], mul(exactly(r->lr), g[d]));
}

void oracle_sgd_per_lookup(const struct rule *r, int64_t count, int32_t dim, const struct num *g,
                           struct oracle_row *x) {
    const double flushed = 3 * 0x1p-126; /* two terms and their sum */
    double growth = expm1((double)count * log1p(unit));
    for (int32_t d = 0; d < dim; d++) {
        double all = g[d].error / ((double)(count + 3) * unit); /* >= sum|g| */
        double largest = fabs(x->weight[d].value) + x->weight[d].error + r->lr * all;
        x->weight[d] = sub(x->weight[d], mul(exactly(r->lr), g[d]));
        x->weight[d].error +=
            growth * (largest + x->weight[d].error) + (1 + growth) * (double)count * flushed;
    }
}

static void momentum(const struct rule *r, int32_t dim, const struct num *g, struct oracle_row *x) {
    struct num *b = x->elem[0];
    for (int32_t d = 0; d < dim; d++) {
        b[d] = add(mul(exactly(r->momentum), b[d]), g[d]);
        x->weight[d] = sub(x->weight[d], mul(exactly(r->lr), b[d]));
    }
}

static void adagrad(const struct rule *r, int32_t dim, const struct num *g, struct oracle_row *x) {
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < dim; d++) {
        s[d] = add(s[d], mul(g[d], g[d]));
        struct num denominator = add(root(s[d]), exactly(r->eps));
        x->weight[d] = sub(x->weight[d], quot(mul(exactly(r->lr), g[d]), denominator));
    }
}

static void rowwise_adagrad(const struct rule *r, int32_t dim, const struct num *g,
                            struct oracle_row *x) {
    double sum = 0, off = 0; /* kernels sum the squares in double: only g is off */
    for (int32_t d = 0; d < dim; d++) {
        sum += g[d].value * g[d].value;
        off += 2 * fabs(g[d].value) * g[d].error + g[d].error * g[d].error;
    }
    x->row_state = add(x->row_state, rounded(sum / dim, off / dim));
    struct num rate = quot(exactly(r->lr), add(root(x->row_state), exactly(r->eps)));
    for (int32_t d = 0; d < dim; d++) x->weight[d] = sub(x->weight[d], mul(rate, g[d]));
}

static void adam(const struct rule *r, int64_t t, int32_t dim, const struct num *g,
                 struct oracle_row *x) {
    struct num *m = x->elem[0], *v = x->elem[1];
    struct num b1 = exactly(r->beta1), b2 = exactly(r->beta2), one = exactly(1);
    struct num correct1 = rounded(1 - pow(r->beta1, (double)t), 0);
    struct num correct2 = rounded(1 - pow(r->beta2, (double)t), 0);
    for (int32_t d = 0; d < dim; d++) {
        m[d] = add(mul(b1, m[d]), mul(sub(one, b1), g[d]));
        v[d] = add(mul(b2, v[d]), mul(sub(one, b2), mul(g[d], g[d])));
        struct num step = mul(exactly(r->lr), quot(m[d], correct1));
        struct num denominator = add(root(quot(v[d], correct2)), exactly(r->eps));
        x->weight[d] = sub(x->weight[d], quot(step, denominator));
    }
}

void oracle_update(const struct rule *rule, int64_t t, int32_t dim, const struct num *grad,
                   struct oracle_row *row) {
    switch (rule->kind) {
    case RULE_SGD: sgd(rule, dim, grad, row); break;
    case RULE_MOMENTUM: momentum(rule, dim, grad, row); break;
    case RULE_ADAGRAD: adagrad(rule, dim, grad, row); break;
    case RULE_ROWWISE_ADAGRAD: rowwise_adagrad(rule, dim, grad, row); break;
    case RULE_ADAM: adam(rule, t, dim, grad, row); break;
    case RULE_COUNT: break;
    }
}
