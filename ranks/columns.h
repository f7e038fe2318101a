/* SPDX-License-Identifier: MIT
 *
 * Steps of tables of the kind column-modulo whose rules need more of a row than single elements. Column c lies on rank
 * c % C, and C, a power of two, divides ROW_LANES. So each lane of a sum over a row (kernels/rules.h) lies on one rank.
 * A rank adds up its lanes and folds them to one number; the last log2(C) folds are those of the C ranks' numbers, on
 * every rank, in the same order. So a sum has the bits that it has in one process. Such a step is
 *
 *   the merged gradient of the local batch, by a kernel of the suite. All ranks get all lookups, so
 *     they have the same rows in the same order
 *   clip      sums of squares of the gradient, if the table adjusts gradients; exchanged
 *   before    adjusted gradients, and the rule's sums before the step; exchanged
 *   after     the rule's sums after the step; exchanged. They need the step, which is taken on a copy
 *   store     the step
 *
 * Exchanged are fp32 numbers of each touched row, to all ranks that have columns of it: columns_numbers(). States of
 * the row are on each of those ranks, with the same bits.
 *
 * Rules are those of rule_apply(), row by row, as plain code; kernels have vector code for them. Rounding to narrower
 * types draws by the column of the whole table.
 */
#pragma once

#include "kernels/gradient.h"
#include "ranks/route.h"

enum columns_phase {
    COLUMNS_CLIP,
    COLUMNS_BEFORE,
    COLUMNS_AFTER,
    COLUMNS_SUMS, /* phases that end with an exchange */
    COLUMNS_STORE = COLUMNS_SUMS
};

/* Numbers of a touched row that ranks exchange in a phase. */
static inline int columns_numbers(const struct table_shape *shape, enum columns_phase phase) {
    switch (phase) {
    case COLUMNS_CLIP:
        return shape->adjusts; /* the shape does not tell whether a norm is clipped */
    case COLUMNS_BEFORE: return rule_sums_before(shape->rule);
    case COLUMNS_AFTER: return rule_sums_after(shape->rule);
    default: return 0;
    }
}

/* Those of all phases. */
static inline int columns_all_numbers(const struct table_shape *shape) {
    int all = 0;
    for (int p = 0; p < COLUMNS_SUMS; p++) all += columns_numbers(shape, (enum columns_phase)p);
    return all;
}

struct columns {
    const struct sharding *sharding;
    struct transport *transport;
    const struct table_shape *shapes; /* whole */
    int threads;
    struct parts parts;
    struct room sums, send, receive;
};

void columns_open(struct columns *c, const struct sharding *s, struct transport *t,
                  const struct table_shape *shapes, int threads);
void columns_close(struct columns *c);

/* The step of this rank's shards. local: their batch, or one of no tables. gradient: its merged gradient, which
 * changes. steps, tables: of the shards. Collective. */
int columns_step(struct columns *c, const struct batch *local, void *gradient,
                 const struct rule_step *steps, const struct table *tables, struct error *err);
