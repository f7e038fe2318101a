/* SPDX-License-Identifier: MIT
 *
 * Tables in slow memory (store.h), and a part of their rows in slots of fast memory (fast.h). A batch is admitted before it
 * runs: its ids are looked up, its distinct rows get slots (cache.h), rows that have changed and must leave are written
 * back, missing ones are fetched with their states, and its ids become numbers of slots.
 *
 * Another thread may admit the batches to come while one runs: batches under way share rows in slots, and no row of
 * theirs leaves. What a batch writes back is in the store before the next one fetches.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include <pthread.h>

#include "extras/tiers/fast.h"
#include "extras/tiers/store.h"

struct tier_options {
    enum backend fast;     /* where slots are */
    const char *directory; /* of the tables */
    store_open *store;     /* NULL: file_store */
    double budget;         /* share of the bytes of each table's rows in slots; 0 .. 1 */
    enum policy policy;
    int64_t belady_runs; /* belady knows as many batches to come: 0, 1 ... of the ring, in turn */
    int depth;
    bool direct;
};

/* Slots for a table's rows. */
static inline int64_t tier_slots(double budget, int64_t rows) {
    const int64_t slots = (int64_t)(budget * (double)rows);
    return slots < 1 ? 1 : slots < rows ? slots : rows;
}

/* Sums over all batches so far. */
struct tier_counts {
    int64_t batches, lookups, lookup_misses; /* lookups of rows that were not there */
    int64_t rows, row_misses;                /* distinct rows of each batch */
    int64_t written_back;                    /* rows */
    /* Seconds of admission. index: looking up ids and choosing slots. remap: lookups of rows that have come get them */
    double index, fetch, write_back, remap;
    double held; /* of these the admission waited for slots of batches under way */
    double wait; /* seconds from the call of a step until its rows were there */
    struct store_counts store;
};

/* A table of slots; the last row is that of padding. */
struct slots {
    struct cache *cache;
    struct record layout;
    int32_t count;
    int64_t at_once; /* records on their way */
};

struct resident {
    struct place_setup setup; /* of the whole tables */
    struct store *store;
    struct fast *fast;
    struct slots *slots;              /* [num_tables] */
    struct table_shape *shapes;       /* [num_tables], of the slots */
    struct feature *features;         /* [ring][num_features] */
    struct table_shape *batch_shapes; /* [ring][num_tables], with the lookups of each batch */
    struct batch *batches;            /* [ring], with numbers of slots */
    struct cache_found found;         /* of one table */
    struct cache_move *moves;
    int64_t
        most; /* rows of one table: those of a batch, all in slots, or those that travel together */
    int64_t *rows; /* [2*most] */
    int32_t *slot; /* [most] */
    struct tier_counts counts;

    pthread_mutex_t lock;       /* of the caches and what follows */
    pthread_cond_t changed;     /* a batch was released, or stop set */
    int64_t admitted, released; /* batches */
    bool stop;                  /* no admission waits any more */
    bool broken;                /* rows have slots and did not come: nothing more can be trusted */
};

struct resident *resident_open(const struct tier_options *o, const struct place_setup *setup,
                               struct error *err);
void resident_close(struct resident *r);

/* Admits a batch of the ring: the next one in the order of steps. Waits while its slots are those of batches under way. If
 * the slots are too few, other batches may follow after resident_give_up(). After any other error only resident_close()
 * can be called: rows may be lost. */
int resident_admit(struct resident *r, int batch, bool changes, struct error *err);
/* The oldest batch under way has run. */
void resident_release(struct resident *r);
/* After an admission has failed, and all batches before it have run. */
void resident_give_up(struct resident *r);

/* None of these while a batch is under way. Distinct rows of a table in a batch, ascending; returns how many. */
int64_t resident_rows_of(const struct resident *r, int32_t table, int batch, int64_t *rows);
/* Rows begin .. end-1 of a table; arrays in memory begin with the first of them. */
int resident_put(struct resident *r, int32_t table, int64_t begin, int64_t end,
                 const struct table *rows, struct error *err);
int resident_get(struct resident *r, int32_t table, int64_t begin, int64_t end, struct table *rows,
                 struct error *err);
/* Writes all that has changed back, and commits: see store.h. */
int resident_commit(struct resident *r, struct error *err);

/* Bytes in memory: slots, the index of rows, and staging. */
int64_t resident_bytes(const struct resident *r);
