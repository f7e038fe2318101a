/* SPDX-License-Identifier: MIT
 *
 * The contract between an update rule and everything else. A rule is one file rules/<name>.h. The
 * folder is the registry: the Makefile lists its files. The file defines <name>_info and the phases
 * below, as functions <name>_<phase> that gcc, clang and nvcc all compile:
 *
 *   prepare    once per step and table, on the host: constants that depend on the step number
 *   before     what one element adds to the sums over the row, from its weight, states and gradient
 *   row        once per row: updates the row states; returns two numbers for the elements
 *   states     updates the element's states
 *   direction  the element's step u, from its weight, new states and gradient
 *   after      what one element adds to the sums over the row, from its weight and u
 *   scale      once per row: the factor of u; then w -= scale * u
 *
 * A rule without one of these phases writes RULE_NO_PREPARE, RULE_NO_BEFORE, RULE_NO_ROW (elements
 * get the learning rate as a), RULE_NO_STATES, or RULE_NO_AFTER (no after, no scale) instead.
 * Kernels may evaluate direction twice, so it writes nothing. It does not see the states from before the
 * step: a rule that needs one derives it from the new one, or keeps it as a state of its own.
 */
#ifndef EMBFUSE_RULE_H
#define EMBFUSE_RULE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"
#include "rule_list.h" /* generated: #define RULES(X, ...) X(sgd, __VA_ARGS__) ... */

enum {
    RULE_ELEM_STATES = 3, /* upper limits of a rule: states per element, */
    RULE_ROW_STATES = 2,  /* states per row, */
    RULE_PARAMS = 6,      /* hyper-parameters, */
    RULE_DERIVED = 2,     /* constants that prepare derives from them */
};

/* The first hyper-parameter of every rule is its learning rate. */
enum { RULE_LR = 0 };

enum rule_kind {
#define X(rule, ...) RULE_##rule,
    RULES(X)
#undef X
        RULE_COUNT
};

/* Valid values are finite, at least `least` and less than `below`. */
struct rule_param {
    const char *name; /* as in the formula */
    float preset;     /* the value when the user names only the rule */
    float least, below;
};

/* One float of state per element or per row. */
struct rule_state {
    const char *name; /* as in the formula */
    float initial;    /* in a new table */
    float low, high;  /* workloads and tests draw states from [low, high) */
};

struct rule_info {
    const char *name;    /* = file name = key in specs, options, results and plots */
    const char *formula; /* t counts steps of the table, not of the row (lazy, global) */
    const char *source;  /* paper or system */
    struct rule_param params[RULE_PARAMS];
    struct rule_state elem[RULE_ELEM_STATES], row[RULE_ROW_STATES];
    int num_params, elem_states, row_states; /* used entries of each array */
    int sums_before, sums_after;             /* sums over the row: 0, 1 (a of the pair) or 2 */
    bool linear;                             /* steps for the parts of a gradient give the same as
                                                one step for their sum; direction reads only g */
    bool idle_is_identity; /* a step with a zero gradient changes neither weights nor states, if the
                              rate is finite (eps > 0 or a state > 0), no state is below 0, and
                              lr >= 0 or no weight is -0. A dense step skips rows whose gradient is
                              0, so it is the same operation as the lazy (sparse) step even where
                              these conditions do not hold */
};

/* Ranges of a hyper-parameter. */
#define RULE_ANY          -INFINITY, INFINITY
#define RULE_NOT_NEGATIVE 0, INFINITY
#define RULE_BELOW_ONE    0, 1

/* C compilers treat a const object as a constant; C++ needs constexpr. */
#ifdef __cplusplus
#define RULE_INFO(name) static constexpr struct rule_info name##_info
#else
#define RULE_INFO(name) static const struct rule_info name##_info
#endif

/* The rule of one table with its hyper-parameters. */
struct rule {
    enum rule_kind kind;
    float param[RULE_PARAMS];
};

/* One step of a rule, with the constants that prepare derived from the step number. */
struct rule_step {
    struct rule rule;
    float derived[RULE_DERIVED];
};

/* Two sums over a row, or the two numbers that `row` hands to the elements. */
struct pair {
    float a, b;
};

/* The states of one element. Passed by value, so that compilers keep it in (vector) registers. */
struct states {
    float x[RULE_ELEM_STATES];
};

#define RULE_NO_PREPARE(name)                                                                      \
    static inline void name##_prepare(const float *param, int64_t t, float *derived) {             \
        (void)param, (void)t, (void)derived;                                                       \
    }

#define RULE_NO_BEFORE(name)                                                                       \
    HOST_DEVICE struct pair name##_before(const struct rule_step *r, float w, struct states s,     \
                                          float g) {                                               \
        (void)r, (void)w, (void)s, (void)g;                                                        \
        struct pair none = {0, 0};                                                                 \
        return none;                                                                               \
    }

#define RULE_NO_ROW(name)                                                                          \
    HOST_DEVICE struct pair name##_row(const struct rule_step *r, struct pair sum, int32_t dim,    \
                                       float *row) {                                               \
        (void)sum, (void)dim, (void)row;                                                           \
        struct pair rate = {r->rule.param[RULE_LR], 0};                                            \
        return rate;                                                                               \
    }

#define RULE_NO_STATES(name)                                                                       \
    HOST_DEVICE struct states name##_states(const struct rule_step *r, struct pair row, float w,   \
                                            struct states s, float g) {                            \
        (void)r, (void)row, (void)w, (void)g;                                                      \
        return s;                                                                                  \
    }

#define RULE_NO_AFTER(name)                                                                        \
    HOST_DEVICE struct pair name##_after(const struct rule_step *r, float w, float u) {            \
        (void)r, (void)w, (void)u;                                                                 \
        struct pair none = {0, 0};                                                                 \
        return none;                                                                               \
    }                                                                                              \
    HOST_DEVICE float name##_scale(const struct rule_step *r, struct pair row, struct pair sum,    \
                                   int32_t dim) {                                                  \
        (void)r, (void)row, (void)sum, (void)dim;                                                  \
        return 1;                                                                                  \
    }

#endif
