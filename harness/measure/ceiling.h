/* SPDX-License-Identifier: MIT
 *
 * Ceilings of the machine at this moment, measured among the samples. Copy is the well-known
 * figure. Read-modify-write of rows is the ceiling of the update: it counts all of its traffic
 * (copy leaves out write-allocation) and visits memory as the update does: in random order or, often faster, in
 * ascending order. Gather is the ceiling of
 * summing: it reads gradient rows of random lookups from whatever cache holds them. The last two
 * make the roof of a step, see traffic.h.
 */
#pragma once

#include <stdint.h>

#include "harness/ceiling.h"
#include "harness/error.h"
#include "harness/memory.h"
#include "harness/workload/row_index.h"

/* A ceiling treats the bytes of any row as floats: as many as fit, at least 1. The second function
 * says how many rows of that many floats the array holds. */
static inline int32_t array_row_floats(const struct array *a) {
    return a->stride < (int64_t)sizeof(float) ? 1 : (int32_t)(a->stride / (int64_t)sizeof(float));
}

static inline int64_t array_float_rows(const struct array *a, int64_t rows) {
    const int64_t whole = rows * a->stride / (array_row_floats(a) * (int64_t)sizeof(float));
    return whole ? whole : 1; /* between guard zones there is room for a float */
}

/* The order in which a ceiling visits its rows, and how many rows ahead it prefetches. */
struct ceiling_hint {
    enum { CEILING_L1, CEILING_L2, CEILING_NOWHERE } into;
    int64_t ahead;
    bool ascending;
};

/* Every measurement tries so many hints in turn. */
enum { CEILING_HINTS = 2 };

struct ceiling_probe {
    int threads;
    int64_t last_level_cache; /* bytes, of all last-level caches that the threads can use */
    struct buffer from, to;   /* of the copy */
    int64_t *rows;            /* [num_rows] distinct rows in random order */
    int64_t *ascending;       /* [num_rows] others, ascending; NULL: the table is too small */
    int64_t num_rows;
    int32_t dim;            /* columns of gradient rows */
    float *table;           /* the ceiling of rows visits its rows; they keep their bits */
    int32_t row_floats;     /* floats that fit into the bytes of a row of the table */
    const float *from_rows; /* not owned: gradients or table rows, as floats of any type */
    int32_t gather_floats;  /* floats in a row of from_rows */
    int64_t *gather;        /* [num_gathered] first floats of the rows of lookups */
    int64_t num_gathered;   /* 0: the table has no lookups */
    /* The fastest ways. rmw_hint: [0] in random order, [1] in ascending order. */
    struct ceiling_hint rmw_hint[CEILING_HINTS], gather_hint[CEILING_HINTS];
};

/* Probes table t of the batch with these weights, and what the operation gathers for the table's
 * lookups: gradient rows, or the rows themselves (operation_gathers_rows()). All of it stays in place.
 * Tries all ways to prefetch, which visits twice as many rows as a measurement at one. */
int ceiling_open(struct ceiling_probe *p, enum operation operation, const struct batch *in,
                 const struct row_index *index, int32_t t, const struct array *weight, int threads,
                 struct error *err);
void ceiling_close(struct ceiling_probe *p);

/* Takes about 45 ms and evicts the caches. */
struct ceiling ceiling_measure(const struct ceiling_probe *p);

/* Mean number of cache lines that a thread has in flight at the ceiling of random rows (Little's law); 0: not
 * measured. */
double ceiling_lines_in_flight(const struct ceiling *c, int threads);

void ceiling_flush_caches(const struct ceiling_probe *p);

/* Bytes of all last-level caches that so many threads can use, or as many MiB as EMBFUSE_CACHE_MIB says. */
int64_t ceiling_last_level_cache(int threads);

/* Fails if EMBFUSE_CACHE_MIB is no such number. */
int ceiling_ready(struct error *err);

/* Seconds on the monotonic clock. */
double clock_seconds(void);
