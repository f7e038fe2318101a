/* SPDX-License-Identifier: MIT */
#include "extras/tiers/resident.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

enum { STAGING = 4 << 20, AT_ONCE = 8192 /* records */ };

static void lap(double *seconds, double *at) {
    const double now = clock_seconds();
    *seconds += now - *at;
    *at = now;
}

/* --- batches */

/* Rows come to slots: [count] moves. Victims that have changed are packed before their slots are overwritten, and stored
 * after the reads. */
static int exchange(struct resident *r, int32_t t, const struct cache_move *moves, int64_t count,
                    double *at, struct error *err) {
    struct fast *fast = r->fast;
    struct store *store = r->store;
    int64_t victims = 0;
    for (int64_t i = 0; i < count; i++) {
        if (moves[i].victim < 0 || !moves[i].dirty) continue;
        r->slot[victims] = moves[i].slot;
        r->rows[victims++] = moves[i].victim;
    }
    if (victims && fast->ops->take(r, t, r->slot, victims, err)) return -1;
    lap(&r->counts.write_back, at);
    int64_t *coming = r->rows + victims;
    for (int64_t i = 0; i < count; i++) {
        coming[i] = moves[i].row;
        r->slot[i] = moves[i].slot;
    }
    if (store->ops->fetch(store, t, coming, count, fast->coming, err) ||
        fast->ops->give(r, t, r->slot, count, err))
        return -1;
    lap(&r->counts.fetch, at);
    if (victims && store->ops->put(store, t, r->rows, victims, fast->leaving, err)) return -1;
    r->counts.written_back += victims;
    lap(&r->counts.write_back, at);
    return 0;
}

int64_t resident_rows_of(const struct resident *r, int32_t t, int batch, int64_t *rows) {
    const struct row_index *index = &r->setup.index[batch];
    const int64_t first = row_index_find(index, t, 0), end = row_index_find(index, t + 1, 0);
    for (int64_t i = first; i < end; i++) rows[i - first] = index->run[i].row;
    return end - first;
}

/* Slots for the rows that were found. If those of batches under way are in the way, waits for their end. */
static int get_slots(struct resident *r, int32_t t, double *at, struct error *err) {
    struct error why;
    struct cache *cache = r->slots[t].cache;
    pthread_mutex_lock(&r->lock);
    int status;
    while ((status = cache_admit(cache, &r->found, r->moves, NULL, &why)) &&
           r->released < r->admitted && !r->stop) {
        lap(&r->counts.index, at);
        pthread_cond_wait(&r->changed, &r->lock);
        lap(&r->counts.held, at);
    }
    if (status) cache_give_up(cache, &r->found);
    pthread_mutex_unlock(&r->lock);
    return status ? fail(err, "table %d, with the rows of the budget: %s", t, why.text) : 0;
}

static int usable(const struct resident *r, struct error *err) {
    return r->broken ? fail(err, "rows are missing after an error; open the tables again") : 0;
}

/* Rows come to the slots that they have got. */
static int move_in(struct resident *r, int32_t t, int batch, double *at, struct error *err) {
    const int64_t count = r->found.num_missing, at_once = r->slots[t].at_once;
    for (int64_t i = 0; i < count; i += at_once)
        if (exchange(r, t, r->moves + i, min64(count - i, at_once), at, err)) return -1;
    if (r->fast->ops->settle(r, t, batch, r->moves, count, err)) return -1;
    lap(&r->counts.remap, at);
    return 0;
}

static int admit_table(struct resident *r, int32_t t, int batch, bool changes, double *at,
                       struct error *err) {
    struct cache_found *found = &r->found;
    found->changes = changes;
    r->broken = true; /* until all is well, or nothing has moved */
    if (r->fast->ops->look(r, t, batch, found, err)) return -1;
    const int64_t missing_lookups = found->missing_lookups;
    const int lacks = get_slots(r, t, at, err);
    if (!lacks) {
        r->counts.rows += found->num_here + found->num_missing;
        r->counts.row_misses += found->num_missing;
        r->counts.lookup_misses += missing_lookups;
        lap(&r->counts.index, at);
        if (move_in(r, t, batch, at, err)) return -1;
    }
    r->broken = false;
    return lacks;
}

int resident_admit(struct resident *r, int batch, bool changes, struct error *err) {
    double at = clock_seconds();
    if (usable(r, err)) return -1;
    for (int32_t t = 0; t < r->setup.num_tables; t++)
        if (admit_table(r, t, batch, changes, &at, err)) return -1;
    r->counts.batches++;
    r->counts.lookups += r->setup.index[batch].lookups;
    pthread_mutex_lock(&r->lock);
    r->admitted++;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

/* Tables before the one that lacked slots have admitted the batch. */
void resident_give_up(struct resident *r) {
    pthread_mutex_lock(&r->lock);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_release_all(r->slots[t].cache);
    r->released = r->admitted;
    pthread_mutex_unlock(&r->lock);
}

void resident_release(struct resident *r) {
    pthread_mutex_lock(&r->lock);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_release(r->slots[t].cache);
    r->released++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* --- rows from outside, and commits */

/* The slots and the other rows of first .. last-1, at most slots.at_once of them. */
struct split {
    int64_t in_slots, in_store;
};

static struct split split_rows(struct resident *r, int32_t t, int64_t first, int64_t last) {
    struct split n = {0, 0};
    for (int64_t row = first; row < last; row++) {
        const int32_t slot = cache_slot(r->slots[t].cache, row);
        if (slot >= 0)
            r->slot[n.in_slots++] = slot;
        else
            r->rows[n.in_store++] = row;
    }
    return n;
}

static char *next_record(char **at, int64_t bytes) {
    *at += bytes;
    return *at - bytes;
}

static int put_some(struct resident *r, int32_t t, int64_t first, int64_t last,
                    const struct table *rows, int64_t begin, struct error *err) {
    const struct slots *own = &r->slots[t];
    const struct split n = split_rows(r, t, first, last);
    char *to_slots = r->fast->coming, *to_store = r->fast->leaving;
    for (int64_t row = first; row < last; row++) {
        const bool here = cache_slot(own->cache, row) >= 0;
        record_pack(&own->layout, next_record(here ? &to_slots : &to_store, own->layout.bytes),
                    rows, row - begin);
    }
    for (int64_t i = 0; i < n.in_slots; i++) cache_change(own->cache, r->slot[i]);
    if (n.in_slots && r->fast->ops->give(r, t, r->slot, n.in_slots, err)) return -1;
    return n.in_store ? r->store->ops->put(r->store, t, r->rows, n.in_store, r->fast->leaving, err)
                      : 0;
}

int resident_put(struct resident *r, int32_t t, int64_t begin, int64_t end,
                 const struct table *rows, struct error *err) {
    const int64_t at_once = r->slots[t].at_once;
    if (usable(r, err)) return -1;
    r->broken = true; /* rows count as changed before they are */
    for (int64_t row = begin; row < end; row += at_once)
        if (put_some(r, t, row, min64(end, row + at_once), rows, begin, err)) return -1;
    r->broken = false;
    return 0;
}

static int get_some(struct resident *r, int32_t t, int64_t first, int64_t last, struct table *rows,
                    int64_t begin, struct error *err) {
    const struct slots *own = &r->slots[t];
    const struct split n = split_rows(r, t, first, last);
    char *of_slots = r->fast->leaving, *of_store = r->fast->coming;
    if ((n.in_slots && r->fast->ops->take(r, t, r->slot, n.in_slots, err)) ||
        (n.in_store && r->store->ops->fetch(r->store, t, r->rows, n.in_store, of_store, err)))
        return -1;
    for (int64_t row = first; row < last; row++) {
        const bool here = cache_slot(own->cache, row) >= 0;
        record_unpack(&own->layout, next_record(here ? &of_slots : &of_store, own->layout.bytes),
                      rows, row - begin);
    }
    return 0;
}

int resident_get(struct resident *r, int32_t t, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    const int64_t at_once = r->slots[t].at_once;
    int status = usable(r, err);
    for (int64_t row = begin; row < end && status == 0; row += at_once)
        status = get_some(r, t, row, min64(end, row + at_once), rows, begin, err);
    return status;
}

struct flushing {
    struct resident *r;
    int64_t count;
};

static void take_changed(void *ctx, int64_t row, int32_t slot) {
    struct flushing *f = ctx;
    f->r->rows[f->count] = row;
    f->r->slot[f->count++] = slot;
}

/* [count] rows r->rows, from slots r->slot. */
static int store_slots(struct resident *r, int32_t t, int64_t count, struct error *err) {
    const int64_t at_once = r->slots[t].at_once;
    for (int64_t first = 0; first < count; first += at_once) {
        const int64_t n = min64(count - first, at_once);
        if (r->fast->ops->take(r, t, r->slot + first, n, err) ||
            r->store->ops->put(r->store, t, r->rows + first, n, r->fast->leaving, err))
            return -1;
    }
    return 0;
}

int resident_commit(struct resident *r, struct error *err) {
    if (usable(r, err)) return -1;
    r->broken = true; /* rows count as stored before they are */
    for (int32_t t = 0; t < r->setup.num_tables; t++) {
        struct flushing f = {r, 0};
        cache_flush(r->slots[t].cache, take_changed, &f);
        if (store_slots(r, t, f.count, err)) return -1;
        r->counts.written_back += f.count;
    }
    if (r->store->ops->commit && r->store->ops->commit(r->store, err)) return -1;
    r->broken = false;
    return 0;
}

int64_t resident_bytes(const struct resident *r) {
    int64_t bytes = r->fast->bytes + 2 * STAGING + r->store->ops->memory(r->store);
    for (int32_t t = 0; t < r->setup.num_tables; t++) bytes += cache_bytes(r->slots[t].cache);
    return bytes;
}

/* --- opening */

/* Belady knows all batches to come. */
static struct cache *open_cache(struct resident *r, const struct tier_options *o, int32_t t,
                                int32_t slots, struct error *err) {
    const int64_t known = o->policy == POLICY_BELADY ? max64(1, o->belady_runs) : 0;
    int64_t *first = must_have(calloc((size_t)(known + 1), sizeof *first)), *all = NULL;
    for (int64_t b = 0; b < known; b++) {
        const int64_t more = resident_rows_of(r, t, (int)(b % r->setup.ring), r->rows);
        all = must_have(realloc(all, (size_t)(first[b] + more + 1) * sizeof *all));
        memcpy(all + first[b], r->rows, (size_t)more * sizeof *all);
        first[b + 1] = first[b] + more;
    }
    const struct cache_setup s = {.rows = r->setup.shapes[t].rows,
                                  .slots = slots,
                                  .policy = o->policy,
                                  .first = first,
                                  .batch_rows = all,
                                  .num_batches = known};
    struct cache *c = cache_open(&s, err);
    free(first);
    free(all);
    return c;
}

static int open_slots(struct resident *r, const struct tier_options *o, struct error *err) {
    const struct place_setup *s = &r->setup;
    int64_t first_row = 0;
    for (int32_t t = 0; t < s->num_tables; t++) {
        struct slots *own = &r->slots[t];
        const int64_t rows = s->shapes[t].rows;
        own->count = (int32_t)tier_slots(o->budget, rows);
        own->layout = record_of(&s->shapes[t], r->store->ops->block);
        own->at_once = min64(AT_ONCE, max64(1, STAGING / own->layout.bytes));
        own->cache = open_cache(r, o, t, own->count, err);
        if (!own->cache) return -1;
        r->shapes[t] = s->shapes[t];
        r->shapes[t].rows = own->count + 1;
        r->shapes[t].first_row = first_row;
        r->shapes[t].part = (struct table_part){0};
        first_row += r->shapes[t].rows;
    }
    return 0;
}

/* Batches of the ring over tables of slots; admission fills in their ids. */
static void open_batches(struct resident *r) {
    const size_t ring = (size_t)r->setup.ring, features = (size_t)r->setup.batches[0].num_features;
    const size_t tables = (size_t)r->setup.num_tables;
    r->batches = must_have(calloc(ring, sizeof *r->batches));
    r->features = must_have(calloc(ring * features, sizeof *r->features));
    r->batch_shapes = must_have(calloc(ring * tables, sizeof *r->batch_shapes));
    for (size_t b = 0; b < ring; b++) {
        const struct batch *from = &r->setup.batches[b];
        struct batch *own = &r->batches[b];
        struct feature *feature = r->features + b * features;
        struct table_shape *shape = r->batch_shapes + b * tables;
        for (size_t f = 0; f < features; f++) {
            feature[f] = from->features[f];
            if (feature[f].padding_id >= 0)
                feature[f].padding_id = r->slots[feature[f].table].count;
        }
        for (size_t t = 0; t < tables; t++) {
            shape[t] = from->tables[t];
            shape[t].rows = r->shapes[t].rows;
            shape[t].first_row = r->shapes[t].first_row;
            shape[t].part = r->shapes[t].part;
        }
        *own = *from;
        own->tables = shape;
        own->features = feature;
        own->id_type = ID_INT32;
        own->ids = must_have(calloc((size_t)own->lookups + 1, sizeof(int32_t)));
    }
}

/* Room for the rows of any table in a batch, of any table in slots, and for two that travel. */
static void open_lists(struct resident *r, const struct tier_options *o) {
    const struct place_setup *s = &r->setup;
    int64_t most = 1, lookups = 1;
    for (int b = 0; b < s->ring; b++) {
        most = max64(most, s->index[b].rows);
        lookups = max64(lookups, s->batches[b].lookups);
    }
    for (int32_t t = 0; t < s->num_tables; t++)
        most = max64(most, max64(tier_slots(o->budget, s->shapes[t].rows), AT_ONCE));
    r->most = most;
    r->rows = must_have(calloc((size_t)(2 * most), sizeof *r->rows));
    r->slot = must_have(calloc((size_t)most, sizeof *r->slot));
    r->moves = must_have(calloc((size_t)most, sizeof *r->moves));
    r->found.here = must_have(calloc((size_t)most + 1, sizeof *r->found.here));
    r->found.missing = must_have(calloc((size_t)lookups, sizeof *r->found.missing));
}

static int open_all(struct resident *r, const struct tier_options *o, struct error *err) {
    const struct place_setup *setup = &r->setup;
    const struct store_setup store = {.directory = o->directory,
                                      .shapes = setup->shapes,
                                      .num_tables = setup->num_tables,
                                      .seed = setup->seed,
                                      .depth = o->depth,
                                      .direct = o->direct};
    int64_t staging = STAGING;
    open_lists(r, o);
    r->store = (o->store ? o->store : file_store)(&store, err);
    if (!r->store || open_slots(r, o, err)) return -1;
    open_batches(r);
    for (int32_t t = 0; t < setup->num_tables; t++)
        staging = max64(staging, r->slots[t].layout.bytes);
    r->fast = (o->fast == ON_HOST ? fast_host_open : fast_device_open)(r, staging, err);
    return r->fast ? 0 : -1;
}

struct resident *resident_open(const struct tier_options *o, const struct place_setup *setup,
                               struct error *err) {
    const size_t count = (size_t)setup->num_tables;
    struct resident *r = must_have(calloc(1, sizeof *r));
    r->setup = *setup;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->slots = must_have(calloc(count, sizeof *r->slots));
    r->shapes = must_have(calloc(count, sizeof *r->shapes));
    if (open_all(r, o, err) == 0) return r;
    resident_close(r);
    return NULL;
}

void resident_close(struct resident *r) {
    if (!r) return;
    for (int b = 0; r->batches && b < r->setup.ring; b++) free((void *)r->batches[b].ids);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_close(r->slots[t].cache);
    if (r->fast) r->fast->ops->close(r->fast);
    if (r->store) r->store->ops->close(r->store);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->batches);
    free(r->slots);
    free(r->shapes);
    free(r->features);
    free(r->batch_shapes);
    free(r->found.here);
    free(r->found.missing);
    free(r->rows);
    free(r->slot);
    free(r->moves);
    free(r);
}
