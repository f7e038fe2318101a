/* SPDX-License-Identifier: MIT */
#include "extras/tiers/fast.h"

#include <stdlib.h>
#include <string.h>

#include "harness/device/device_rows.h"
#include "harness/memory.h"

enum { PAGE = 4096 };

/* --- records */

struct record record_of(const struct table_shape *shape, int64_t block) {
    struct record r = {.shape = *shape};
    for (int a = 0; a < TABLE_ARRAYS; a++) r.bytes += table_memory_stride(shape, a);
    r.bytes = (r.bytes + block - 1) / block * block;
    return r;
}

void record_pack(const struct record *r, void *record, const struct table *from, int64_t row) {
    char *to = record;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_memory_stride(&r->shape, a);
        if (bytes) memcpy(to, array_row(&from->array[a], row), (size_t)bytes);
        to += bytes;
    }
    memset(to, 0, (size_t)((char *)record + r->bytes - to));
}

void record_unpack(const struct record *r, const void *record, struct table *to, int64_t row) {
    const char *from = record;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_memory_stride(&r->shape, a);
        if (bytes) memcpy(array_row(&to->array[a], row), from, (size_t)bytes);
        from += bytes;
    }
}

/* --- rows on a device */

/* Bytes of an element that all arrays of a record are made of. */
static int64_t element_of(const struct record *r) {
    int64_t element = 4;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        while (table_memory_stride(&r->shape, a) % element) element /= 2;
    return element;
}

/* Enqueues copies between slots of a table and records in device memory: a block for each array. */
static int move_rows(struct fast *f, int32_t t, enum row_move how, const int32_t *slot,
                     int64_t count, struct error *err) {
    const struct record *r = &f->records[t];
    const struct table *table = &f->place->ops->device_tables(f->place)->tables[t];
    const int64_t element = element_of(r);
    const size_t bytes = (size_t)count * sizeof *slot;
    struct row_block blocks[TABLE_ARRAYS];
    int32_t used = 0;
    char *message = f->staging.data;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_memory_stride(&r->shape, a);
        if (width == 0) continue;
        blocks[used++] = (struct row_block){.how = how,
                                            .columns = (int32_t)(width / element),
                                            .count = count,
                                            .row = f->slots.data,
                                            .array = table->array[a].data,
                                            .message = message,
                                            .array_stride = table->array[a].stride,
                                            .message_stride = r->bytes};
        message += width;
    }
    memcpy(f->pinned_slots, slot, bytes);
    if (device_put_on(f->stream, f->slots.data, f->pinned_slots, bytes, err)) return -1;
    return device_rows_move(f->stream, &f->blocks, blocks, used, element, err);
}

static int take_from_device(struct fast *f, int32_t t, const int32_t *slot, int64_t count,
                            struct error *err) {
    const size_t bytes = (size_t)(count * f->records[t].bytes);
    if (move_rows(f, t, ROWS_PACK, slot, count, err) ||
        device_get_on(f->stream, f->leaving, f->staging.data, bytes, err))
        return -1;
    return device_wait(f->stream, err);
}

static int give_to_device(struct fast *f, int32_t t, const int32_t *slot, int64_t count,
                          struct error *err) {
    const size_t bytes = (size_t)(count * f->records[t].bytes);
    if (device_put_on(f->stream, f->staging.data, f->coming, bytes, err) ||
        move_rows(f, t, ROWS_UNPACK, slot, count, err))
        return -1;
    return device_wait(f->stream, err);
}

/* --- rows in both kinds of memory */

int fast_take(struct fast *f, int32_t t, const int32_t *slot, int64_t count, struct error *err) {
    const struct record *r = &f->records[t];
    if (f->on_device) return take_from_device(f, t, slot, count, err);
    for (int64_t i = 0; i < count; i++)
        record_pack(r, f->leaving + i * r->bytes, &f->tables.tables[t], slot[i]);
    return 0;
}

int fast_give(struct fast *f, int32_t t, const int32_t *slot, int64_t count, struct error *err) {
    const struct record *r = &f->records[t];
    if (f->on_device) return give_to_device(f, t, slot, count, err);
    for (int64_t i = 0; i < count; i++)
        record_unpack(r, f->coming + i * r->bytes, &f->tables.tables[t], slot[i]);
    return 0;
}

int fast_renew(struct fast *f, int batch, const struct batch *in, struct error *err) {
    if (!f->on_device || in->lookups == 0) return 0;
    const struct device_batch *there = f->place->ops->device_batch(f->place, batch);
    const size_t bytes = (size_t)in->lookups * sizeof(int32_t);
    if (device_put_on(f->stream, there->ids.data, in->ids, bytes, err)) return -1;
    return device_wait(f->stream, err);
}

/* The host's place would find that ids have changed. */
int fast_intact(struct fast *f, int batch, const struct place_scratch *s, struct error *err) {
    if (f->on_device) return f->place->ops->intact(f->place, batch, s, err);
    if (!buffer_intact(&s->host)) return fail(err, "wrote outside of its scratch"), 1;
    if (!tables_intact(&f->tables)) return fail(err, "wrote outside of the tables"), 1;
    return 0;
}

/* --- opening */

static int open_on_device(struct fast *f, int64_t most, size_t bytes, struct error *err) {
    const size_t slots = (size_t)most * sizeof(int32_t);
    if (device_stream_open(&f->stream, err) ||
        device_alloc(&f->staging, bytes, "rows on their way", err) ||
        device_alloc(&f->slots, slots, "slots", err) ||
        device_alloc(&f->blocks, TABLE_ARRAYS * sizeof(struct row_block),
                     "the list of rows to move", err) ||
        device_pinned_alloc((void **)&f->pinned_slots, slots, err) ||
        device_pinned_alloc((void **)&f->leaving, bytes, err))
        return -1;
    return device_pinned_alloc((void **)&f->coming, bytes, err);
}

static int open_on_host(struct fast *f, const struct place_setup *slots, size_t bytes,
                        struct error *err) {
    bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    f->leaving = must_have(aligned_alloc(PAGE, bytes));
    f->coming = must_have(aligned_alloc(PAGE, bytes));
    return tables_create(&f->tables, slots->shapes, slots->num_tables, 0, err);
}

struct fast *fast_open(enum backend where, const struct place_setup *slots,
                       const struct record *records, int64_t most, int64_t most_bytes,
                       struct error *err) {
    const bool on_device = where == ON_DEVICE;
    struct place_setup setup = *slots;
    if (on_device && device_open(err)) return NULL;
    struct fast *f = must_have(calloc(1, sizeof *f));
    f->records = records;
    f->on_device = on_device;
    f->index = must_have(calloc((size_t)setup.ring, sizeof *f->index));
    f->bytes = tables_bytes(setup.shapes, setup.num_tables);
    setup.index = f->index;
    setup.timed = false;
    setup.tables = on_device ? NULL : &f->tables;
    if ((on_device ? open_on_device(f, most, (size_t)most_bytes, err)
                   : open_on_host(f, slots, (size_t)most_bytes, err)) == 0)
        f->place = place_open(where, &setup, err);
    if (f->place) return f;
    fast_close(f);
    return NULL;
}

void fast_close(struct fast *f) {
    if (!f) return;
    if (f->place) f->place->ops->close(f->place);
    if (f->on_device) {
        device_free(&f->staging);
        device_free(&f->slots);
        device_free(&f->blocks);
        device_pinned_free(f->pinned_slots);
        device_pinned_free(f->leaving);
        device_pinned_free(f->coming);
        device_stream_close(f->stream);
    } else {
        tables_free(&f->tables);
        free(f->leaving);
        free(f->coming);
    }
    free(f->index);
    free(f);
}
