/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device_index.h"
#include "harness/device/device_rows.h"
#include "harness/memory.h"
#include "extras/tiers/resident.h"

struct fast_device {
    struct fast fast;
    void *stream; /* of look-ups and rows that travel; kernels run on that of the place */
    struct place *place;
    int32_t num_tables;
    int ring;
    struct device_index *index;   /* [num_tables] */
    struct device_buffer *ids;    /* [ring] as the batches came */
    struct device_buffer staging; /* records */
    struct device_buffer slots;   /* int32, of these records */
    struct device_buffer blocks;  /* of device_rows_move() */
    /* In pinned memory: [rows of a table in a batch], and [records that travel together]. */
    struct index_found *found;
    struct index_move *moves;
    int32_t *slot;
};

static struct fast_device *device_of(const struct resident *r) {
    return (struct fast_device *)r->fast;
}

/* --- look-ups */

static struct index_lookups lookups_of(const struct resident *r, int32_t t, int batch, int32_t f) {
    const struct fast_device *d = device_of(r);
    const struct batch *in = &r->setup.batches[batch];
    const struct device_batch *on = d->place->ops->device_batch(d->place, batch);
    return (struct index_lookups){.ids = d->ids[batch].data,
                                  .type = in->id_type,
                                  .begin = in->offsets[f * in->bags],
                                  .end = in->offsets[(f + 1) * in->bags],
                                  .padding = in->features[f].padding_id,
                                  .padding_slot = r->slots[t].count,
                                  .slot = on->ids.data};
}

static int look(struct resident *r, int32_t t, int batch, struct cache_found *x,
                struct error *err) {
    struct fast_device *d = device_of(r);
    const struct batch *in = &r->setup.batches[batch];
    int64_t count;
    for (int32_t f = 0; f < in->num_features; f++) {
        if (in->features[f].table != t) continue;
        const struct index_lookups l = lookups_of(r, t, batch, f);
        if (device_index_look(&d->index[t], d->stream, &l, err)) return -1;
    }
    if (device_index_found(&d->index[t], d->stream, d->found, &count, &x->missing_lookups, err))
        return -1;
    x->num_here = x->num_missing = 0;
    for (int64_t i = 0; i < count; i++) {
        if (d->found[i].slot >= 0)
            cache_found_here(r->slots[t].cache, d->found[i].row, x);
        else
            x->missing[x->num_missing++] = d->found[i].row;
    }
    return 0;
}

static int settle(struct resident *r, int32_t t, int batch, const struct cache_move *moves,
                  int64_t count, struct error *err) {
    struct fast_device *d = device_of(r);
    const struct batch *in = &r->setup.batches[batch];
    if (count == 0) return 0;
    for (int64_t i = 0; i < count; i++)
        d->moves[i] =
            (struct index_move){(int32_t)moves[i].row, (int32_t)moves[i].victim, moves[i].slot};
    if (device_index_move(&d->index[t], d->stream, d->moves, count, err)) return -1;
    for (int32_t f = 0; f < in->num_features; f++) {
        if (in->features[f].table != t) continue;
        const struct index_lookups l = lookups_of(r, t, batch, f);
        if (device_index_settle(&d->index[t], d->stream, &l, err)) return -1;
    }
    return device_wait(d->stream, err);
}

/* --- rows */

/* Bytes of an element that all arrays of a record are made of. */
static int64_t element_of(const struct record *layout) {
    int64_t element = 4;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        while (table_memory_stride(&layout->shape, a) % element) element /= 2;
    return element;
}

/* Between slots of a table and records in device memory: a block for each array. */
static int move_rows(struct resident *r, int32_t t, enum row_move how, const int32_t *slot,
                     int64_t count, struct error *err) {
    struct fast_device *d = device_of(r);
    const struct record *layout = &r->slots[t].layout;
    const struct table *table = &d->place->ops->device_tables(d->place)->tables[t];
    const int64_t element = element_of(layout);
    struct row_block blocks[TABLE_ARRAYS];
    int32_t used = 0;
    int64_t at = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_memory_stride(&layout->shape, a);
        if (bytes == 0) continue;
        blocks[used++] = (struct row_block){.how = how,
                                            .columns = (int32_t)(bytes / element),
                                            .count = count,
                                            .row = d->slots.data,
                                            .array = table->array[a].data,
                                            .message = (char *)d->staging.data + at,
                                            .array_stride = table->array[a].stride,
                                            .message_stride = layout->bytes};
        at += bytes;
    }
    memcpy(d->slot, slot, (size_t)count * sizeof *slot);
    return device_put_on(d->stream, d->slots.data, d->slot, (size_t)count * sizeof *slot, err) ||
                   device_rows_move(d->stream, &d->blocks, blocks, used, element, err)
               ? -1
               : 0;
}

static int take(struct resident *r, int32_t t, const int32_t *slot, int64_t count,
                struct error *err) {
    struct fast_device *d = device_of(r);
    const size_t bytes = (size_t)(count * r->slots[t].layout.bytes);
    return move_rows(r, t, ROWS_PACK, slot, count, err) ||
                   device_get_on(d->stream, d->fast.leaving, d->staging.data, bytes, err) ||
                   device_wait(d->stream, err)
               ? -1
               : 0;
}

static int give(struct resident *r, int32_t t, const int32_t *slot, int64_t count,
                struct error *err) {
    struct fast_device *d = device_of(r);
    const size_t bytes = (size_t)(count * r->slots[t].layout.bytes);
    return device_put_on(d->stream, d->staging.data, d->fast.coming, bytes, err) ||
                   move_rows(r, t, ROWS_UNPACK, slot, count, err) || device_wait(d->stream, err)
               ? -1
               : 0;
}

/* --- opening */

static int intact(struct resident *r, const struct place_scratch *s, struct error *err) {
    struct place *p = device_of(r)->place;
    if (!device_intact(&s->device)) return fail(err, "wrote outside of its scratch"), 1;
    if (!device_tables_intact(p->ops->device_tables(p)))
        return fail(err, "wrote outside of the tables"), 1;
    return 0;
}

/* Not timed: the time of stages takes a step twice, with rows restored that this place does not know. */
static struct place *open_place(struct resident *r, const struct place_setup *inner,
                                struct error *err) {
    struct fast_device *d = device_of(r);
    struct place_setup own = *inner;
    own.timed = false;
    d->place = place_device_open(&own, err);
    for (int32_t t = 0; d->place && t < d->num_tables; t++) {
        const struct device_tables *on = d->place->ops->device_tables(d->place);
        d->fast.bytes += device_index_bytes(&d->index[t]) + (t == 0 ? on->bytes : 0);
    }
    return d->place;
}

static void close_device(struct fast *f) {
    struct fast_device *d = (struct fast_device *)f;
    for (int32_t t = 0; t < d->num_tables; t++) device_index_close(&d->index[t]);
    for (int b = 0; b < d->ring; b++) device_free(&d->ids[b]);
    device_free(&d->staging);
    device_free(&d->slots);
    device_free(&d->blocks);
    device_pinned_free(d->found);
    device_pinned_free(d->moves);
    device_pinned_free(d->slot);
    device_pinned_free(f->leaving);
    device_pinned_free(f->coming);
    device_stream_close(d->stream);
    free(d->index);
    free(d->ids);
    free(d);
}

static int put_ids(struct fast_device *d, const struct place_setup *s, struct error *err) {
    for (int b = 0; b < s->ring; b++) {
        const struct batch *in = &s->batches[b];
        const size_t bytes = (size_t)in->lookups * (in->id_type == ID_INT32 ? 4 : 8);
        if (device_alloc(&d->ids[b], bytes, "ids", err) ||
            device_put(d->ids[b].data, in->ids, bytes, err))
            return -1;
    }
    return 0;
}

/* Distinct rows of a table in any batch. */
static int64_t most_rows(const struct place_setup *s, int32_t t) {
    int64_t most = 1;
    for (int b = 0; b < s->ring; b++) {
        const int64_t rows =
            row_index_find(&s->index[b], t + 1, 0) - row_index_find(&s->index[b], t, 0);
        most = rows > most ? rows : most;
    }
    return most;
}

static int open_indices(struct fast_device *d, struct resident *r, int64_t *most, int64_t *at_once,
                        struct error *err) {
    *most = *at_once = 1;
    for (int32_t t = 0; t < d->num_tables; t++) {
        const int64_t rows = most_rows(&r->setup, t), travel = r->slots[t].at_once;
        if (device_index_open(&d->index[t], d->stream, r->setup.shapes[t].rows, rows, err))
            return -1;
        *most = rows > *most ? rows : *most;
        *at_once = travel > *at_once ? travel : *at_once;
    }
    return 0;
}

static int open_all(struct fast_device *d, struct resident *r, int64_t staging, struct error *err) {
    int64_t most, at_once;
    if (device_open(err) || device_stream_open(&d->stream, err) ||
        open_indices(d, r, &most, &at_once, err) || put_ids(d, &r->setup, err))
        return -1;
    const size_t rows = (size_t)most, travel = (size_t)at_once, bytes = (size_t)staging;
    return device_alloc(&d->staging, bytes, "rows on their way", err) ||
                   device_alloc(&d->slots, travel * sizeof *d->slot, "slots", err) ||
                   device_alloc(&d->blocks, TABLE_ARRAYS * sizeof(struct row_block),
                                "the list of rows to move", err) ||
                   device_pinned_alloc((void **)&d->found, rows * sizeof *d->found, err) ||
                   device_pinned_alloc((void **)&d->moves, rows * sizeof *d->moves, err) ||
                   device_pinned_alloc((void **)&d->slot, travel * sizeof *d->slot, err) ||
                   device_pinned_alloc((void **)&d->fast.leaving, bytes, err) ||
                   device_pinned_alloc((void **)&d->fast.coming, bytes, err) ||
                   device_wait(d->stream, err)
               ? -1
               : 0;
}

struct fast *fast_device_open(struct resident *r, int64_t staging, struct error *err) {
    static const struct fast_ops ops = {.close = close_device,
                                        .open_place = open_place,
                                        .look = look,
                                        .take = take,
                                        .give = give,
                                        .settle = settle,
                                        .intact = intact};
    struct fast_device *d = must_have(calloc(1, sizeof *d));
    d->fast.ops = &ops;
    d->num_tables = r->setup.num_tables;
    d->ring = r->setup.ring;
    d->index = must_have(calloc((size_t)d->num_tables, sizeof *d->index));
    d->ids = must_have(calloc((size_t)d->ring, sizeof *d->ids));
    if (open_all(d, r, staging, err) == 0) return &d->fast;
    close_device(&d->fast);
    return NULL;
}
