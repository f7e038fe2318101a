/* SPDX-License-Identifier: MIT
 *
 * Rows that travel between processes, in device memory: rows are contiguous in a message, and lie in an array where a
 * batch or an output has them. ranks/route_rows.c makes the blocks, and moves blocks in host memory itself.
 */
#pragma once

#include "harness/device/device.h"

enum row_move {
    ROWS_PACK,   /* from the array to the message */
    ROWS_UNPACK, /* back */
    ROWS_ADD,    /* the message's floats are added to the array's */
    ROWS_CLEAR   /* the array's become 0; there is no message */
};

/* Rows of one shape. The array's rows are listed, or consecutive; the message has them in order. */
struct row_block {
    enum row_move how;
    int32_t columns;
    int64_t first, count;                 /* of the array's rows; first: without a list */
    const int32_t *row;                   /* [count], or NULL: first, first + 1, ... */
    char *array, *message;                /* the array's row 0; the message's first row */
    int64_t array_stride, message_stride; /* bytes from row to row */
};

/* Enqueues the moves on a stream. Blocks of one call write different bytes. element: bytes, 1, 2 or 4; ROWS_ADD has 4.
 * list: has room for the blocks, grows, and belongs to this stream until the caller has waited for it. */
int device_rows_move(void *stream, struct device_buffer *list, const struct row_block *blocks,
                     int32_t count, int64_t element, struct error *err);
