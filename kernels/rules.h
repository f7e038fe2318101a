/* SPDX-License-Identifier: MIT
 *
 * Every update rule, written once for all kernels: C11 on the host, CUDA C++ on the device.
 *
 * A kernel only decides how the gradients of a row meet. With the summed gradient g[dim] in hand it
 * applies the rule in two phases:
 *
 *   1. per row, only where rule_info.reduces:  acc += rule_reduce(...) over the elements;
 *      then always                             rate = rule_row(step, acc, dim, row_state)
 *   2. per element                             x = rule_elem(step, rate, x, g)
 *
 * The row reduction is a sum of doubles: in exact mode (see harness/check.h) it is exact in any
 * order, so that a loop, a vector and a warp get the same bits.
 *
 * To add a rule: one line in RULES, its case in the functions below, its formula in
 * harness/oracle.c and a hand-worked line in tests/test_oracle.c. No kernel changes.
 */
#ifndef EMBFUSE_RULES_H
#define EMBFUSE_RULES_H

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__ static inline
#else
#define HOST_DEVICE static inline
#endif

/* Most states that any rule owns: arrays of one float per element, and floats per row. */
enum { RULE_ELEM_STATES = 2, RULE_ROW_STATES = 1 };

/* X(kind, name, elem_states, row_states, reduces, idle_is_identity, formula)
 *   elem_states       per-element state arrays, [rows][dim] floats each
 *   row_states        floats of state per row
 *   reduces           phase 1 needs a reduction over the row
 *   idle_is_identity  a step with a zero gradient changes neither weights nor state, given a finite
 *                     rate (eps > 0 or a state > 0), no state below 0, and lr >= 0 or no weight that
 *                     is -0. A dense step leaves rows whose gradient is 0 alone, so that it is the
 *                     same operation as the lazy (sparse) step whatever is given
 *   formula           in PyTorch's form; t counts steps of the table, not of the row (lazy, global)
 */
#define RULES(X)                                                                                   \
    X(SGD, "sgd", 0, 0, false, true, "w -= lr*g")                                                  \
    X(MOMENTUM, "momentum", 1, 0, false, false, "b = mu*b + g; w -= lr*b")                         \
    X(ADAGRAD, "adagrad", 1, 0, false, true, "s += g^2; w -= lr*g/(sqrt(s)+eps)")                  \
    X(ROWWISE_ADAGRAD, "rowwise_adagrad", 0, 1, true, true,                                        \
      "s += mean(g^2) over the row; w -= lr/(sqrt(s)+eps)*g")                                      \
    X(ADAM, "adam", 2, 0, false, false,                                                            \
      "m = b1*m+(1-b1)*g; v = b2*v+(1-b2)*g^2; w -= lr*(m/(1-b1^t))/(sqrt(v/(1-b2^t))+eps)")

#define X(kind, name, elem, row, ...)                                                              \
    static_assert((elem) <= RULE_ELEM_STATES && (row) <= RULE_ROW_STATES,                          \
                  name ": more states than RULE_ELEM_STATES or RULE_ROW_STATES");
RULES(X)
#undef X

enum rule_kind {
#define X(kind, ...) RULE_##kind,
    RULES(X)
#undef X
        RULE_COUNT
};

struct rule_info {
    const char *name;
    int elem_states;
    int row_states;
    bool reduces;
    bool idle_is_identity;
    const char *formula;
};

/* Hyper-parameters of one table. Only those of its rule are read. */
struct rule {
    enum rule_kind kind;
    float lr, eps, momentum, beta1, beta2;
};

/* Constants of one step: the rule and what depends on the step number t >= 1. */
struct rule_step {
    struct rule rule;
    float correct1; /* 1 - beta1^t */
    float correct2; /* 1 - beta2^t */
};

/* One element of a row: its weight and its per-element states. */
struct rule_elem {
    float w;
    float s[RULE_ELEM_STATES];
};

static inline struct rule_info rule_info(enum rule_kind kind) {
    static const struct rule_info infos[] = {
#define X(kind, name, elem, row, reduces, idle, formula) {name, elem, row, reduces, idle, formula},
        RULES(X)
#undef X
    };
    return infos[kind];
}

/* Hyper-parameters that a user gets who names only the rule. PyTorch's defaults, except FBGEMM's
 * eps of 1e-8 for both Adagrads: 1e-10 vanishes beside any float state that is not zero. */
static inline struct rule rule_default(enum rule_kind kind) {
    struct rule r = {kind, 0.01f, 1e-8f, 0.9f, 0.9f, 0.999f};
    if (kind == RULE_ADAM) r.lr = 0.001f;
    return r;
}

/* t counts from 1. Computed in double once per step, on the host. */
static inline struct rule_step rule_step(struct rule rule, int64_t t) {
    struct rule_step s = {rule, (float)(1.0 - pow(rule.beta1, (double)t)),
                          (float)(1.0 - pow(rule.beta2, (double)t))};
    return s;
}

/* Floats of state per row: what a table of this rule needs beside its weights. */
static inline int64_t rule_state_floats(enum rule_kind kind, int64_t dim) {
    struct rule_info info = rule_info(kind);
    return info.elem_states * dim + info.row_states;
}

/* rule_info(kind).reduces, .row_states and .idle_is_identity, for code that runs on a device. */
HOST_DEVICE bool rule_reduces(enum rule_kind kind) {
    switch (kind) {
#define X(name, text, elem, row, reduces, ...)                                                     \
    case RULE_##name: return reduces;
        RULES(X)
#undef X
    default: return false;
    }
}

HOST_DEVICE int rule_row_states(enum rule_kind kind) {
    switch (kind) {
#define X(name, text, elem, row, ...)                                                              \
    case RULE_##name: return row;
        RULES(X)
#undef X
    default: return 0;
    }
}

HOST_DEVICE bool rule_idle_is_identity(enum rule_kind kind) {
    switch (kind) {
#define X(name, text, elem, row, reduces, idle, ...)                                               \
    case RULE_##name: return idle;
        RULES(X)
#undef X
    default: return false;
    }
}

/* Phase 1: what one element adds to the reduction over its row. */
HOST_DEVICE double rule_reduce(const struct rule_step *step, struct rule_elem x, float g) {
    (void)x;
    switch (step->rule.kind) {
    case RULE_ROWWISE_ADAGRAD: return (double)g * (double)g;
    default: return 0.0;
    }
}

/* Phase 1, once per row: updates the row state, returns the rate that phase 2 gets.
 * row_state is NULL where the rule has none. */
HOST_DEVICE float rule_row(const struct rule_step *step, double acc, int32_t dim,
                           float *row_state) {
    switch (step->rule.kind) {
    case RULE_ROWWISE_ADAGRAD: /* Duchi et al. 2011 with one accumulator per row, as in FBGEMM */
        *row_state += (float)(acc / dim);
        return step->rule.lr / (sqrtf(*row_state) + step->rule.eps);
    default: return step->rule.lr;
    }
}

/* Phase 2: the new weight and states of one element whose summed gradient is g. */
HOST_DEVICE struct rule_elem rule_elem(const struct rule_step *step, float rate, struct rule_elem x,
                                       float g) {
    const struct rule *r = &step->rule;
    switch (r->kind) {
    case RULE_MOMENTUM:
        x.s[0] = r->momentum * x.s[0] + g;
        x.w -= rate * x.s[0];
        break;
    case RULE_ADAGRAD: /* Duchi et al. 2011 */
        x.s[0] += g * g;
        x.w -= rate * g / (sqrtf(x.s[0]) + r->eps);
        break;
    case RULE_ADAM: /* Kingma and Ba 2015; epsilon after the bias correction */
        x.s[0] = r->beta1 * x.s[0] + (1.0f - r->beta1) * g;
        x.s[1] = r->beta2 * x.s[1] + (1.0f - r->beta2) * (g * g);
        x.w -= rate * (x.s[0] / step->correct1) / (sqrtf(x.s[1] / step->correct2) + r->eps);
        break;
    default: /* SGD, row-wise Adagrad: all state is in the rate */ x.w -= rate * g; break;
    }
    return x;
}

#endif
