/* SPDX-License-Identifier: MIT
 *
 * The one traffic model: what a step moves, counted from its batch alone.
 *
 * Compulsory bytes are what any implementation must move even with a perfect cache: ids, offsets
 * and per-sample weights once; the gradient of every non-empty bag once (of every lookup, for
 * POOL_NONE) and, for POOL_MAX, its winners; every touched row and its state read once and written
 * once. A duplicate does not count twice.
 *
 * A forward writes an output row (for POOL_MAX its winners, too) where a step reads a gradient row, of
 * empty bags too, and reads the weights of every row once. A gradient (kernels/gradient.h) writes a
 * row number and the values of every touched row once, merged: the least that carries it. An unmerged
 * one writes more.
 * A gradient of the per-sample weights (kernels/weight_grad.h) reads gradient rows as a step does and the
 * weights of every row once, not the per-sample weights, and writes a float for every lookup.
 *
 * The roof is the time of these bytes at the ceilings of the moment (ceiling.h), the longer of
 *
 *     lines / random-row read-modify-write    memory: compulsory bytes, but whole lines of row
 *                                             states apart: a sparse batch uses few bytes of each
 *     gathered / gather                       caches: a gradient row for every lookup; for POOL_MAX
 *                                             the winners for every lookup, the gradient once
 *
 * Other operations change no rows: their first term is their compulsory bytes / copy. A forward and a gradient
 * of weights gather rows of the tables.
 *
 * The roof leaves out the grouping of lookups by row. Grouping takes instructions, not bytes, and
 * about as many at any skew, while the roof sinks with skew. So a share of the roof ranks the
 * kernels of one workload; it does not compare workloads, least of all alphas. It can exceed 100 %
 * if the model does not hold: in warm runs whose touched rows stay in a cache that cannot hold the
 * table; for rows narrower than a line, because the random-row ceiling counts fewer bytes than
 * memory moves; and for kernels that walk bags, which find gradient rows in nearer caches than
 * kernels that walk rows. Device samples have no roof: a device moves sectors of 32 bytes.
 */
#pragma once

#include "harness/ceiling.h"
#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Bytes. An iteration moves the bytes of its forward and of its step. Rows that the forward has read may
 * still be in a cache when the step reads them, so an iteration can take less time than both cold. */
struct traffic {
    int64_t compulsory;
    int64_t lines;    /* compulsory, with every touched line of row state read and written once */
    int64_t gathered; /* the gradient row, or what operation_gathers_rows() the row, of every lookup
                         that is not padding; for a step with POOL_MAX see above */
};

struct traffic traffic_of(enum operation operation, const struct batch *in,
                          const struct row_index *index);

/* The ceiling of the first term of the roof. */
static inline double traffic_memory_gbs(enum operation operation, const struct ceiling *c) {
    return operation == OP_STEP ? c->rmw_gbs : c->copy_gbs;
}

/* Seconds; 0 if a ceiling was not measured. */
double traffic_roof(const struct traffic *t, double memory_gbs, double gather_gbs);
