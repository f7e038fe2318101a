/* SPDX-License-Identifier: MIT
 *
 * Fast memory: tables of slots in host or device memory, the place that runs kernels on them, and copies of rows
 * between slots and records. A record is a row with its weights and all of its states, so that they move together.
 * Records travel to and from a device through pinned memory, on a stream of their own.
 *
 * Functions return 0, or -1 and fill err.
 */
#pragma once

#include "harness/measure/place.h"

struct record {
    struct table_shape shape;
    int64_t bytes; /* a multiple of the block of the store */
};

struct record record_of(const struct table_shape *shape, int64_t block);
void record_pack(const struct record *r, void *record, const struct table *from, int64_t row);
void record_unpack(const struct record *r, const void *record, struct table *to, int64_t row);

struct fast {
    struct place *place;
    char *leaving, *coming; /* records on their way, aligned to a page */
    int64_t bytes;          /* of the slots */
    const struct record *records;
    bool on_device;
    struct row_index *index; /* [ring], each without rows: rows in slots are never restored */
    struct table_set tables; /* of slots, in host memory */
    /* On a device. */
    void *stream;
    struct device_buffer staging; /* records */
    struct device_buffer slots;   /* int32: the slots of these records */
    struct device_buffer blocks;  /* the list that device_rows_move() needs */
    int32_t *pinned_slots;
};

/* slots: tables of slots and their batches, without an index. records: [num_tables]. These tables' shapes, the batches
 * and the records must outlive the result. most, most_bytes: the most records that travel together, and their bytes. */
struct fast *fast_open(enum backend where, const struct place_setup *slots,
                       const struct record *records, int64_t most, int64_t most_bytes,
                       struct error *err);
void fast_close(struct fast *f);

/* Copies [count] slots of a table to the records f->leaving, and the records f->coming to slots. */
int fast_take(struct fast *f, int32_t table, const int32_t *slot, int64_t count, struct error *err);
int fast_give(struct fast *f, int32_t table, const int32_t *slot, int64_t count, struct error *err);

/* Copies the ids of a batch, which have become numbers of slots, to the device if the batch is there. */
int fast_renew(struct fast *f, int batch, const struct batch *in, struct error *err);

/* Does what place_ops.intact does. */
int fast_intact(struct fast *f, int batch, const struct place_scratch *s, struct error *err);
