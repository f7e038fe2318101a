/* SPDX-License-Identifier: MIT
 *
 * Fills batches with all that they have besides ids: memory, shapes, gradients and per-sample weights.
 * Ids come from workload.c (drawn) or workload_trace.c (recorded).
 *
 *     workload_begin; fill in tables and features of batch 0
 *     for each batch k: batch_lay_out with its offsets; fill in its ids; batch_fill
 *
 * After a failure the caller's workload_free() frees all of it.
 */
#pragma once

#include "kernels/rng.h"
#include "harness/workload/workload.h"

/* Loops over fewer elements run on one thread: waking threads costs more than it saves. */
enum { PARALLEL_FROM = 1 << 16 };

/* The uses of random numbers: no two share a stream. */
enum stream {
    STREAM_LENGTH,
    STREAM_ID,
    STREAM_MAP,     /* of a table, the same in all batches */
    STREAM_PLAN,    /* hits of a histogram's rows */
    STREAM_SHUFFLE, /* its lookups to positions */
    STREAM_REUSE,
    STREAM_WEIGHT,
    STREAM_GRAD,
    STREAM_WINNER,
};

/* The key of a stream for feature or table `which` in batch k. */
static inline uint64_t stream_key(uint64_t seed, enum stream what, int64_t which, int64_t k) {
    uint64_t key = rng_key(mix64(seed), (uint64_t)what);
    return rng_key(rng_key(key, (uint64_t)which), (uint64_t)k);
}

static inline void put_id(enum id_type type, void *ids, int64_t i, int64_t id) {
    if (type == ID_INT32)
        ((int32_t *)ids)[i] = (int32_t)id;
    else
        ((int64_t *)ids)[i] = id;
}

/* Bytes of a batch for each of its features. */
static inline double feature_bytes(const struct spec *s, double bags, double lookups, int32_t dim) {
    const double id = s->id_type == ID_INT32 ? 4 : 8,
                 weight = s->weighted || s->mean_of_duplicates ? 4 : 0;
    const double grad_rows = s->pooling == POOL_NONE ? lookups : bags;
    const double element = (double)dtype_bytes(s->grad_type) + (s->pooling == POOL_MAX ? 4 : 0);
    return 8 * bags + lookups * (id + weight) + element * grad_rows * dim;
}

/* Allocates tables and features of w->ring batches, and points the batches there. Takes ring,
 * num_tables and num_features from *w. */
int workload_begin(struct workload *w, enum id_type id_type, struct error *err);

/* Gives batch k its offsets[flat_bags + 1] and owns them; also the shapes of batch 0, an
 * array for ids, and the layout of batch_lay_out_rows(). Returns the array for ids, NULL on failure. */
void *batch_lay_out(struct workload *w, int k, int64_t *offsets, struct error *err);

/* Makes gradients, and per-sample weights and winners if the workload has them. */
int batch_fill(struct workload *w, int k, enum grad_mode mode, struct error *err);
