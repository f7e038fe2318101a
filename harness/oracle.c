/* SPDX-License-Identifier: MIT */
#include "harness/oracle.h"

#include <float.h>
#include <math.h>

/* Relative error of one rounding to float, and the absolute one where floats are subnormal. */
static const double unit = 0x1p-24, tiny = 0x1p-149;

static struct num exactly(double value) {
    return (struct num){value, 0};
}

/* A value that is `inherited` off before its own rounding to float. */
static struct num rounded(double value, double inherited) {
    double error = inherited + unit * (fabs(value) + inherited) + tiny;
    return (struct num){value, fabs(value) + error < FLT_MAX ? error : INFINITY};
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

/* b is positive, and its evaluation never below `least`. */
static struct num quot(struct num a, struct num b, double least) {
    double value = a.value / b.value, low = fmax(b.value - b.error, least);
    if (!(low > 0) || !isfinite(b.error)) return (struct num){value, INFINITY};
    double off = fmax((b.value - low) / low, b.error / (b.value + b.error));
    return rounded(value, a.error / low + fabs(value) * off);
}

/* An accumulator of squares: at least 0, unless the state was negative from the beginning. */
static struct num accumulate(struct num state, struct num square) {
    struct num sum = add(state, square);
    if (state.value < 0 && sum.value - sum.error < 0) sum.error = INFINITY;
    return sum;
}

/* sqrt(s) + eps of such a sum: evaluated, it is not below eps. */
static struct num denominator(struct num s, float eps) {
    double value = sqrt(s.value), low = sqrt(fmax(s.value - s.error, 0));
    struct num root = rounded(value, fmax(sqrt(s.value + s.error) - value, value - low));
    return add(root, exactly(eps));
}

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

static void sgd(const struct rule *r, int32_t dim, const struct num *g, struct oracle_row *x) {
    for (int32_t d = 0; d < dim; d++) x->weight[d] = sub(x->weight[d], mul(exactly(r->lr), g[d]));
}

void oracle_sgd_per_lookup(const struct rule *r, int64_t count, int32_t dim, const struct num *g,
                           struct oracle_row *x) {
    const double flushed = 3 * 0x1p-126; /* two terms and their sum */
    double growth = expm1((double)count * log1p(unit));
    for (int32_t d = 0; d < dim; d++) {
        double all = g[d].error / ((double)(count + 3) * unit); /* >= sum|g| */
        double largest = fabs(x->weight[d].value) + x->weight[d].error + fabs(r->lr) * all;
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

/* How long a step of Adagrad can be, lr|g| / (sqrt(s + g^2/n) + eps) <= lr sqrt(n), and its
 * evaluation with it, but where g^2 is subnormal: there |g| < 2^-61 sqrt(n), and eps divides. It
 * bounds steps whose gradient may be 0, which says more than the errors of numerator and
 * denominator, each on its own. */
static struct num shortened(struct num step, float lr, float eps, int32_t n) {
    double longest = 2 * fabs(lr) * sqrt(n) * (1 + 0x1p-60 / eps) + 0x1p-80 + 4 * tiny / eps;
    step.error = fmin(step.error, fabs(step.value) + longest);
    return step;
}

static void adagrad(const struct rule *r, int32_t dim, const struct num *g, struct oracle_row *x) {
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < dim; d++) {
        s[d] = accumulate(s[d], mul(g[d], g[d]));
        struct num step = quot(mul(exactly(r->lr), g[d]), denominator(s[d], r->eps), r->eps);
        x->weight[d] = sub(x->weight[d], shortened(step, r->lr, r->eps, 1));
    }
}

static void rowwise_adagrad(const struct rule *r, int32_t dim, const struct num *g,
                            struct oracle_row *x) {
    double sum = 0, off = 0; /* kernels sum the squares in double: only g is off */
    for (int32_t d = 0; d < dim; d++) {
        sum += g[d].value * g[d].value;
        off += 2 * fabs(g[d].value) * g[d].error + g[d].error * g[d].error;
    }
    x->row[0] = accumulate(x->row[0], rounded(sum / dim, off / dim));
    struct num rate = quot(exactly(r->lr), denominator(x->row[0], r->eps), r->eps);
    for (int32_t d = 0; d < dim; d++)
        x->weight[d] = sub(x->weight[d], shortened(mul(rate, g[d]), r->lr, r->eps, dim));
}

static void adam(const struct rule *r, int64_t t, int32_t dim, const struct num *g,
                 struct oracle_row *x) {
    struct num *m = x->elem[0], *v = x->elem[1];
    struct num b1 = exactly(r->beta1), b2 = exactly(r->beta2), one = exactly(1);
    struct num correct1 = rounded(1 - pow(r->beta1, (double)t), 0);
    struct num correct2 = rounded(1 - pow(r->beta2, (double)t), 0);
    for (int32_t d = 0; d < dim; d++) {
        m[d] = add(mul(b1, m[d]), mul(sub(one, b1), g[d]));
        v[d] = accumulate(mul(b2, v[d]), mul(sub(one, b2), mul(g[d], g[d])));
        struct num step = mul(exactly(r->lr), quot(m[d], correct1, 0));
        struct num below = denominator(quot(v[d], correct2, 0), r->eps);
        x->weight[d] = sub(x->weight[d], quot(step, below, r->eps));
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
