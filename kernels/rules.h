/* SPDX-License-Identifier: MIT
 *
 * All update rules, by number: each phase of kernels/rule.h as one function that switches over the
 * rules. Where the number is a constant, compilers keep only that rule's code.
 *
 * This file also fixes the order of the sums over a row. Every kernel follows it, so all get the
 * same bits. Lanes are floats that start at 0. Column d is added to lane d % ROW_LANES, columns in
 * ascending order. Then lanes are folded by halves: lane k gets lane k + 64, then k + 32, ... then
 * k + 1. Eight vectors of 16 floats hold all lanes; so does a warp with four columns per lane. A
 * lane without a column is 0 and no lane is -0, so a kernel may skip folding such a lane.
 */
#pragma once

#include "kernels/adjust.h"
#include "rule_files.h" /* generated: #include "rules/sgd.h" ... */

/* Returns NULL if there is no such rule. */
static inline const struct rule_info *rule_info_of(enum rule_kind kind) {
    switch (kind) {
#define X(rule, ...)                                                                               \
    case RULE_##rule: return &rule##_info;
        RULES(X)
#undef X
    default: return NULL;
    }
}

static inline struct rule_info rule_info(enum rule_kind kind) {
    const struct rule_info *info = rule_info_of(kind), none = {0};
    return info ? *info : none;
}

/* One field of rule_info, on the host and on a device. */
#ifdef __cplusplus
#define RULE_CONSTANT constexpr
#else
#define RULE_CONSTANT const
#endif
#define RULE_FIELD_CASE(rule, type, field)                                                         \
    case RULE_##rule: {                                                                            \
        RULE_CONSTANT type value = rule##_info.field;                                              \
        return value;                                                                              \
    }
#define RULE_FIELD(type, field)                                                                    \
    HOST_DEVICE type rule_##field(enum rule_kind kind) {                                           \
        switch (kind) {                                                                            \
            RULES(RULE_FIELD_CASE, type, field)                                                    \
        default: return 0;                                                                         \
        }                                                                                          \
    }
RULE_FIELD(int, elem_states)
RULE_FIELD(int, row_states)
RULE_FIELD(int, sums_before)
RULE_FIELD(int, sums_after)
RULE_FIELD(unsigned, momenta)
RULE_FIELD(bool, counts)
RULE_FIELD(bool, linear)
RULE_FIELD(bool, idle_is_identity)

/* The rule with the presets of its hyper-parameters. */
static inline struct rule rule_default(enum rule_kind kind) {
    const struct rule_info info = rule_info(kind);
    struct rule rule = {kind, {0}, {0}};
    for (int k = 0; k < info.num_params; k++) rule.param[k] = info.params[k].preset;
    return rule;
}

/* Hyper-parameters of a rule by number: its own, then the shared ones. */
enum { RULE_HYPERS = (int)RULE_PARAMS + (int)RULE_SHARED };

/* Describes hyper-parameter k. Its name is NULL if the rule has no such hyper-parameter. */
static inline struct rule_param rule_hyper(const struct rule_info *info, int k) {
    static const struct rule_param shared[RULE_SHARED] = {RULE_SHARED_PARAMS};
    const int nth = k - RULE_PARAMS;
    if (nth < 0) return info->params[k];
    struct rule_param p = shared[nth];
    const char *name = nth == DECOUPLED_WEIGHT_DECAY ? "weight_decay" : p.name;
    for (int own = 0; own < info->num_params; own++)
        if (!strcmp(info->params[own].name, name)) p.name = NULL;
    return p;
}

/* The number of the hyper-parameter of that name, or -1 if the rule has none. */
static inline int rule_hyper_of(enum rule_kind kind, const char *name) {
    const struct rule_info info = rule_info(kind);
    for (int k = 0; k < RULE_HYPERS; k++) {
        const char *has = rule_hyper(&info, k).name;
        if (has && strcmp(has, name) == 0) return k;
    }
    return -1;
}

static inline bool rule_hyper_takes(const struct rule_param *p, float value) {
    if (p->flag) return value == 0 || value == 1;
    if (p->or_none && value == 0) return true;
    return isfinite(value) && value >= p->least && value < p->below;
}

static inline float *rule_value(struct rule *rule, int k) {
    return k < RULE_PARAMS ? &rule->param[k] : &rule->shared[k - RULE_PARAMS];
}

/* True if the rule can take a step of that number. */
static inline bool rule_has_step(enum rule_kind kind, int64_t number) {
    return !rule_counts(kind) || number <= RULE_COUNTED_STEPS;
}

/* True if a step changes gradients or weights before the rule sees them. */
static inline bool rule_adjusts(const struct rule *rule) {
    const struct adjustment a = adjustment_of(rule);
    return a.gradient || a.keep != 1;
}

/* rule_idle_is_identity(), for a rule with its hyper-parameters. */
HOST_DEVICE bool rule_keeps_idle(const struct rule *rule) {
    return rule_idle_is_identity(rule->kind) && !(rule->shared[WEIGHT_DECAY] > 0);
}

/* The value of a state in a new table. */
static inline float rule_initial(const struct rule *r, const struct rule_state *state) {
    return state->initial_param ? r->param[state->initial_param] : state->initial;
}

/* RULE_PHASE(adam, row, x, state) becomes case RULE_adam: return adam_row(x, state); the functions of a phase are called
 * here and nowhere else. */
#define RULE_PHASE(rule, phase, ...)                                                               \
    case RULE_##rule:                                                                              \
        return rule##_##phase(__VA_ARGS__);
#define RULE_PHASE_OF_NO_VALUE(rule, phase, ...)                                                   \
    case RULE_##rule: rule##_##phase(__VA_ARGS__); break;

/* Step number t, from 1. On the host, once per step and table. */
static inline void rule_prepare(const struct rule *r, int64_t t, float *derived) {
    switch (r->kind) {
        RULES(RULE_PHASE_OF_NO_VALUE, prepare, r->param, t, derived)
    default: break;
    }
}

static inline struct rule_step rule_step(struct rule rule, int64_t t) {
    struct rule_step step = {rule, t, {0}, adjustment_of(&rule)};
    rule_prepare(&rule, t, step.derived);
    return step;
}

/* An element with states s and adjusted gradient g. Its step changes only element.s. */
HOST_DEVICE struct element rule_element(const struct rule_step *r, struct pair rate, float w,
                                        struct states s, float g) {
    struct element e = {r->rule.param, r->derived, rate, r->adjust.keep * w, g, s, s};
    return e;
}

HOST_DEVICE struct pair rule_before(enum rule_kind kind, struct element e) {
    const struct pair none = {0, 0};
    switch (kind) {
        RULES(RULE_PHASE, before, e)
    default: return none;
    }
}

/* state: the row's states. */
HOST_DEVICE struct pair rule_row_of(enum rule_kind kind, struct whole_row x, float *state) {
    switch (kind) {
        RULES(RULE_PHASE, row, x, state)
    default: return x.sum;
    }
}

HOST_DEVICE struct pair rule_row(enum rule_kind kind, const struct rule_step *r, struct pair sum,
                                 int32_t dim, float *state) {
    const struct whole_row x = {r->rule.param, r->derived, {0, 0}, sum, dim};
    return rule_row_of(kind, x, state);
}

HOST_DEVICE struct states rule_states(enum rule_kind kind, struct element e) {
    switch (kind) {
        RULES(RULE_PHASE, states, e)
    default: return e.s;
    }
}

HOST_DEVICE float rule_direction(enum rule_kind kind, struct element e) {
    switch (kind) {
        RULES(RULE_PHASE, direction, e)
    default: return 0;
    }
}

HOST_DEVICE struct pair rule_after(enum rule_kind kind, struct element e) {
    const struct pair none = {0, 0};
    const float u = rule_direction(kind, e);
    switch (kind) {
        RULES(RULE_PHASE, after, e, u)
    default: return none;
    }
}

/* x.sum: of rule_after() over the row. */
HOST_DEVICE float rule_scale_of(enum rule_kind kind, struct whole_row x) {
    switch (kind) {
        RULES(RULE_PHASE, scale, x)
    default: return 1;
    }
}

HOST_DEVICE float rule_scale(enum rule_kind kind, const struct rule_step *r, struct pair rate,
                             struct pair sum, int32_t dim) {
    const struct whole_row x = {r->rule.param, r->derived, rate, sum, dim};
    return rule_scale_of(kind, x);
}

/* The new weight. scale comes from rule_scale(); it is 1 if the rule has no sums after the step. */
HOST_DEVICE float rule_weight(enum rule_kind kind, struct element e, float scale) {
    const float u = rule_direction(kind, e);
    switch (kind) {
        RULES(RULE_PHASE, weight, e, u, scale)
    default: return e.w;
    }
}

/* --- the reference for one row: every kernel must give the same bits as this code */

/* The arrays of a table, in this order. */
enum table_array {
    TABLE_WEIGHT,
    TABLE_ROW_STATE,
    TABLE_ELEM, /* states per element: TABLE_ELEM, TABLE_ELEM + 1, ... */
    TABLE_ARRAYS = TABLE_ELEM + RULE_ELEM_STATES
};

/* Elements per row of one of a table's arrays; 0 if its rule has no such state. */
static inline int64_t rule_array_width(enum rule_kind kind, int32_t dim, int array) {
    if (array == TABLE_WEIGHT) return dim;
    if (array == TABLE_ROW_STATE) return rule_row_states(kind);
    return array - TABLE_ELEM < rule_elem_states(kind) ? dim : 0;
}

/* The parts of one row in all arrays, as floats. Nothing reads arrays that the rule does not have. */
struct row_memory {
    union {
        float *array[TABLE_ARRAYS];
        struct {
            float *weight, *row, *elem[RULE_ELEM_STATES];
        };
    };
};

static inline struct states row_memory_states(const struct row_memory *m, enum rule_kind kind,
                                              int32_t d) {
    struct states s = {{0}};
    for (int k = 0; k < rule_elem_states(kind); k++) s.x[k] = m->elem[k][d];
    return s;
}

static inline void pair_add(struct pair *to, struct pair x) {
    to->a += x.a;
    to->b += x.b;
}

static inline struct element row_memory_element(const struct rule_step *r, struct pair rate,
                                                const struct row_memory *m, const float *g,
                                                int32_t d) {
    return rule_element(r, rate, m->weight[d], row_memory_states(m, r->rule.kind, d), g[d]);
}

/* The sums over the row before the step, or after it. */
static inline struct pair row_memory_sums(const struct rule_step *r, bool after, struct pair rate,
                                          const struct row_memory *m, int32_t dim, const float *g) {
    const enum rule_kind kind = r->rule.kind;
    struct pair lane[ROW_LANES] = {{0, 0}};
    for (int32_t d = 0; d < dim; d++) {
        const struct element e = row_memory_element(r, rate, m, g, d);
        pair_add(&lane[d % ROW_LANES], after ? rule_after(kind, e) : rule_before(kind, e));
    }
    for (int half = ROW_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) pair_add(&lane[k], lane[k + half]);
    return lane[0];
}

/* Applies the rule once to a row whose summed gradient is g[dim], and adjusts g. The caller rounds
 * weights of a narrower type than fp32 afterwards. */
static inline void rule_apply(const struct rule_step *r, const struct row_memory *m, int32_t dim,
                              float *g) {
    const enum rule_kind kind = r->rule.kind;
    struct pair rate = {0, 0}, sums = {0, 0};
    if (r->adjust.gradient) adjust_row(&r->adjust, FP32, m->weight, dim, g);
    if (rule_sums_before(kind)) sums = row_memory_sums(r, false, rate, m, dim, g);
    rate = rule_row(kind, r, sums, dim, m->row);
    for (int32_t d = 0; d < dim; d++) {
        struct element e = row_memory_element(r, rate, m, g, d);
        e.s = rule_states(kind, e);
        for (int k = 0; k < rule_elem_states(kind); k++) m->elem[k][d] = e.s.x[k];
        if (!rule_sums_after(kind)) m->weight[d] = rule_weight(kind, e, 1);
    }
    if (!rule_sums_after(kind)) return;
    sums = row_memory_sums(r, true, rate, m, dim, g);
    const float scale = rule_scale(kind, r, rate, sums, dim);
    for (int32_t d = 0; d < dim; d++)
        m->weight[d] = rule_weight(kind, row_memory_element(r, rate, m, g, d), scale);
}
