/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extras/library/state.h"

struct state_part state_whole(const struct table_shape *shape, int array) {
    const int64_t bytes =
        table_array_width(shape, array) * dtype_bytes(table_array_type(shape, array));
    return (struct state_part){.step = 1, .bytes = bytes, .row_bytes = bytes};
}

int state_rows_open(struct state_rows *r, enum backend place, const struct array *array,
                    const struct state_part *part, int64_t rows, struct embfuse_error *why) {
    *r = (struct state_rows){.place = place, .array = *array, .part = *part, .rows = rows};
    const bool apart = place == ON_DEVICE && array->stride != part->bytes;
    const int64_t each = apart ? array->stride : part->bytes;
    r->at_once = each < STATE_CHUNK ? STATE_CHUNK / each : 1;
    if (r->at_once > r->rows) r->at_once = r->rows;
    r->buffer = malloc((size_t)(r->at_once * part->bytes));
    r->span = apart ? malloc((size_t)(r->at_once * each)) : NULL;
    return r->buffer && (r->span || !apart)
               ? 0
               : said(why, EMBFUSE_NO_MEMORY, "out of memory for a buffer of rows");
}

void state_rows_close(struct state_rows *r) {
    free(r->buffer);
    free(r->span);
}

/* Copies the buffer's rows to memory where rows are `stride` bytes apart, or from there. */
static void copy(const struct state_rows *r, char *at, int64_t count, bool put) {
    const int64_t each = r->array.stride == r->part.bytes ? count * r->part.bytes : r->part.bytes;
    for (int64_t i = 0; i * each < count * r->part.bytes; i++) {
        char *there = at + i * r->array.stride, *here = r->buffer + i * each;
        memcpy(put ? there : here, put ? here : there, (size_t)each);
    }
}

static int64_t span_bytes(const struct state_rows *r, int64_t count) {
    return (count - 1) * r->array.stride + r->part.bytes;
}

int state_rows_get(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why) {
    char *at = array_row(&r->array, first), *to = r->span ? r->span : r->buffer;
    struct error err;
    if (r->place == ON_HOST)
        copy(r, at, count, false);
    else if (device_get(to, at, (size_t)span_bytes(r, count), &err))
        return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    else if (r->span)
        copy(r, r->span, count, false);
    return 0;
}

/* On a device, rows that are apart go back together with what is between them, as it was. */
int state_rows_put(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why) {
    char *at = array_row(&r->array, first), *from = r->span ? r->span : r->buffer;
    const size_t bytes = (size_t)span_bytes(r, count);
    struct error err;
    if (r->place == ON_HOST) {
        copy(r, at, count, true);
        return 0;
    }
    if (r->span && device_get(r->span, at, bytes, &err))
        return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    if (r->span) copy(r, r->span, count, true);
    return device_put(at, from, bytes, &err) ? said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text)
                                             : 0;
}

/* --- files */

int state_bytes_write(int fd, const char *bytes, size_t size, int64_t at) {
    while (size > 0) {
        const ssize_t done = pwrite(fd, bytes, size, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return -1;
        bytes += done;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

int state_bytes_read(int fd, char *bytes, size_t size, int64_t at) {
    while (size > 0) {
        const ssize_t done = pread(fd, bytes, size, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = 0;
        if (done <= 0) return -1;
        bytes += done;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

/* Rows that lie close together in the file are one piece of it; otherwise each row is one. */
static int transfer(const struct state_rows *r, int fd, int64_t begin, int64_t first, int64_t count,
                    bool writes) {
    const struct state_part *p = &r->part;
    const bool close = p->step == 1 && p->bytes == p->row_bytes;
    const int64_t each = close ? count * p->bytes : p->bytes, pieces = close ? 1 : count;
    for (int64_t i = 0; i < pieces; i++) {
        char *bytes = r->buffer + i * each;
        const int64_t at = begin + (p->first + (first + i) * p->step) * p->row_bytes + p->skip;
        if (writes ? state_bytes_write(fd, bytes, (size_t)each, at)
                   : state_bytes_read(fd, bytes, (size_t)each, at))
            return -1;
    }
    return 0;
}

int state_rows_write(const struct state_rows *r, int fd, int64_t begin, int64_t first,
                     int64_t count) {
    return transfer(r, fd, begin, first, count, true);
}

int state_rows_read(const struct state_rows *r, int fd, int64_t begin, int64_t first,
                    int64_t count) {
    return transfer(r, fd, begin, first, count, false);
}
