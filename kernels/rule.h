/* SPDX-License-Identifier: MIT
 *
 * The contract between an update rule and everything else. A rule is one file rules/<name>.h. The
 * folder is the registry: the Makefile lists its files. The file defines <name>_info and the phases
 * below, as functions <name>_<phase> that gcc, clang and nvcc all compile:
 *
 *   prepare    once per step and table, on the host: constants that depend on the step number
 *   before     what one element adds to the sums over the row; its states are those before the step
 *   row        once per row: updates the row states; returns the rate, two numbers for the elements
 *   states     returns the element's new states
 *   direction  the element's step u
 *   after      what one element adds to the sums over the row, from u and its new states
 *   scale      once per row, from the sums of after: a factor
 *   weight     the element's new weight, from u and that factor
 *
 * A rule without one of these phases writes RULE_NO_PREPARE, RULE_NO_BEFORE, RULE_NO_ROW (the rate is
 * the learning rate), RULE_NO_STATES, RULE_NO_AFTER (no after, no scale), or RULE_NO_WEIGHT
 * (w - scale*u) instead. In a rule with `after`, direction is evaluated twice: for the sums, and for
 * the weight. Both times, and in `after` and `weight`, the old states are no longer there: element.old
 * has the new ones.
 */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "rule_list.h" /* generated: #define RULES(X, ...) X(sgd, __VA_ARGS__) ... */

enum {
    RULE_ELEM_STATES = 3, /* most states per element of a rule */
    RULE_ROW_STATES = 2,  /* most states per row */
    RULE_PARAMS = 8,      /* most hyper-parameters */
    RULE_DERIVED = 3,     /* most constants that prepare derives from them */
};

/* A float counts to this number: 1 more is the same float. */
enum { RULE_COUNTED_STEPS = 1 << 24 };

/* The first hyper-parameter of every rule is its learning rate. */
enum { RULE_LR = 0 };

enum rule_kind {
#define X(rule, ...) RULE_##rule,
    RULES(X)
#undef X
        RULE_COUNT
};

/* Valid values are finite, at least `least` and less than `below`. A flag is 0 or 1. With or_none, 0 is valid, too, and
 * stands for none. */
struct rule_param {
    const char *name; /* as in the formula */
    float preset;     /* the value when the user names only the rule */
    float least, below;
    bool flag, or_none;
    const char *range; /* in words */
};

/* One float of state per element or per row. */
struct rule_state {
    const char *name;  /* as in the formula */
    float initial;     /* in a new table */
    float low, high;   /* workloads and tests draw states from [low, high) */
    int initial_param; /* if not 0: the number of the hyper-parameter that has the value for a new
                          table; `initial` is its preset */
};

struct rule_info {
    const char *name;    /* = file name = key in specs, options, results and plots */
    const char *formula; /* t counts steps of the table, not of the row (lazy, global) */
    const char *source;  /* paper or system */
    struct rule_param params[RULE_PARAMS];
    struct rule_state elem[RULE_ELEM_STATES], row[RULE_ROW_STATES];
    int num_params, elem_states, row_states; /* used entries of each array */
    int sums_before, sums_after;             /* sums over the row: 0, 1 (a of the pair) or 2 */
    bool before_of_g;                        /* before reads only g of the element */
    int rates; /* numbers that row hands to the elements: 2 if one of their phases reads rate.b */
    unsigned momenta; /* bit k: elem[k] is a linear average of gradients, which a table may store as
                         bf16 */
    bool
        counts; /* a state of a row is a number of steps: a table takes at most RULE_COUNTED_STEPS steps */
    bool catches_up; /* a step with a zero gradient, and nothing to adjust, pays what a row owes. A
                        second one of the same number changes nothing */
    bool linear;     /* steps for the parts of a gradient give the same as one step for their sum;
                              direction reads only g and the rate, and the weight is RULE_NO_WEIGHT */
    bool idle_is_identity; /* a step with a zero gradient changes neither weights nor states, if the
                              rate is finite (eps > 0 or a state > 0), no state is below 0, and
                              lr >= 0 or no weight is -0. A dense step skips rows whose gradient is
                              0, so it is the same operation as the lazy (sparse) step even where
                              these conditions do not hold */
};

/* Ranges of a hyper-parameter. A row whose norm is above a limit of at least 1e-16 has elements whose squares do not
 * underflow, so the norm is right. */
#define RULE_ANY          -INFINITY, INFINITY, false, false, "a number from -3.4e38 to 3.4e38"
#define RULE_NOT_NEGATIVE 0, INFINITY, false, false, "a number from 0 to 3.4e38"
#define RULE_BELOW_ONE    0, 1, false, false, "a number from 0 to below 1"
#define RULE_FLAG         0, 2, true, false, "0 or 1"
#define RULE_NORM         1e-16f, INFINITY, false, true, "0 or a number from 1e-16 to 3.4e38"

/* C compilers treat a const object as a constant; C++ needs constexpr. */
#ifdef __cplusplus
#define RULE_INFO(name) static constexpr struct rule_info name##_info
#else
#define RULE_INFO(name) static const struct rule_info name##_info
#endif

/* The hyper-parameters that all rules share; kernels/adjust.h explains them. */
enum rule_shared {
    GRAD_SCALE,
    MAXIMIZE,
    CLIP_VALUE,
    CLIP_NORM,
    WEIGHT_DECAY,
    DECOUPLED_WEIGHT_DECAY,
    RULE_SHARED
};

/* The rule of one table with its hyper-parameters. */
struct rule {
    enum rule_kind kind;
    float param[RULE_PARAMS], shared[RULE_SHARED];
};

/* The changes to a step that shared hyper-parameters ask for. */
struct adjustment {
    bool gradient; /* changes gradients */
    float scale, clip_value, clip_norm, decay;
    float keep; /* decoupled weight decay multiplies weights by this; 1: no decay */
};

/* One step of a rule, with the constants that prepare derived from the step number. */
struct rule_step {
    struct rule rule;
    int64_t number; /* from 1 */
    float derived[RULE_DERIVED];
    struct adjustment adjust;
};

/* Two sums over a row, or the two numbers that `row` hands to the elements. */
struct pair {
    float a, b;
};

/* The states of one element. Functions take it by value, so that compilers keep it in (vector) registers. */
struct states {
    float x[RULE_ELEM_STATES];
};

/* One element in a step. */
struct element {
    const float *param, *derived; /* the rule's hyper-parameters and constants of the step */
    struct pair rate;             /* from row; 0 in before */
    float w, g;                   /* weight and summed gradient */
    struct states old, s; /* before and after the step; in before and states both are before */
};

/* One row in a step. */
struct whole_row {
    const float *param, *derived;
    struct pair rate; /* from row */
    struct pair sum;  /* over the elements, from before or after */
    int32_t dim;
};

/* --- arithmetic that several rules share */

/* A moving average after one more value. */
HOST_DEVICE float moving_average(float decay, float before, float value) {
    return decay * before + (1.0f - decay) * value;
}

/* The bias correction of a moving average that started at 0, after t values: 1/(1-decay^t) (Kingma and Ba 2015). With a
 * division by 1-decay^t for each element a row of Adam in L1 takes 31 ns, not 22 (dim 64, Zen 4). */
static inline float bias_factor(float decay, int64_t t) {
    return (float)(1.0 / (1.0 - pow(decay, (double)t)));
}

/* sqrt(s) + eps, or sqrt(s + eps) if `inside`, a flag, is 1. No branch: the other epsilon is 0. */
HOST_DEVICE float root_and_epsilon(float s, float eps, float inside) {
    const float within = inside * eps;
    return sqrtf(s + within) + (eps - within);
}

/* 1 - base^n for 0 <= base < 1 and a whole n, by doubling: the same bits on the host and on a device. No
 * two numbers of one size are subtracted. */
HOST_DEVICE float whole_correction(float base, float n) {
    float so_far = 0.0f, part = 1.0f - base;
    uint32_t left = n >= 0x1p31f ? UINT32_C(1) << 31 : n > 0 ? (uint32_t)n : 0;
    for (; left; left >>= 1, part *= 2.0f - part)
        if (left & 1) so_far += part * (1.0f - so_far);
    return so_far;
}

/* base^n for 0 <= base <= 1 and a whole n, by squaring: the same bits on the host and on a device. */
HOST_DEVICE float whole_power(float base, float n) {
    float so_far = 1.0f, part = base;
    uint32_t left = n >= 0x1p31f ? UINT32_C(1) << 31 : n > 0 ? (uint32_t)n : 0;
    for (; left; left >>= 1, part *= part)
        if (left & 1) so_far *= part;
    return so_far;
}

/* --- phases that a rule does not have, or shares with others */

/* The sum over the row adds up the squared gradient. */
#define RULE_SUMS_SQUARES(name)                                                                    \
    HOST_DEVICE struct pair name##_before(struct element e) {                                      \
        struct pair square = {e.g * e.g, 0};                                                       \
        return square;                                                                             \
    }

#define RULE_NO_PREPARE(name)                                                                      \
    static inline void name##_prepare(const float *param, int64_t t, float *derived) {             \
        (void)param, (void)t, (void)derived;                                                       \
    }

#define RULE_NO_BEFORE(name)                                                                       \
    HOST_DEVICE struct pair name##_before(struct element e) {                                      \
        (void)e;                                                                                   \
        struct pair none = {0, 0};                                                                 \
        return none;                                                                               \
    }

#define RULE_NO_ROW(name)                                                                          \
    HOST_DEVICE struct pair name##_row(struct whole_row x, float *state) {                         \
        (void)state;                                                                               \
        struct pair rate = {x.param[RULE_LR], 0};                                                  \
        return rate;                                                                               \
    }

#define RULE_NO_STATES(name)                                                                       \
    HOST_DEVICE struct states name##_states(struct element e) {                                    \
        return e.old;                                                                              \
    }

#define RULE_NO_AFTER(name)                                                                        \
    HOST_DEVICE struct pair name##_after(struct element e, float u) {                              \
        (void)e, (void)u;                                                                          \
        struct pair none = {0, 0};                                                                 \
        return none;                                                                               \
    }                                                                                              \
    HOST_DEVICE float name##_scale(struct whole_row x) {                                           \
        (void)x;                                                                                   \
        return 1;                                                                                  \
    }

#define RULE_NO_WEIGHT(name)                                                                       \
    HOST_DEVICE float name##_weight(struct element e, float u, float scale) {                      \
        return e.w - scale * u;                                                                    \
    }
