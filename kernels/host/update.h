/* SPDX-License-Identifier: MIT
 *
 * Applying a table's rule to rows whose gradients are summed, a few rows at a time. Kernels say how
 * gradients meet; what a row does with their sum is compiled apart, in update.c: once for each rule
 * and instruction set, not once for each kernel.
 */
#ifndef EMBFUSE_HOST_UPDATE_H
#define EMBFUSE_HOST_UPDATE_H

#include "kernels/host/row.h"

/* Rows that are updated by one call, at most, and bytes of their summed gradients: they stay in L1. */
enum { UPDATE_ROWS = 16, UPDATE_BYTES = 8192 };

/* A row and the sum of its gradients, [dim]. */
struct summed_row {
    int64_t row;
    const float *grad;
};

/* Applies the table's rule once to each of the rows. */
typedef void update_rows(const struct rule_step *step, const struct table *table, int32_t dim,
                         const struct summed_row *rows, int count);

/* A rule's functions, by the type of the weights and the width of rows. */
struct update_functions {
    update_rows *of[DTYPE_COUNT][DIM_CLASSES];
};

/* LEVEL: what the names of this instruction set's functions end in. */
#ifndef LEVEL
#define LEVEL
#endif
#define AT_LEVEL_(name, level) name##level
#define AT_LEVEL(name, level)  AT_LEVEL_(name, level)
#define UPDATE_OF(rule)        AT_LEVEL(update_##rule, LEVEL)

#define X(rule, ...) extern const struct update_functions UPDATE_OF(rule);
RULES(X)
#undef X

static inline update_rows *update_rows_of(enum rule_kind kind, enum dtype weights, int32_t dim) {
    static const struct update_functions *const all[] = {
#define X(rule, ...) &UPDATE_OF(rule),
        RULES(X)
#undef X
    };
    return all[kind]->of[weights][dim_class(dim)];
}

/* The rows of one table that wait to be updated together. */
struct updater {
    update_rows *update;
    const struct rule_step *step;
    const struct table *table;
    int32_t dim;
    int arrays, most, waiting;
    const struct array *array[TABLE_ARRAYS]; /* [arrays] that the rule has */
    struct summed_row rows[UPDATE_ROWS];
};

static inline struct updater updater_of(const struct batch *in, int32_t t,
                                        const struct rule_step *steps, const struct table *io) {
    const struct table_shape *shape = &in->tables[t];
    struct updater u;
    u.update = update_rows_of(shape->rule, shape->weight_type, shape->dim);
    u.step = &steps[t];
    u.table = &io[t];
    u.dim = shape->dim;
    u.arrays = u.waiting = 0;
    u.most =
        (int)min64(UPDATE_ROWS, max64(1, UPDATE_BYTES / (shape->dim * (int64_t)sizeof(float))));
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (u.table->array[a].data) u.array[u.arrays++] = &u.table->array[a];
    return u;
}

/* Everything of a row that its rule will touch. */
ALWAYS_INLINE void updater_prefetch(const struct updater *u, int64_t row) {
    for (int a = 0; a < u->arrays; a++) prefetch(array_row(u->array[a], row), u->array[a]->stride);
}

/* How many rows ahead that is worth while: so many bytes of weights and states. Measured: 8 and 2
 * KiB are slower. */
ALWAYS_INLINE uint32_t updater_ahead(const struct updater *u) {
    enum { BYTES = 4096, MOST = 32, LEAST = 2 };
    int64_t bytes = 0;
    for (int a = 0; a < u->arrays; a++) bytes += u->array[a]->stride;
    return (uint32_t)max64(LEAST, min64(BYTES / bytes, MOST));
}

/* Floats from one sum to the next where a kernel keeps those of rows that wait, and room for all of
 * them. */
ALWAYS_INLINE int64_t updater_stride(int32_t dim) {
    return (dim + VEC - 1) / VEC * VEC;
}

static inline int64_t updater_room(int32_t widest_dim) {
    return max64(UPDATE_BYTES / (int64_t)sizeof(float), widest_dim) + UPDATE_ROWS * VEC;
}

/* Updates the rows that wait. */
ALWAYS_INLINE void updater_flush(struct updater *u) {
    u->update(u->step, u->table, u->dim, u->rows, u->waiting);
    u->waiting = 0;
}

/* Updates a row, now or with later ones: grad[dim] stays as it is until the flush. */
ALWAYS_INLINE void updater_push(struct updater *u, int64_t row, const float *grad) {
    u->rows[u->waiting++] = (struct summed_row){row, grad};
    if (u->waiting == u->most) updater_flush(u);
}

/* Updates one row at once. */
static inline void row_update(const struct batch *in, int32_t t, const struct rule_step *steps,
                              const struct table *io, int64_t row, const float *grad) {
    const struct table_shape *shape = &in->tables[t];
    update_rows_of(shape->rule, shape->weight_type, shape->dim)(&steps[t], &io[t], shape->dim,
                                                                &(struct summed_row){row, grad}, 1);
}

#endif
