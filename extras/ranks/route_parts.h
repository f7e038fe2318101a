/* SPDX-License-Identifier: MIT
 *
 * Shared by the files of a route: route.c opens it, route_ids.c moves lookups, route_rows.c moves rows.
 */
#pragma once

#include "harness/workload/workload.h"
#include "extras/ranks/route.h"

static inline int64_t begin_of(const struct route *r, int rank) {
    return sharding_bag(r->bags, rank, r->sharding->ranks);
}

static inline int64_t bags_of(const struct route *r, int rank) {
    return begin_of(r, rank + 1) - begin_of(r, rank);
}

static inline const struct shard *shard_of(const struct route *r, const struct local_feature *l) {
    return &r->sharding->shards[l->shard];
}

static inline enum sharding_kind kind_of(const struct route *r, const struct local_feature *l) {
    return r->sharding->kind[shard_of(r, l)->table];
}

static inline size_t row_bytes(const struct route *r, const struct local_feature *l) {
    return (size_t)(shard_of(r, l)->columns * dtype_bytes(r->own->grad_type));
}

static inline bool is_sequence(const struct route *r, const struct local_feature *l) {
    return r->own->features[l->feature].pooling == POOL_NONE;
}

/* Lists of rows go to the device: route_rows.c. */
int route_put_lists(struct route *r, struct error *err);

/* True if any rank gets lookups of a table by this route. */
static inline bool is_sent(const struct route *r, int32_t table) {
    for (int d = 0; d < r->sharding->ranks; d++)
        if (r->sharding->part[(int64_t)table * r->sharding->ranks + d] >= 0)
            return r->sharding->kind[table] != SHARD_DATA_DENSE;
    return false;
}
