/* SPDX-License-Identifier: MIT
 *
 * Tables that are being placed: what each of them needs in every kind of cut, counted in a batch, and the
 * loads of the ranks as tables are put somewhere and taken out again. The planner searches with it.
 */
#pragma once

#include "extras/ranks/planner.h"

enum { NOWHERE = -1 };

/* What a part of a table brings to its rank. */
struct need {
    struct flow flow; /* from the bags of one rank, on average */
    double looked, gathered, copied, updated, added, lookups;
    double tables; /* bytes; 0: there is no such part */
};

/* A table in every kind of cut. */
struct table_needs {
    struct need *parts[SHARDINGS]; /* [parts of that kind]; NULL: not possible */
    const char *why_not[SHARDINGS];
    double lookups, unique;
};

struct placing {
    const struct machine *machine;
    const struct batch *in;
    int ring, ranks, nodes, on_node;
    int32_t tables;
    struct table_needs *needs; /* [tables] */
    int32_t *order;            /* the most expensive first */
    /* The plan under work. */
    int *kind; /* NOWHERE: taken out */
    int32_t *place;
    struct load *loads;
    struct cost cost;
};

/* How many places there are for a table in this kind of cut: ranks, nodes, or one. */
int placing_places(const struct placing *x, int kind);

/* The local work of a part with this shape, whose flow is there: lookups of the step and rows that they touch; rows
 * that the lookup of a rank touches, which has only its own bags if all ranks have the table. */
void placing_part(struct need *n, const struct placing *x, int kind,
                  const struct table_shape *shape, double lookups, double touched, double seen);

int placing_open(struct placing *x, const struct machine *m, const struct batch *whole,
                 const struct row_index *index, const struct planner_options *o, struct error *err);
void placing_close(struct placing *x);

/* Takes all tables out. */
void placing_clear(struct placing *x);
void placing_put(struct placing *x, int32_t t, int kind, int32_t place);
void placing_take_out(struct placing *x, int32_t t);
/* Only the loads: adds a table, or with sign -1 takes it out. */
void placing_apply(struct placing *x, int32_t t, int kind, int32_t place, double sign);
struct cost placing_cost(const struct placing *x);
