/* SPDX-License-Identifier: MIT
 *
 * A cache decides which rows of a table are in fast memory. It has slots for some of the rows; before a step all
 * rows of its batch get slots, and other rows leave them. resident.c moves the rows.
 *
 * Every row can be in every slot: 8 bytes for each row of the table say where it is and which batch needed it last. So
 * there are no conflicts, and a result depends on nothing but the batches. A victim is the row with the least score, of
 * equal ones the row with the least number; scores are numbers of batches or counts, never clocks:
 *
 *   lru      the last batch that touched the row
 *   lfu      the number of batches that have touched the row, in a slot or elsewhere
 *   belady   the next batch that touches the row, the furthest first: the fewest misses that any policy can have (IBM
 *            Systems Journal 5, 1966). It needs to know all batches
 *
 * A later batch may be admitted while earlier ones run: rows of all batches under way keep their slots.
 *
 * The unit of all counts is a distinct row of a batch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "harness/error.h"
#include "harness/workload/row_index.h"

enum policy { POLICY_LRU, POLICY_LFU, POLICY_BELADY, POLICIES };

extern const char *const policy_names[POLICIES];

struct cache_setup {
    int64_t rows, slots; /* slots at most rows, both at most 2^31 - 1 */
    enum policy policy;
    /* For belady: the rows of this table in batches 0 .. num_batches-1. Not kept. */
    const struct row_index *index;
    int32_t table;
    int64_t num_batches;
};

struct cache;

struct cache *cache_open(const struct cache_setup *s, struct error *err);
void cache_close(struct cache *c);

/* The rows that a batch needs. The caller sets batch and changes, and clears the counts. */
struct cache_found {
    int64_t batch;    /* its number: greater than all earlier ones, below 2^31 */
    bool changes;     /* the batch will change its rows */
    int64_t num_here; /* distinct rows that have slots */
    int64_t *missing; /* [num_missing] rows without a slot, once for each lookup */
    int64_t num_missing;
};

/* Looks up ids begin .. end-1 of a batch, and adds to found. slot: [lookups of the batch] receives the slot of each id,
 * padding_slot for padding, and -1 for a row without a slot. */
void cache_look(struct cache *c, const struct batch *in, int64_t begin, int64_t end,
                int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *found);

/* Orders the missing rows, keeps one of each, and returns how many slots the batch needs beyond those it can have:
 * batch `oldest` and later ones are under way and keep theirs. 0 or less: cache_admit() may follow. */
int64_t cache_missing_slots(const struct cache *c, struct cache_found *found, int64_t oldest);

/* A row that comes to a slot, and what leaves it. */
struct cache_move {
    int64_t row;
    int64_t victim; /* -1: the slot was empty */
    int32_t slot;
    bool dirty; /* the victim has changed since it came: it must be written back */
};

/* Gives slots to the missing rows. moves: [num_missing] receives one for each of them. */
void cache_admit(struct cache *c, const struct cache_found *found, int64_t oldest,
                 struct cache_move *moves);

/* The slot of a row, or -1. */
int32_t cache_slot(const struct cache *c, int64_t row);

/* Writes the rows that have changed, and their slots, in the order of slots, and takes them for written back. rows,
 * slot: [slots]. Returns how many there are. */
int64_t cache_changed(struct cache *c, int64_t *rows, int32_t *slot);

/* All rows leave their slots. */
void cache_empty(struct cache *c);

/* Bytes of the cache's own memory. */
int64_t cache_bytes(const struct cache *c);
