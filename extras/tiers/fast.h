/* SPDX-License-Identifier: MIT
 *
 * Fast memory: tables of slots, the place that runs kernels on them, and what finds the slot of a row. Policies (cache.h)
 * and slow memory (store.h) are the same for each kind of it.
 *
 *   host     slots in host memory; the cache's own array finds them
 *   device   slots in device memory, and a copy of that array. Kernels look up ids, and write the numbers of slots where
 *            the batch has its ids. Rows travel as records through pinned memory, on a stream of their own
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include "harness/measure/place.h"
#include "extras/tiers/cache.h"

struct fast;
struct resident;

struct fast_ops {
    void (*close)(struct fast *f);
    /* The place that runs on the slots. inner: with batches and shapes of slots, without tables. */
    struct place *(*open_place)(struct resident *r, const struct place_setup *inner,
                                struct error *err);
    /* Looks up the ids that a batch has of one table: cache_look(), with a found that begins empty. */
    int (*look)(struct resident *r, int32_t table, int batch, struct cache_found *found,
                struct error *err);
    /* Copies [count] slots of a table to the records of f->leaving, and f->coming to them. Both wait. */
    int (*take)(struct resident *r, int32_t table, const int32_t *slot, int64_t count,
                struct error *err);
    int (*give)(struct resident *r, int32_t table, const int32_t *slot, int64_t count,
                struct error *err);
    /* After look() and the moves that cache_admit() has made of it: lookups of missing rows get their slots. */
    int (*settle)(struct resident *r, int32_t table, int batch, const struct cache_move *moves,
                  int64_t count, struct error *err);
    /* As place_ops.intact. */
    int (*intact)(struct resident *r, const struct place_scratch *s, struct error *err);
};

struct fast {
    const struct fast_ops *ops;
    char *leaving, *coming; /* records on their way: [staging] bytes each, aligned to a page */
    int64_t bytes;          /* of memory: slots and what finds them, without the cache */
    bool has_probe;         /* its place evicts caches, and has ceilings */
};

/* Both need the tables of slots of r, and its batches. */
struct fast *fast_host_open(struct resident *r, int64_t staging, struct error *err);
struct fast *fast_device_open(struct resident *r, int64_t staging, struct error *err);
