/* SPDX-License-Identifier: MIT
 *
 * Which rows of a table are in fast memory. A cache has slots for some of the rows; before a step all rows of its batch
 * get slots, and what was there before leaves. It only decides: others move the rows (extras/tiers/ moves weights and states
 * together).
 *
 * Every row can be in every slot: 8 bytes for each row of the table say where it is and who needed it last, beside a row of
 * hundreds. So there are no conflicts, and a result depends on nothing but the batches. A victim is the row with the
 * least score, of equal ones that with the least number; scores are numbers of batches or counts, never clocks:
 *
 *   lru      the batch that touched the row last
 *   lfu      batches that have touched it, also while it was elsewhere
 *   belady   the batch that touches it next, the furthest first: the fewest misses that any policy can have (IBM
 *            Systems Journal 5, 1966). It needs to know all batches
 *
 * A batch that comes later may be admitted ahead, so that its rows are fetched while earlier batches run. Rows of all
 * batches under way stay: cache_release() gives them free in the order of the batches.
 *
 * Unit of all counts: distinct rows of a batch.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "harness/error.h"
#include "kernels/kernel.h"

enum policy { POLICY_LRU, POLICY_LFU, POLICY_BELADY, POLICIES };

extern const char *const policy_names[POLICIES];

struct cache_setup {
    int64_t rows, slots; /* slots at most rows, both at most 2^31 - 1 */
    enum policy policy;
    /* Of belady: the batches to come, in the order of cache_admit(). first: [num_batches + 1]; rows of batch b are
     * batch_rows[first[b]] ... in ascending order. Not kept. */
    const int64_t *first, *batch_rows;
    int64_t num_batches;
};

/* A row that comes to a slot, and what leaves it. */
struct cache_move {
    int64_t row;
    int64_t victim; /* -1: the slot was empty */
    int32_t slot;
    bool dirty; /* the victim has changed since it came: it must be written back */
};

struct cache;

struct cache *cache_open(const struct cache_setup *s, struct error *err);
void cache_close(struct cache *c);

/* What a batch needs: distinct slots of the rows that are here, and the rows that are not, each as often as anybody found
 * it. Both in any order. */
struct cache_found {
    bool changes;     /* the batch will change its rows */
    int32_t *here;    /* [num_here], with room for one more */
    int64_t *missing; /* [num_missing] */
    int64_t num_here, num_missing;
    int64_t missing_lookups;
};

/* Looks up ids begin .. end-1 of the next batch, and adds to found. slot: [lookups of the batch] receives the slot of each,
 * that of padding for padding, and -1 where the row is not here. One pass, with one random access for each id. What is
 * found is the next batch's from here on: cache_admit() or cache_give_up() follow. */
void cache_look(struct cache *c, const struct batch *in, int64_t begin, int64_t end,
                int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *found);
/* A row that was looked up elsewhere, and is here. */
void cache_found_here(struct cache *c, int64_t row, struct cache_found *found);

/* Gives slots to the rows of the next batch. Orders missing rows, and keeps one of each. moves: [num_missing] receives one
 * for each of them. Fails, and moves nothing, if there are fewer slots than rows of this batch and of those that are not
 * released: then *lacks (which may be NULL) has how many. It may be called again with the same found. */
int cache_admit(struct cache *c, struct cache_found *found, struct cache_move *moves,
                int64_t *lacks, struct error *err);
/* There will be no such batch. Rows stay where they are; those that were found count as touched by the batch before. */
void cache_give_up(struct cache *c, struct cache_found *found);

/* The oldest batch that is not released has run: its rows may leave from here on. */
void cache_release(struct cache *c);
/* No batch is under way any more. */
void cache_release_all(struct cache *c);

/* The slot of a row; -1: it is not here. */
int32_t cache_slot(const struct cache *c, int64_t row);

/* The row in this slot has changed. */
void cache_change(struct cache *c, int32_t slot);

/* Calls each() with every row that is here and changed, in the order of slots, and takes them for clean: they are
 * written back. */
void cache_flush(struct cache *c, void (*each)(void *ctx, int64_t row, int32_t slot), void *ctx);

/* Bytes of the cache's own memory. */
int64_t cache_bytes(const struct cache *c);
