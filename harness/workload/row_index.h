/* SPDX-License-Identifier: MIT
 *
 * The lookups of a batch in row order, by qsort: slow, obvious, and independent of the kernels. The
 * oracle, the realised statistics and the restoring of touched rows depend on it.
 */
#pragma once

#include "kernels/kernel.h"

/* One lookup that is not padding. */
struct row_lookup {
    int64_t row;
    int64_t lookup; /* i: position in ids */
    int64_t bag;    /* q: flat bag */
    int32_t table;
};

/* One unique (table, row) and its lookups: lookup[first] .. lookup[next run's first - 1]. */
struct row_run {
    int64_t row;
    int64_t first;
    int32_t table;
};

struct row_index {
    int64_t lookups;           /* without padding */
    int64_t rows;              /* unique rows */
    struct row_lookup *lookup; /* [lookups], ordered by table, row, position */
    struct row_run *run;       /* [rows + 1]; the last one closes the list */
};

/* Most bytes that row_index_build() allocates at one time, for a batch of so many lookups. */
int64_t row_index_bytes(int64_t lookups);
/* Aborts when out of memory. */
struct row_index row_index_build(const struct batch *in);
/* The first run at or after (table, row). */
int64_t row_index_find(const struct row_index *x, int32_t table, int64_t row);
void row_index_free(struct row_index *x);
