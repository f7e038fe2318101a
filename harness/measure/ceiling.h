/* SPDX-License-Identifier: MIT
 *
 * What the machine can do at this moment, measured beside every sample. Copy is the well-known
 * figure; random-row read-modify-write is the ceiling of this operation: it counts all of its
 * traffic (copy leaves out write-allocation) and visits memory as the update does; gather is the
 * ceiling of summing: gradient rows of random lookups, from whatever cache holds them. The last two
 * make the roof of a step, see traffic.h.
 */
#ifndef EMBFUSE_CEILING_H
#define EMBFUSE_CEILING_H

#include <stdint.h>

#include "harness/error.h"
#include "harness/memory.h"
#include "harness/workload/row_index.h"

struct ceiling {
    double copy_gbs;    /* stream copy, bytes read + bytes written, as STREAM counts */
    double rmw_gbs;     /* random rows read, multiplied by one, written back, with prefetch */
    double gather_gbs;  /* gradient rows of random lookups read and summed, from warm caches where
                           they fit, with and without prefetch; 0: not measured */
    double pingpong_ns; /* one way between two threads' caches; < 0 with one thread. The cores of a
                           virtual machine may share a last-level cache or not, and move */
};

/* A ceiling looks at the bytes of any row as floats: as many as its bytes hold, at least 1; and how many
 * rows of so many there are. */
static inline int32_t array_row_floats(const struct array *a) {
    return a->stride < (int64_t)sizeof(float) ? 1 : (int32_t)(a->stride / (int64_t)sizeof(float));
}

static inline int64_t array_float_rows(const struct array *a, int64_t rows) {
    return rows * a->stride / (array_row_floats(a) * (int64_t)sizeof(float));
}

struct ceiling_probe {
    int threads;
    int64_t last_level_cache; /* bytes, of all that the threads can be on */
    struct buffer from, to;   /* of the copy */
    int64_t *rows;            /* [num_rows] distinct rows in random order */
    int64_t num_rows;
    int32_t dim;          /* of gradient rows */
    float *table;         /* whose rows are visited; they keep their bits */
    int32_t row_floats;   /* of a row of it: as many as its bytes hold */
    const float *grad;    /* not owned */
    int64_t *gather;      /* [num_gathered] where gradient rows begin, in floats */
    int64_t num_gathered; /* 0: the table is not looked up */
};

/* For table t of the batch, with these weights, and the gradient rows of its lookups where they are.
 */
int ceiling_open(struct ceiling_probe *p, const struct batch *in, const struct row_index *index,
                 int32_t t, const struct array *weight, int threads, struct error *err);
void ceiling_close(struct ceiling_probe *p);

/* Takes about 45 ms. Evicts the caches. */
struct ceiling ceiling_measure(const struct ceiling_probe *p);

/* Leaves nothing of interest in any cache. */
void ceiling_flush_caches(const struct ceiling_probe *p);

/* `count` distinct rows of a table in random order, for the caller to free; NULL: out of memory. */
int64_t *ceiling_rows(int64_t table_rows, int64_t count);

/* Seconds on the monotonic clock. */
double clock_seconds(void);

#endif
