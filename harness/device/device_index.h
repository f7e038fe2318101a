/* SPDX-License-Identifier: MIT
 *
 * Which rows of a table are in slots, in device memory: an int32 for each row. Kernels look up the ids of a batch, and find
 * its distinct rows by a bit for each row. Who leaves a slot is decided elsewhere (tiers/cache.h).
 *
 * All work is enqueued on a stream of the caller. Functions return 0, or -1 and fill err.
 */
#pragma once

#include "harness/device/device.h"

/* A distinct row of a batch. */
struct index_found {
    int32_t row, slot; /* slot -1: it is not here */
};

/* A row comes to a slot. */
struct index_move {
    int32_t row, victim, slot; /* victim -1: the slot was empty */
};

struct device_index {
    int64_t rows;
    /* slot_of: int32 [rows], -1: not here. touched: a bit for each row. counts: distinct rows that were found, and lookups
     * of missing ones. */
    struct device_buffer slot_of, touched, found, counts, moves;
};

/* most: distinct rows of a batch. rows: at most 2^31 - 1. */
int device_index_open(struct device_index *x, void *stream, int64_t rows, int64_t most,
                      struct error *err);
void device_index_close(struct device_index *x);
int64_t device_index_bytes(const struct device_index *x);

/* Ids of a batch in device memory, begin .. end-1, and where their slots go. */
struct index_lookups {
    const void *ids;
    enum id_type type;
    int64_t begin, end, padding;
    int32_t padding_slot;
    int32_t *slot; /* [end] */
};

/* Writes the slot of each id, that of padding for padding, and -1 where the row is not here. */
int device_index_look(struct device_index *x, void *stream, const struct index_lookups *l,
                      struct error *err);
/* Waits, and copies distinct rows of all look-ups since the last call to the host, in any order. to: [most] in pinned memory */
int device_index_found(struct device_index *x, void *stream, struct index_found *to, int64_t *count,
                       int64_t *missing_lookups, struct error *err);
/* moves: [count] of different rows, slots and victims, in pinned memory until the caller has waited; count: at most [most] */
int device_index_move(struct device_index *x, void *stream, const struct index_move *moves,
                      int64_t count, struct error *err);
/* Lookups that have no slot get the one that their row has now. */
int device_index_settle(struct device_index *x, void *stream, const struct index_lookups *l,
                        struct error *err);
