/* SPDX-License-Identifier: MIT
 *
 * A load reads the file twice: once to verify it, before any array changes, and once into the arrays. If the file
 * changes in between, the checksums of the second time show it.
 */
#include "extras/library/state.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/rules.h"

/* A chunk of rows. */
struct chunk {
    struct array array; /* data NULL: there is none */
    int64_t bytes;      /* of a row */
    char *buffer;       /* rows, one after another */
    char *span;         /* of an array on a device: rows and what is between them */
};

/* Copies rows from the array to the buffer, or back (put). What lies between rows keeps its bits. */
static int move(const struct chunk *c, int64_t first, int64_t count, bool put,
                struct embfuse_error *why) {
    const int64_t stride = c->array.stride;
    const bool close = stride == c->bytes;
    const int64_t each = close ? count * c->bytes : c->bytes, pieces = close ? 1 : count;
    const size_t all = (size_t)((count - 1) * stride + c->bytes);
    char *at = array_row(&c->array, first), *span = c->span ? c->span : at;
    struct error err;
    if (c->span && !(put && close) && device_get(span, at, all, &err))
        return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    for (int64_t i = 0; i < pieces; i++) {
        char *there = span + i * stride, *here = c->buffer + i * each;
        memcpy(put ? there : here, put ? here : there, (size_t)each);
    }
    if (c->span && put && device_put(at, span, all, &err))
        return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    return 0;
}

int state_array(const struct state_file *f, struct state *s, int32_t t, int a, enum backend place,
                const struct array *array) {
    const int64_t rows = s->shapes[t].rows, bytes = state_row_bytes(&s->shapes[t], a);
    const int64_t each = array && array->stride > bytes ? array->stride : bytes;
    int64_t at_once = each < STATE_CHUNK ? STATE_CHUNK / each : 1;
    if (at_once > rows) at_once = rows;
    struct chunk c = {.bytes = bytes, .buffer = malloc((size_t)(at_once * bytes))};
    if (array) c.array = *array;
    if (array && place == ON_DEVICE) c.span = malloc((size_t)(at_once * each));
    int status = c.buffer && (c.span || !array || place == ON_HOST)
                     ? 0
                     : said(f->why, EMBFUSE_NO_MEMORY, "out of memory for a buffer of rows");
    for (int64_t row = 0; status == 0 && row < rows; row += at_once) {
        const int64_t count = rows - row < at_once ? rows - row : at_once;
        if (f->saves) status = move(&c, row, count, false, f->why);
        if (status == 0) status = state_rows(f, s, t, a, row, count, c.buffer);
        if (status == 0 && array && !f->saves) status = move(&c, row, count, true, f->why);
    }
    free(c.buffer);
    free(c.span);
    return status;
}

static int arrays(const struct embfuse_model *m, const struct state_file *f, struct state *s,
                  bool verify) {
    int status = 0;
    for (int32_t t = 0; t < m->num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (status == 0 && s->tables[t].array[a].bytes)
                status = state_array(f, s, t, a, m->place, verify ? NULL : &m->tables[t].array[a]);
    return status;
}

int embfuse_save(const struct embfuse_model *m, const char *path, struct embfuse_error *why) {
    IN_CALL(m, why);
    struct state s = {.shapes = m->shapes, .num_tables = m->num_tables, .seed = m->rounding_seed};
    struct state_file f;
    int status = path ? check_bound(m, true, why) : said(why, EMBFUSE_INVALID, "path is NULL");
    if (status == 0) status = state_tables(&s, why);
    if (status) return status;
    for (int32_t t = 0; t < s.num_tables; t++) {
        s.tables[t].rule = m->rules[t];
        s.tables[t].steps = m->steps[t].number;
    }
    status = state_create(&f, path, &s, why);
    if (status == 0) status = arrays(m, &f, &s, false);
    return state_close(&f, &s, status);
}

static int take(struct embfuse_model *m, struct state_file *f, struct state *s) {
    struct embfuse_error *why = f->why, text;
    f->why = &text;
    const int status = arrays(m, f, s, false);
    if (status)
        return said(why, status,
                    "%.350s; it failed after it had been verified: load again, the arrays are half "
                    "read",
                    text.text);
    set_rounding_seed(m, s->seed);
    for (int32_t t = 0; t < m->num_tables; t++) {
        m->rules[t] = s->tables[t].rule;
        m->shapes[t].adjusts = rule_adjusts(&m->rules[t]);
        m->steps[t].number = s->tables[t].steps;
    }
    return 0;
}

int embfuse_load(struct embfuse_model *m, const char *path, struct embfuse_error *why) {
    IN_CALL(m, why);
    struct state s = {.shapes = m->shapes, .num_tables = m->num_tables};
    struct state_file f;
    int status = path ? check_bound(m, true, why) : said(why, EMBFUSE_INVALID, "path is NULL");
    if (status) return status;
    status = state_open(&f, path, &s, why);
    if (status == 0) status = arrays(m, &f, &s, true);
    if (status == 0) status = take(m, &f, &s);
    return state_close(&f, &s, status);
}
