/* SPDX-License-Identifier: MIT */
#pragma once

#include "harness/check/rule_case.h"

/* 1 - beta^t, (1 - beta^k) over it but not above 1, and 1 - beta. */
struct fading {
    struct num correct, part, rest;
};

static inline struct fading fading(float beta, struct num k, int64_t t) {
    const struct num correct = rounded(1 - pow(beta, (double)t), 0);
    struct num part = quot(correction(beta, k), correct, 0);
    part.value = lesser(part.value, 1);
    return (struct fading){correct, part, sub(exactly(1), exactly(beta))};
}

/* A corrected moment after the step. */
static inline struct num faded(struct fading f, struct num before, struct num value) {
    const struct num kept = mul(sub(exactly(1), f.part), before);
    return add(kept, mul(quot(f.rest, f.correct, 0), value));
}

static inline void adam_lazy_global(const struct rule_case *c, struct oracle_row *x) {
    const float *p = c->param, eps = p[ADAM_LAZY_GLOBAL_EPS];
    const struct num k = counted((struct num){-x->row[0].value, x->row[0].error}, (double)c->t);
    const struct fading first = fading(p[ADAM_LAZY_GLOBAL_BETA1], k, c->t);
    const struct fading second = fading(p[ADAM_LAZY_GLOBAL_BETA2], k, c->t);
    const struct num steps = quot(mul(first.part, first.correct), first.rest, 0);
    for (int32_t d = 0; d < c->dim; d++) {
        struct num *m = &x->elem[0][d], *v = &x->elem[1][d];
        const struct num towards = quot(*m, denominator(*v, eps), eps);
        const struct num u = mul(mul(exactly(p[RULE_LR]), steps), towards);
        x->weight[d] = sub(x->weight[d], u);
        *m = faded(first, *m, c->g[d]);
        *v = faded(second, *v, mul(c->g[d], c->g[d]));
    }
    x->row[0] = rounded((double)c->t, 0);
    if (c->t < INT64_C(1) << 24) x->row[0].error = 0;
}
