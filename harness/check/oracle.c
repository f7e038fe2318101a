/* SPDX-License-Identifier: MIT */
#include "harness/check/oracle.h"

#include <float.h>
#include <math.h>

/* Relative error of one rounding to float, and the absolute error for subnormal floats. */
static const double unit = 0x1p-24, tiny = 0x1p-149;

static struct num exactly(double value) {
    return (struct num){value, 0};
}

/* A value with error `inherited` before its own rounding to float. */
static struct num rounded(double value, double inherited) {
    if (value == 0 && inherited == 0) return exactly(0);
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

/* b is positive, and its evaluation is never below `least`. */
static struct num quot(struct num a, struct num b, double least) {
    double value = a.value / b.value, low = fmax(b.value - b.error, least);
    if (!(low > 0) || !isfinite(b.error)) return (struct num){value, INFINITY};
    double off = fmax((b.value - low) / low, b.error / (b.value + b.error));
    return rounded(value, a.error / low + fabs(value) * off);
}

/* An accumulator of squares is at least 0, unless its state starts negative. */
static struct num accumulate(struct num state, struct num square) {
    struct num sum = add(state, square);
    if (state.value < 0 && sum.value - sum.error < 0) sum.error = INFINITY;
    return sum;
}

static struct num root(struct num s) {
    double value = sqrt(s.value), low = sqrt(fmax(s.value - s.error, 0));
    return rounded(value, fmax(sqrt(s.value + s.error) - value, value - low));
}

/* sqrt(s) + eps of such an accumulator: its evaluation is not below eps. */
static struct num denominator(struct num s, float eps) {
    return add(root(s), exactly(eps));
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

/* A sum over a row in floats, as kernels compute it: each term passes one addition for every 128
 * columns, and seven more. */
struct total {
    double value, magnitude, inherited;
};

static void total_add(struct total *x, struct num term) {
    x->value += term.value;
    x->magnitude += fabs(term.value) + term.error;
    x->inherited += term.error;
}

static struct num total_of(const struct total *x, int32_t dim) {
    const double additions = (dim + 127) / 128 + 7;
    double error = x->inherited + 1.001 * additions * unit * x->magnitude;
    return (struct num){x->value, x->magnitude + error < FLT_MAX ? error : INFINITY};
}

/* States every rule of rules/ again, as a function with the rule's name. */
struct rule_case {
    const float *param; /* hyper-parameters */
    int64_t t;
    int32_t dim;
    const struct num *g;
};

static void sgd(const struct rule_case *c, struct oracle_row *x) {
    for (int32_t d = 0; d < c->dim; d++)
        x->weight[d] = sub(x->weight[d], mul(exactly(c->param[RULE_LR]), c->g[d]));
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

static void momentum(const struct rule_case *c, struct oracle_row *x) {
    struct num *b = x->elem[0], lr = exactly(c->param[RULE_LR]);
    for (int32_t d = 0; d < c->dim; d++) {
        b[d] = add(mul(exactly(c->param[MOMENTUM_MU]), b[d]), c->g[d]);
        x->weight[d] = sub(x->weight[d], mul(lr, b[d]));
    }
}

/* Bounds a step of Adagrad by its greatest length: lr|g| / (sqrt(s + g^2/n) + eps) <= lr sqrt(n).
 * The evaluation obeys it too, unless g^2 is subnormal: then |g| < 2^-61 sqrt(n), and eps divides.
 * If the gradient may be 0, this bound is tighter than the separate errors of numerator and
 * denominator. */
static struct num shortened(struct num step, float lr, float eps, int32_t n) {
    double longest = 2 * fabs(lr) * sqrt(n) * (1 + 0x1p-60 / eps) + 0x1p-80 + 4 * tiny / eps;
    step.error = fmin(step.error, fabs(step.value) + longest);
    return step;
}

static void adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float lr = c->param[RULE_LR], eps = c->param[ADAGRAD_EPS];
    struct num *s = x->elem[0];
    for (int32_t d = 0; d < c->dim; d++) {
        s[d] = accumulate(s[d], mul(c->g[d], c->g[d]));
        struct num step = quot(mul(exactly(lr), c->g[d]), denominator(s[d], eps), eps);
        x->weight[d] = sub(x->weight[d], shortened(step, lr, eps, 1));
    }
}

static void rowwise_adagrad(const struct rule_case *c, struct oracle_row *x) {
    const float lr = c->param[RULE_LR], eps = c->param[ROWWISE_ADAGRAD_EPS];
    struct total squares = {0, 0, 0};
    for (int32_t d = 0; d < c->dim; d++) total_add(&squares, mul(c->g[d], c->g[d]));
    struct num mean = quot(total_of(&squares, c->dim), exactly(c->dim), c->dim);
    x->row[0] = accumulate(x->row[0], mean);
    struct num rate = quot(exactly(lr), denominator(x->row[0], eps), eps);
    for (int32_t d = 0; d < c->dim; d++)
        x->weight[d] = sub(x->weight[d], shortened(mul(rate, c->g[d]), lr, eps, c->dim));
}

/* Adam's moments after the step, m/(1-beta1^t), and sqrt(v/(1-beta2^t)) + eps. */
struct moments {
    struct num m, v, corrected, below;
};

static struct moments moments(struct num m, struct num v, struct num g, int64_t t, float beta1,
                              float beta2, float eps) {
    const struct num b1 = exactly(beta1), b2 = exactly(beta2), one = exactly(1);
    m = add(mul(b1, m), mul(sub(one, b1), g));
    v = accumulate(mul(b2, v), mul(sub(one, b2), mul(g, g)));
    struct num correct1 = rounded(1 - pow(beta1, (double)t), 0);
    struct num correct2 = rounded(1 - pow(beta2, (double)t), 0);
    return (struct moments){m, v, quot(m, correct1, 0), denominator(quot(v, correct2, 0), eps)};
}

static void adam(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    for (int32_t d = 0; d < c->dim; d++) {
        struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t, p[ADAM_BETA1],
                                       p[ADAM_BETA2], p[ADAM_EPS]);
        struct num step = mul(exactly(p[RULE_LR]), after.corrected);
        x->elem[0][d] = after.m, x->elem[1][d] = after.v;
        x->weight[d] = sub(x->weight[d], quot(step, after.below, p[ADAM_EPS]));
    }
}

/* Every element of the row is certainly 0. */
static bool is_nought(const struct total *x) {
    return x->magnitude == 0;
}

static void lamb(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    struct total weights = {0, 0, 0}, steps = {0, 0, 0};
    struct num scale = exactly(p[RULE_LR]);
    double shortest = 0; /* the least that the sum of u^2 can be, without roundings of its own */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t d = 0; d < c->dim; d++) {
            struct moments after = moments(x->elem[0][d], x->elem[1][d], c->g[d], c->t,
                                           p[LAMB_BETA1], p[LAMB_BETA2], p[LAMB_EPS]);
            struct num u = add(quot(after.corrected, after.below, p[LAMB_EPS]),
                               mul(exactly(p[LAMB_DECAY]), x->weight[d]));
            if (pass == 0) {
                total_add(&weights, mul(x->weight[d], x->weight[d]));
                total_add(&steps, mul(u, u));
                shortest += pow(fmax(fabs(u.value) - u.error, 0), 2);
                continue;
            }
            x->elem[0][d] = after.m, x->elem[1][d] = after.v;
            x->weight[d] = sub(x->weight[d], mul(scale, u));
        }
        if (pass == 1 || is_nought(&weights) || is_nought(&steps)) continue;
        /* The branch must not depend on rounding, so the denominator must be above 0. */
        struct num w = root(total_of(&weights, c->dim)), length = root(total_of(&steps, c->dim));
        scale = mul(scale, quot(w, length, shortest > 1e-30 ? (1 - 1e-4) * sqrt(shortest) : 0));
        if (!(w.value > w.error)) scale.error = INFINITY;
    }
}

/* The second and the first moment after the step, and s - m^2. */
struct centered {
    struct num s, m, variance;
};

static struct centered centered(struct num alpha, struct num rest, struct num s, struct num m,
                                struct num g) {
    s = add(mul(alpha, s), mul(rest, mul(g, g)));
    m = add(mul(alpha, m), mul(rest, g));
    return (struct centered){s, m, sub(s, mul(m, m))};
}

static void rmsprop_centered(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param;
    const struct num alpha = exactly(p[RMSPROP_CENTERED_ALPHA]), rest = sub(exactly(1), alpha);
    struct num *s = x->elem[0], *m = x->elem[1], *b = x->elem[2];
    const float eps = p[RMSPROP_CENTERED_EPS];
    const bool sound = alpha.value > 0x1p-8;
    const double longest = 2 / sqrt(alpha.value * rest.value) + 0x1p-58 / eps;
    for (int32_t d = 0; d < c->dim; d++) {
        const struct num g = c->g[d];
        /* From 0, s - m^2 = alpha (1-alpha) g^2: more than its rounding errors, or 0. */
        const bool fresh = s[d].value == 0 && m[d].value == 0 && sound;
        const struct num largest = exactly(copysign(fabs(g.value) + g.error, m[d].value));
        const double rounding = centered(alpha, rest, s[d], m[d], largest).variance.error;
        /* After the step it is alpha (s - m^2) + alpha (1-alpha) (g - m)^2, for any error of g. */
        const double least = alpha.value * (s[d].value - m[d].value * m[d].value) - rounding;
        struct centered after = centered(alpha, rest, s[d], m[d], g);
        s[d] = after.s, m[d] = after.m;
        if (after.variance.value < after.variance.error && !fresh && !(least > 0))
            after.variance.error = INFINITY;
        struct num step = quot(g, denominator(after.variance, eps),
                               (sqrt(fmax(least, 0)) + eps) * (1 - 4 * unit));
        if (fresh) step.error = fmin(step.error, fabs(step.value) + longest);
        b[d] = add(mul(exactly(p[RMSPROP_CENTERED_MOMENTUM]), b[d]), step);
        x->weight[d] = sub(x->weight[d], mul(exactly(p[RULE_LR]), b[d]));
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
