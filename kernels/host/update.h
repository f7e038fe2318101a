/* SPDX-License-Identifier: MIT
 *
 * Applies a table's rule to a row whose gradients are summed. Kernels sum the gradients; update.c
 * updates the row. The Makefile compiles update.c once for each rule and instruction set, not once
 * for each kernel.
 *
 * Tried without gain: 4, 8 or 16 rows per call. Memory is idle while a call prefetches no row, so
 * steps of Adam take 1.1 to 1.25 times as long.
 */
#ifndef EMBFUSE_HOST_UPDATE_H
#define EMBFUSE_HOST_UPDATE_H

#include "kernels/host/row.h"

/* Applies the table's rule once to a row whose gradients add up to grad[dim]. */
typedef void update_row(const struct rule_step *step, const struct table *table, int32_t dim,
                        int64_t row, const float *grad);

/* A rule's functions, by weight type and dim class. */
struct update_functions {
    update_row *of[DTYPE_COUNT][DIM_CLASSES];
};

/* LEVEL: suffix of the names of this instruction set's functions. */
#ifndef LEVEL
#define LEVEL
#endif
#define AT_LEVEL_(name, level) name##level
#define AT_LEVEL(name, level)  AT_LEVEL_(name, level)
#define UPDATE_OF(rule)        AT_LEVEL(update_##rule, LEVEL)

#define X(rule, ...) extern const struct update_functions UPDATE_OF(rule);
RULES(X)
#undef X

static inline update_row *update_row_of(enum rule_kind kind, enum dtype weights, int32_t dim) {
    static const struct update_functions *const all[] = {
#define X(rule, ...) &UPDATE_OF(rule),
        RULES(X)
#undef X
    };
    return all[kind]->of[weights][dim_class(dim)];
}

/* Updates the rows of one table. */
struct updater {
    update_row *update;
    const struct rule_step *step;
    struct table table;
    int32_t dim;
    bool fp32;       /* weights */
    int elem_states; /* of the rule */
    int row_states;
};

static inline struct updater updater_of(const struct batch *in, int32_t t,
                                        const struct rule_step *steps, const struct table *io) {
    const struct table_shape *x = &in->tables[t];
    return (struct updater){.update = update_row_of(x->rule, x->weight_type, x->dim),
                            .step = &steps[t],
                            .table = io[t],
                            .dim = x->dim,
                            .fp32 = x->weight_type == FP32,
                            .elem_states = rule_elem_states(x->rule),
                            .row_states = rule_row_states(x->rule)};
}

/* Prefetches all that the rule reads of a row. dim: the table's, as a constant if possible. */
ALWAYS_INLINE void updater_prefetch(const struct updater *u, int64_t row, const int32_t dim,
                                    const enum prefetch_into into) {
    const struct table *x = &u->table;
    const int64_t bytes = dim * (int64_t)sizeof(float);
    prefetch(array_row(&x->weight, row), u->fp32 ? bytes : x->weight.stride, into);
    for (int k = 0; k < RULE_ELEM_STATES; k++) /* a constant: becomes straight code */
        if (k < u->elem_states) prefetch(array_row(&x->elem[k], row), bytes, into);
    if (u->row_states)
        prefetch(array_row(&x->row, row), u->row_states * (int64_t)sizeof(float), into);
}

/* Rows to prefetch ahead into L2: BYTES of weights and states, a small part of every L2. Measured:
 * 4 KiB is slower with row-wise Adagrad, 16 KiB with Adam. */
ALWAYS_INLINE uint32_t updater_ahead(const struct updater *u) {
    enum { BYTES = 8192, MOST = 32, LEAST = 2 };
    int64_t bytes = u->dim * (int64_t)sizeof(float) * (1 + u->elem_states);
    return (uint32_t)max64(LEAST, min64(BYTES / bytes, MOST));
}

ALWAYS_INLINE void updater_row(const struct updater *u, int64_t row, const float *grad) {
    u->update(u->step, &u->table, u->dim, row, grad);
}

#endif
