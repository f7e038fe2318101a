/* SPDX-License-Identifier: MIT */
#include "extras/tiers/resident.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

enum { STAGING = 4 << 20 /* bytes */, AT_ONCE = 8192 /* records */ };

static void lap(double *seconds, double *at) {
    const double now = clock_seconds();
    *seconds += now - *at;
    *at = now;
}

static int usable(const struct resident *r, struct error *err) {
    return r->broken ? fail(err, "rows are missing after an error; open the tables again") : 0;
}

/* --- admission of a batch, table by table */

static int32_t *ids_of(const struct resident *r, int batch) {
    return (int32_t *)r->batches[batch].ids;
}

/* Lookups of a table get the slots that its rows have. */
static void look(struct resident *r, int32_t t, int batch) {
    const struct batch *in = &r->setup.batches[batch];
    for (int32_t f = 0; f < in->num_features; f++)
        if (in->features[f].table == t)
            cache_look(r->slots[t].cache, in, in->features[f].first_lookup,
                       in->features[f].first_lookup + in->features[f].lookups,
                       in->features[f].padding_id, r->slots[t].count, ids_of(r, batch), &r->found);
}

/* Lookups of rows that have come get their slots. */
static void settle(struct resident *r, int32_t t, int batch) {
    const struct batch *in = &r->setup.batches[batch];
    int32_t *slot = ids_of(r, batch);
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        if (x->table != t) continue;
        for (int64_t i = x->first_lookup; i < x->first_lookup + x->lookups; i++)
            if (slot[i] < 0) slot[i] = cache_slot(r->slots[t].cache, batch_id(in, i));
    }
}

/* Slots for the rows that were found. Waits while batches under way hold them. */
static int get_slots(struct resident *r, int32_t t, double *at, struct error *err) {
    struct cache *cache = r->slots[t].cache;
    int64_t oldest, missing;
    pthread_mutex_lock(&r->lock);
    while ((missing = cache_missing_slots(cache, &r->found, oldest = r->released)) > 0 &&
           oldest < r->admitted && !r->stop) {
        lap(&r->counts.index, at);
        pthread_cond_wait(&r->changed, &r->lock);
        *at = clock_seconds();
    }
    pthread_mutex_unlock(&r->lock);
    if (missing > 0)
        return fail(
            err,
            "table %d, with the rows of the budget: a batch touches %lld rows, and there are "
            "%d slots; it needs %lld more",
            t, (long long)(r->found.num_here + r->found.num_missing), r->slots[t].count,
            (long long)missing);
    cache_admit(cache, &r->found, oldest, r->moves);
    return 0;
}

/* Rows come to slots: [count] moves. Victims that have changed are packed before their slots are overwritten, and
 * stored after the reads. */
static int exchange(struct resident *r, int32_t t, const struct cache_move *moves, int64_t count,
                    double *at, struct error *err) {
    struct store *store = r->store;
    int64_t victims = 0;
    for (int64_t i = 0; i < count; i++) {
        if (moves[i].victim < 0 || !moves[i].dirty) continue;
        r->slot[victims] = moves[i].slot;
        r->rows[victims++] = moves[i].victim;
    }
    if (victims && fast_take(r->fast, t, r->slot, victims, err)) return -1;
    lap(&r->counts.write_back, at);
    int64_t *coming = r->rows + victims;
    for (int64_t i = 0; i < count; i++) {
        coming[i] = moves[i].row;
        r->slot[i] = moves[i].slot;
    }
    if (store->kind->fetch(store, t, coming, count, r->fast->coming, err) ||
        fast_give(r->fast, t, r->slot, count, err))
        return -1;
    lap(&r->counts.fetch, at);
    if (victims && store->kind->put(store, t, r->rows, victims, r->fast->leaving, err)) return -1;
    r->counts.written_back += victims;
    lap(&r->counts.write_back, at);
    return 0;
}

static int admit_table(struct resident *r, int32_t t, int batch, double *at, struct error *err) {
    struct cache_found *found = &r->found;
    found->num_here = found->num_missing = 0;
    look(r, t, batch);
    const int64_t lookup_misses = found->num_missing;
    if (get_slots(r, t, at, err)) return -1;
    lap(&r->counts.index, at);
    r->broken = true;
    for (int64_t i = 0, n; i < found->num_missing; i += n) {
        n = min64(found->num_missing - i, r->slots[t].at_once);
        if (exchange(r, t, r->moves + i, n, at, err)) return -1;
    }
    r->broken = false;
    if (lookup_misses) settle(r, t, batch);
    lap(&r->counts.index, at);
    r->counts.rows += found->num_here + found->num_missing;
    r->counts.row_misses += found->num_missing;
    r->counts.lookup_misses += lookup_misses;
    return 0;
}

int resident_admit(struct resident *r, int batch, bool changes, struct error *err) {
    double at = clock_seconds();
    int status = usable(r, err);
    r->found.batch = r->admitted;
    r->found.changes = changes;
    if (r->admitted >= INT32_MAX)
        status = fail(err, "%d batches were admitted; open the tables again", INT32_MAX);
    for (int32_t t = 0; status == 0 && t < r->setup.num_tables; t++)
        status = admit_table(r, t, batch, &at, err);
    if (status) return -1;
    r->broken = true;
    if (fast_renew(r->fast, batch, &r->batches[batch], err)) return -1;
    r->broken = false;
    r->counts.batches++;
    r->counts.lookups += r->setup.index[batch].lookups;
    return 0;
}

/* --- rows from outside, and commits */

/* All rows are in the store, with their latest content. */
static int write_back(struct resident *r, struct error *err) {
    if (usable(r, err)) return -1;
    r->broken = true; /* rows count as stored before they are */
    for (int32_t t = 0; t < r->setup.num_tables; t++) {
        const int64_t count = cache_changed(r->slots[t].cache, r->rows, r->slot);
        for (int64_t i = 0, n; i < count; i += n) {
            n = min64(count - i, r->slots[t].at_once);
            if (fast_take(r->fast, t, r->slot + i, n, err) ||
                r->store->kind->put(r->store, t, r->rows + i, n, r->fast->leaving, err))
                return -1;
        }
        r->counts.written_back += count;
    }
    r->broken = false;
    return 0;
}

int resident_get(struct resident *r, int32_t t, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    const struct record *record = &r->records[t];
    if (write_back(r, err)) return -1;
    for (int64_t first = begin, n; first < end; first += n) {
        n = min64(end - first, r->slots[t].at_once);
        for (int64_t i = 0; i < n; i++) r->rows[i] = first + i;
        if (r->store->kind->fetch(r->store, t, r->rows, n, r->fast->coming, err)) return -1;
        for (int64_t i = 0; i < n; i++)
            record_unpack(record, r->fast->coming + i * record->bytes, rows, first + i - begin);
    }
    return 0;
}

/* Initial values of consecutive rows, to the store. */
static int put_initial(struct resident *r, int32_t t, int64_t first, int64_t count,
                       struct error *err) {
    const struct record *record = &r->records[t];
    struct table_shape shape = record->shape;
    struct table_set rows;
    shape.part.table += t;
    shape.part.row = part_row(&shape.part, first);
    shape.rows = count;
    if (tables_create(&rows, &shape, 1, r->setup.seed, err)) return -1;
    for (int64_t i = 0; i < count; i++) {
        record_pack(record, r->fast->leaving + i * record->bytes, &rows.tables[0], i);
        r->rows[i] = first + i;
    }
    tables_free(&rows);
    return r->store->kind->put(r->store, t, r->rows, count, r->fast->leaving, err);
}

int resident_restore(struct resident *r, const struct row_index *rows, struct error *err) {
    int status = write_back(r, err);
    r->broken = true;
    for (int32_t t = 0; status == 0 && t < r->setup.num_tables; t++) {
        const int64_t all = rows ? 0 : r->setup.shapes[t].rows, at_once = r->slots[t].at_once;
        cache_empty(r->slots[t].cache);
        for (int64_t row = 0; status == 0 && row < all; row += at_once)
            status = put_initial(r, t, row, min64(at_once, all - row), err);
    }
    for (int64_t i = 0; rows && status == 0 && i < rows->rows; i++)
        status = put_initial(r, rows->run[i].table, rows->run[i].row, 1, err);
    r->broken = status;
    return status;
}

int resident_commit(struct resident *r, struct error *err) {
    if (write_back(r, err)) return -1;
    return r->store->kind->commit ? r->store->kind->commit(r->store, err) : 0;
}

int64_t resident_bytes(const struct resident *r) {
    int64_t bytes = r->fast->bytes + 2 * STAGING + r->store->memory_bytes;
    for (int32_t t = 0; t < r->setup.num_tables; t++) bytes += cache_bytes(r->slots[t].cache);
    return bytes;
}

/* --- opening */

static int open_slots(struct resident *r, const struct tier_options *o, struct error *err) {
    const struct place_setup *s = &r->setup;
    int64_t first_row = 0;
    for (int32_t t = 0; t < s->num_tables; t++) {
        struct slots *own = &r->slots[t];
        struct cache_setup setup = {.rows = s->shapes[t].rows,
                                    .slots = tier_slots(o->budget, s->shapes[t].rows),
                                    .policy = o->policy,
                                    .index = s->index,
                                    .table = t,
                                    .num_batches = s->ring};
        own->count = (int32_t)setup.slots;
        own->cache = cache_open(&setup, err);
        if (!own->cache) return -1;
        r->records[t] = record_of(&s->shapes[t], o->store->block);
        own->at_once = min64(AT_ONCE, max64(1, STAGING / r->records[t].bytes));
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
        r->batches[b] = *from;
        r->batches[b].tables = shape;
        r->batches[b].features = feature;
        r->batches[b].id_type = ID_INT32;
        r->batches[b].ids = must_have(calloc((size_t)from->lookups + 1, sizeof(int32_t)));
    }
}

/* Room for rows of any table. rows: also of two lists that travel. */
static void open_lists(struct resident *r) {
    const struct place_setup *s = &r->setup;
    int64_t most = AT_ONCE, lookups = 1;
    for (int b = 0; b < s->ring; b++) {
        most = max64(most, s->index[b].rows);
        lookups = max64(lookups, s->batches[b].lookups);
    }
    for (int32_t t = 0; t < s->num_tables; t++) most = max64(most, r->slots[t].count);
    r->rows = must_have(calloc((size_t)(2 * most), sizeof *r->rows));
    r->slot = must_have(calloc((size_t)most, sizeof *r->slot));
    r->moves = must_have(calloc((size_t)most, sizeof *r->moves));
    r->found.missing = must_have(calloc((size_t)lookups, sizeof *r->found.missing));
}

static int open_store(struct resident *r, const struct tier_options *o, struct error *err) {
    const size_t count = (size_t)r->setup.num_tables;
    struct store_table *tables = must_have(calloc(count, sizeof *tables));
    const struct store_setup store = {.directory = o->directory,
                                      .tables = tables,
                                      .num_tables = r->setup.num_tables,
                                      .depth = o->depth,
                                      .direct = o->direct};
    for (size_t t = 0; t < count; t++)
        tables[t] = (struct store_table){r->setup.shapes[t].rows, r->records[t].bytes};
    r->store = o->store->open(&store, err);
    free(tables);
    return r->store ? 0 : -1;
}

static int open_all(struct resident *r, const struct tier_options *o, struct error *err) {
    struct place_setup slots = r->setup;
    int64_t most = 0, most_bytes = STAGING;
    if (open_slots(r, o, err) || open_store(r, o, err)) return -1;
    open_lists(r);
    open_batches(r);
    slots.shapes = r->shapes;
    slots.batches = r->batches;
    for (int32_t t = 0; t < slots.num_tables; t++) {
        most = max64(most, r->slots[t].at_once);
        most_bytes = max64(most_bytes, r->records[t].bytes);
    }
    r->fast = fast_open(o->fast, &slots, r->records, most, most_bytes, err);
    if (!r->fast) return -1;
    if (r->store->has_rows) return 0;
    return resident_restore(r, NULL, err) || resident_commit(r, err) ? -1 : 0;
}

struct resident *resident_open(const struct tier_options *o, const struct place_setup *setup,
                               struct error *err) {
    const size_t count = (size_t)setup->num_tables;
    struct resident *r = must_have(calloc(1, sizeof *r));
    r->setup = *setup;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    r->slots = must_have(calloc(count, sizeof *r->slots));
    r->records = must_have(calloc(count, sizeof *r->records));
    r->shapes = must_have(calloc(count, sizeof *r->shapes));
    if (open_all(r, o, err) == 0) return r;
    resident_close(r);
    return NULL;
}

void resident_close(struct resident *r) {
    if (!r) return;
    fast_close(r->fast);
    if (r->store) r->store->kind->close(r->store);
    for (int b = 0; r->batches && b < r->setup.ring; b++) free((void *)r->batches[b].ids);
    for (int32_t t = 0; t < r->setup.num_tables; t++) cache_close(r->slots[t].cache);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->batches);
    free(r->slots);
    free(r->records);
    free(r->shapes);
    free(r->features);
    free(r->batch_shapes);
    free(r->found.missing);
    free(r->rows);
    free(r->slot);
    free(r->moves);
    free(r);
}
