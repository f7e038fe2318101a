/* SPDX-License-Identifier: MIT
 *
 * The one traffic model: what a step moves, counted from its batch alone.
 *
 * Compulsory bytes are what any implementation must move even with a perfect cache. Ids, offsets and
 * lookup weights once; the gradient of every bag that is not empty once (of every lookup, for
 * POOL_NONE); every touched row and its state read and written once. Nobody can win by counting a
 * duplicate twice.
 *
 * The roof is the time that these bytes take at the ceilings of the moment (ceiling.h), the longer of
 *
 *     lines / random-row read-modify-write    memory: compulsory bytes, except that row state comes
 *                                             in lines of which a sparse batch uses few bytes
 *     gathered / gather                       caches: a gradient row for every lookup
 *
 * Grouping lookups by row is not in it: that takes instructions rather than bytes, about as many
 * whatever the skew, while the roof sinks with skew. So a share of the roof ranks the kernels of one
 * workload, and does not compare workloads, alphas least of all. It can pass 100 % where the model
 * does not hold: warm, if touched rows stay in a cache that cannot hold the table; for rows narrower
 * than a line, of which the random-row ceiling counts fewer bytes than memory moves; and for a kernel
 * that walks bags, which finds a gradient row nearer than one that walks rows. It is a model of the
 * host: a device moves sectors of 32 bytes, and its samples have no roof.
 */
#ifndef EMBFUSE_TRAFFIC_H
#define EMBFUSE_TRAFFIC_H

#include "harness/workload/row_index.h"
#include "kernels/kernel.h"

/* Bytes. */
struct traffic {
    int64_t compulsory;
    int64_t lines;    /* compulsory, with every touched line of row state read and written once */
    int64_t gathered; /* the gradient row of every lookup that is not padding */
};

struct traffic traffic_of(const struct batch *in, const struct row_index *index);

/* Seconds; 0 where a ceiling was not measured. */
double traffic_roof(const struct traffic *t, double rmw_gbs, double gather_gbs);

#endif
