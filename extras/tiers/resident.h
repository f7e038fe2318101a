/* SPDX-License-Identifier: MIT
 *
 * Tables in slow memory (store.h), and a part of their rows in slots of fast memory (fast.h). A batch is admitted
 * before it runs: its ids are looked up, its distinct rows get slots (cache.h), rows that have changed and must leave
 * are written back, missing ones are fetched with their states, and its ids become numbers of slots.
 *
 * Another thread may admit the batches to come while one runs: batches under way share rows in slots, and no row of
 * theirs leaves. What a batch writes back is in the store before the next one fetches.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include <pthread.h>

#include "extras/tiers/cache.h"
#include "extras/tiers/fast.h"
#include "extras/tiers/store.h"

struct tier_options {
    enum backend fast; /* where slots are */
    const struct store_kind *store;
    const char *directory; /* of the store */
    double budget;         /* share of each table's rows in slots; above 0 and up to 1 */
    enum policy policy;    /* belady takes the batches of the ring for those to come */
    int depth;             /* as store_setup.depth and direct */
    bool direct;
};

/* Slots for a table's rows. */
static inline int64_t tier_slots(double budget, int64_t rows) {
    const int64_t slots = (int64_t)(budget * (double)rows);
    return slots < 1 ? 1 : slots < rows ? slots : rows;
}

/* Sums over all batches so far. */
struct tier_counts {
    int64_t batches, lookups, lookup_misses; /* lookups of rows without a slot */
    int64_t rows, row_misses;                /* distinct rows of each batch */
    int64_t written_back;                    /* rows */
    /* Seconds of admission; index: look-ups, and the choice of slots. */
    double index, fetch, write_back;
    double wait; /* seconds from the call of a step until its rows are in slots */
};

/* A table of slots; its last row is for padding. */
struct slots {
    struct cache *cache;
    int32_t count;
    int64_t at_once; /* records on their way */
};

struct resident {
    struct place_setup setup; /* of the whole tables */
    struct store *store;
    struct fast *fast;
    struct slots *slots;              /* [num_tables] */
    struct record *records;           /* [num_tables] */
    struct table_shape *shapes;       /* [num_tables], of the slots */
    struct feature *features;         /* [ring][num_features] */
    struct table_shape *batch_shapes; /* [ring][num_tables], with the lookups of each batch */
    struct batch *batches;            /* [ring], with numbers of slots */
    /* Room for one table at a time: a batch, all slots, or rows that travel together, whatever is most. */
    struct cache_found found;
    struct cache_move *moves;
    int64_t *rows;
    int32_t *slot;
    struct tier_counts counts;
    bool broken; /* rows have slots and did not come: nothing more can be trusted */

    pthread_mutex_t lock;   /* of what follows */
    pthread_cond_t changed; /* any of it */
    /* Numbers of batches, which place_tier.c counts: released .. admitted-1 are under way. */
    int64_t admitted, released;
    bool stop; /* no admission waits any more */
};

struct resident *resident_open(const struct tier_options *o, const struct place_setup *setup,
                               struct error *err);
void resident_close(struct resident *r);

/* Admits a batch of the ring as number r->admitted. Waits while batches under way hold its slots. If a table has too
 * few slots, batches with greater numbers may follow once all earlier ones have run. After any other error only
 * resident_close() can be called: rows may be lost. */
int resident_admit(struct resident *r, int batch, bool changes, struct error *err);

/* None of these while a batch is under way. resident_get() copies rows begin .. end-1 of a table to arrays that begin
 * with the first of them. */
int resident_get(struct resident *r, int32_t table, int64_t begin, int64_t end, struct table *rows,
                 struct error *err);
/* Writes initial values to the rows of an index; NULL: to all rows. */
int resident_restore(struct resident *r, const struct row_index *rows, struct error *err);
/* Writes all that has changed back, and commits: see store.h. */
int resident_commit(struct resident *r, struct error *err);

/* Bytes in memory: slots, the index of rows, records on their way, and what the store holds. */
int64_t resident_bytes(const struct resident *r);
