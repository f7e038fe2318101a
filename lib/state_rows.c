/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/workload/tables.h"
#include "lib/state.h"

int state_rows_open(struct state_rows *r, const struct embfuse_model *m, int32_t table, int array,
                    struct embfuse_error *why) {
    const struct table_shape *shape = &m->shapes[table];
    *r = (struct state_rows){.place = m->place,
                             .array = m->tables[table].array[array],
                             .row_bytes = table_array_width(shape, array) *
                                          dtype_bytes(table_array_type(shape, array)),
                             .rows = shape->rows};
    const bool apart = r->place == ON_DEVICE && r->array.stride != r->row_bytes;
    const int64_t each = apart ? r->array.stride : r->row_bytes;
    r->at_once = each < STATE_CHUNK ? STATE_CHUNK / each : 1;
    if (r->at_once > r->rows) r->at_once = r->rows;
    r->buffer = malloc((size_t)(r->at_once * r->row_bytes));
    r->span = apart ? malloc((size_t)(r->at_once * each)) : NULL;
    return r->buffer && (r->span || !apart)
               ? 0
               : said(why, EMBFUSE_NO_MEMORY, "table %d: out of memory for a buffer", table);
}

void state_rows_close(struct state_rows *r) {
    free(r->buffer);
    free(r->span);
}

/* Copies the buffer's rows to memory where rows are `stride` bytes apart, or from there. */
static void copy(const struct state_rows *r, char *at, int64_t count, bool put) {
    const int64_t each = r->array.stride == r->row_bytes ? count * r->row_bytes : r->row_bytes;
    for (int64_t i = 0; i * each < count * r->row_bytes; i++) {
        char *there = at + i * r->array.stride, *here = r->buffer + i * each;
        memcpy(put ? there : here, put ? here : there, (size_t)each);
    }
}

static int64_t span_bytes(const struct state_rows *r, int64_t count) {
    return (count - 1) * r->array.stride + r->row_bytes;
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
