/* SPDX-License-Identifier: MIT */
#include "tiers/resident.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

enum { STAGING = 4 << 20, ALIGN = 4096 };

static void lap(double *seconds, double *at) {
    const double now = clock_seconds();
    *seconds += now - *at;
    *at = now;
}

/* --- batches */

/* Slots change hands: [count] moves. Victims that have changed are packed before their slots are overwritten, and stored
 * after the reads: meanwhile the journal is synced. */
static int exchange(struct resident *r, int32_t t, const struct cache_move *moves, int64_t count,
                    double *at, struct error *err) {
    struct table *table = &r->tables.tables[t];
    const struct record *layout = &r->slots[t].layout;
    const int64_t bytes = layout->bytes;
    int64_t victims = 0;
    for (int64_t i = 0; i < count; i++) {
        r->rows[i] = moves[i].row;
        if (moves[i].victim < 0 || !moves[i].dirty) continue;
        record_pack(layout, r->leaving + victims * bytes, table, moves[i].slot);
        r->some[victims++] = moves[i].victim;
    }
    if (victims && r->store->ops->put_soon) r->store->ops->put_soon(r->store);
    lap(&r->counts.write_back, at);
    if (r->store->ops->fetch(r->store, t, r->rows, count, r->coming, err)) return -1;
    for (int64_t i = 0; i < count; i++)
        record_unpack(layout, r->coming + i * bytes, table, moves[i].slot);
    lap(&r->counts.fetch, at);
    if (victims && r->store->ops->put(r->store, t, r->some, victims, r->leaving, err)) return -1;
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

/* Lookups of the rows that have come. */
static int64_t lookups_of(const struct resident *r, int32_t t, int batch,
                          const struct cache_move *moves, int64_t count) {
    const struct row_index *index = &r->setup.index[batch];
    int64_t at = row_index_find(index, t, 0), lookups = 0;
    for (int64_t i = 0; i < count; i++) {
        while (index->run[at].row != moves[i].row) at++;
        lookups += index->run[at + 1].first - index->run[at].first;
    }
    return lookups;
}

/* Slots for r->rows, and r->moves of the missing ones. If those of batches under way are in the way, waits for their end. */
static int get_slots(struct resident *r, int32_t t, int64_t count, bool changes, int64_t *misses,
                     double *at, struct error *err) {
    struct error why;
    struct cache *cache = r->slots[t].cache;
    pthread_mutex_lock(&r->lock);
    int status;
    while ((status = cache_admit(cache, r->rows, count, changes, r->slot, r->moves, misses, NULL,
                                 &why)) &&
           r->released < r->admitted && !r->stop) {
        lap(&r->counts.index, at);
        pthread_cond_wait(&r->changed, &r->lock);
        lap(&r->counts.held, at);
    }
    pthread_mutex_unlock(&r->lock);
    return status ? fail(err, "table %d, with the rows of the budget: %s", t, why.text) : 0;
}

static int admit_table(struct resident *r, int32_t t, int batch, bool changes, double *at,
                       struct error *err) {
    int64_t misses;
    const int64_t count = resident_rows_of(r, t, batch, r->rows);
    if (get_slots(r, t, count, changes, &misses, at, err)) return -1;
    r->counts.rows += count;
    r->counts.row_misses += misses;
    r->counts.lookup_misses += lookups_of(r, t, batch, r->moves, misses);
    lap(&r->counts.index, at);
    for (int64_t i = 0; i < misses; i += r->slots[t].at_once)
        if (exchange(r, t, r->moves + i, min64(misses - i, r->slots[t].at_once), at, err))
            return -1;
    return 0;
}

/* Ids of a batch become slots; padding becomes the last row. */
static void remap(struct resident *r, int batch, int threads) {
    const struct batch *from = &r->setup.batches[batch];
    int32_t *to = (int32_t *)r->batches[batch].ids;
    for (int32_t f = 0; f < from->num_features; f++) {
        const int64_t begin = from->offsets[f * from->bags],
                      end = from->offsets[(f + 1) * from->bags];
        const struct feature *feature = &from->features[f];
        const struct slots *s = &r->slots[feature->table];
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t i = begin; i < end; i++) {
            const int64_t id = batch_id(from, i);
            to[i] = id == feature->padding_id ? s->count : cache_slot(s->cache, id);
        }
    }
}

int resident_admit(struct resident *r, int batch, bool changes, int threads, struct error *err) {
    double at = clock_seconds();
    for (int32_t t = 0; t < r->setup.num_tables; t++)
        if (admit_table(r, t, batch, changes, &at, err)) return -1;
    remap(r, batch, threads);
    lap(&r->counts.remap, &at);
    r->counts.batches++;
    r->counts.lookups += r->setup.index[batch].lookups;
    pthread_mutex_lock(&r->lock);
    r->admitted++;
    pthread_mutex_unlock(&r->lock);
    return 0;
}

void resident_release(struct resident *r) {
    pthread_mutex_lock(&r->lock);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_release(r->slots[t].cache);
    r->released++;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
}

/* --- rows from outside, and commits */

int resident_put(struct resident *r, int32_t t, int64_t begin, int64_t end,
                 const struct table *rows, struct error *err) {
    for (int64_t row = begin; row < end; row++) {
        const int32_t slot = cache_slot(r->slots[t].cache, row);
        record_pack(&r->slots[t].layout, r->leaving, rows, row - begin);
        if (slot >= 0) {
            record_unpack(&r->slots[t].layout, r->leaving, &r->tables.tables[t], slot);
            cache_change(r->slots[t].cache, slot);
        } else if (r->store->ops->put(r->store, t, &row, 1, r->leaving, err))
            return -1;
    }
    return 0;
}

int resident_get(struct resident *r, int32_t t, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    for (int64_t row = begin; row < end; row++) {
        const int32_t slot = cache_slot(r->slots[t].cache, row);
        if (slot >= 0)
            record_pack(&r->slots[t].layout, r->leaving, &r->tables.tables[t], slot);
        else if (r->store->ops->fetch(r->store, t, &row, 1, r->leaving, err))
            return -1;
        record_unpack(&r->slots[t].layout, r->leaving, rows, row - begin);
    }
    return 0;
}

struct flushing {
    struct resident *r;
    int64_t count;
};

static void take_changed(void *ctx, int64_t row, int32_t slot) {
    struct flushing *f = ctx;
    f->r->some[f->count] = row;
    f->r->slot[f->count++] = slot;
}

/* [count] rows of r->some, from slots r->slot. */
static int store_slots(struct resident *r, int32_t t, int64_t count, struct error *err) {
    const struct record *layout = &r->slots[t].layout;
    const int64_t bytes = layout->bytes, at_once = r->slots[t].at_once;
    for (int64_t first = 0; first < count; first += at_once) {
        const int64_t n = min64(count - first, at_once);
        for (int64_t i = 0; i < n; i++)
            record_pack(layout, r->leaving + i * bytes, &r->tables.tables[t], r->slot[first + i]);
        if (r->store->ops->put(r->store, t, r->some + first, n, r->leaving, err)) return -1;
    }
    return 0;
}

int resident_commit(struct resident *r, uint64_t mark, struct error *err) {
    for (int32_t t = 0; t < r->setup.num_tables; t++) {
        struct flushing f = {r, 0};
        cache_flush(r->slots[t].cache, take_changed, &f);
        if (store_slots(r, t, f.count, err)) return -1;
        r->counts.written_back += f.count;
    }
    return r->store->ops->commit(r->store, mark, err);
}

int64_t resident_bytes(const struct resident *r) {
    int64_t bytes = r->tables.bytes + 2 * STAGING + r->store->ops->memory(r->store);
    for (int32_t t = 0; t < r->setup.num_tables; t++) bytes += cache_bytes(r->slots[t].cache);
    return bytes;
}

/* --- opening */

/* The batches that its policy knows: for belady all to come, for static those that make the order. */
static struct cache *open_cache(struct resident *r, const struct tier_options *o, int32_t t,
                                int32_t slots, struct error *err) {
    const int ring = r->setup.ring;
    const int64_t known = o->policy == POLICY_BELADY   ? max64(1, o->belady_runs)
                          : o->policy == POLICY_STATIC ? min64(ring, max64(1, o->static_batches))
                                                       : 0;
    int64_t *first = must_have(calloc((size_t)(known + 1), sizeof *first)), *all = NULL;
    for (int64_t b = 0; b < known; b++) {
        const int64_t more = resident_rows_of(r, t, (int)(b % ring), r->rows);
        all = must_have(realloc(all, (size_t)(first[b] + more + 1) * sizeof *all));
        memcpy(all + first[b], r->rows, (size_t)more * sizeof *all);
        first[b + 1] = first[b] + more;
    }
    const int64_t rows = r->setup.shapes[t].rows;
    int64_t *hottest = o->policy == POLICY_STATIC ? cache_hottest(all, first[known], rows) : NULL;
    const struct cache_setup s = {.rows = rows,
                                  .slots = slots,
                                  .policy = o->policy,
                                  .hottest = hottest,
                                  .first = first,
                                  .batch_rows = all,
                                  .num_batches = known};
    struct cache *c = cache_open(&s, err);
    free(first);
    free(hottest);
    free(all);
    return c;
}

static int open_slots(struct resident *r, const struct tier_options *o, struct error *err) {
    const struct place_setup *s = &r->setup;
    int64_t first_row = 0, staging = ALIGN;
    for (int32_t t = 0; t < s->num_tables; t++) {
        struct slots *own = &r->slots[t];
        const int64_t rows = s->shapes[t].rows;
        own->count = (int32_t)tier_slots(o->budget, rows);
        own->layout = record_of(&s->shapes[t]);
        own->at_once = max64(1, STAGING / own->layout.bytes);
        staging = max64(staging, own->at_once * own->layout.bytes);
        own->cache = open_cache(r, o, t, own->count, err);
        if (!own->cache) return -1;
        r->shapes[t] = s->shapes[t];
        r->shapes[t].rows = own->count + 1;
        r->shapes[t].first_row = first_row;
        r->shapes[t].part = (struct table_part){0};
        first_row += r->shapes[t].rows;
    }
    staging = (staging + ALIGN - 1) / ALIGN * ALIGN;
    r->leaving = must_have(aligned_alloc(ALIGN, (size_t)staging));
    r->coming = must_have(aligned_alloc(ALIGN, (size_t)staging));
    return tables_create(&r->tables, r->shapes, s->num_tables, 0, err);
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

struct resident *resident_open(const struct tier_options *o, const struct place_setup *setup,
                               struct error *err) {
    const struct store_setup store = {.directory = o->directory,
                                      .shapes = setup->shapes,
                                      .num_tables = setup->num_tables,
                                      .seed = setup->seed,
                                      .depth = o->depth,
                                      .direct = o->direct};
    struct resident *r = must_have(calloc(1, sizeof *r));
    r->setup = *setup;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    int64_t most = 1;
    for (int b = 0; b < setup->ring; b++) most = max64(most, setup->index[b].rows);
    for (int32_t t = 0; t < setup->num_tables; t++)
        most = max64(most, tier_slots(o->budget, setup->shapes[t].rows));
    const size_t count = (size_t)setup->num_tables;
    r->slots = must_have(calloc(count, sizeof *r->slots));
    r->shapes = must_have(calloc(count, sizeof *r->shapes));
    r->rows = must_have(calloc((size_t)most, sizeof *r->rows));
    r->some = must_have(calloc((size_t)most, sizeof *r->some));
    r->slot = must_have(calloc((size_t)most, sizeof *r->slot));
    r->moves = must_have(calloc((size_t)most, sizeof *r->moves));
    r->store = (o->store ? o->store : row_file_store)(&store, err);
    if (!r->store || open_slots(r, o, err)) {
        resident_close(r);
        return NULL;
    }
    open_batches(r);
    return r;
}

void resident_close(struct resident *r) {
    if (!r) return;
    for (int b = 0; r->batches && b < r->setup.ring; b++) free((void *)r->batches[b].ids);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_close(r->slots[t].cache);
    tables_free(&r->tables);
    if (r->store) r->store->ops->close(r->store);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->batches);
    free(r->slots);
    free(r->shapes);
    free(r->features);
    free(r->batch_shapes);
    free(r->leaving);
    free(r->coming);
    free(r->rows);
    free(r->some);
    free(r->slot);
    free(r->moves);
    free(r);
}
