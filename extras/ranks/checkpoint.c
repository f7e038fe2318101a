/* SPDX-License-Identifier: MIT */
#include "extras/ranks/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

/* A status of the library as one of ranks. */
static int failed(int status, const struct embfuse_error *why, struct error *err) {
    if (status == 0) return 0;
    return status == EMBFUSE_NO_MEMORY ? fail_memory(err, "%s", why->text)
                                       : fail(err, "%s", why->text);
}

/* --- load */

static int open_file(struct checkpoint *c, const char *path, bool verify) {
    struct state *s = &c->state;
    int status = state_open(&c->file, path, s, &c->why);
    for (int32_t t = 0; verify && t < s->num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (status == 0 && s->tables[t].array[a].bytes)
                status = state_array(&c->file, s, t, a, ON_HOST, NULL);
    return status;
}

int checkpoint_open(struct checkpoint *c, struct transport *t, const char *path,
                    const struct table_shape *shapes, int32_t num_tables, struct error *err) {
    const size_t bytes = (size_t)num_tables * sizeof *c->state.tables;
    uint64_t sum = 0, own = 0;
    int status = 0;
    transport_phase(t, "verifying a saved state");
    t->channel = CHANNEL_CONTROL;
    *c = (struct checkpoint){.state = {.shapes = shapes, .num_tables = num_tables},
                             .file = {.fd = -1, .folder = -1}};
    if (t->rank == 0) status = open_file(c, path, true);
    if (transport_agree(t, failed(status, &c->why, err), err)) return -1;
    if (t->rank) status = open_file(c, path, false);
    if (status == 0) sum = own = XXH3_64bits(c->state.tables, bytes);
    if (transport_broadcast(t, 0, &sum, sizeof sum, err)) return -1;
    status = status       ? failed(status, &c->why, err)
             : sum != own ? fail(err, "%.300s: it was replaced meanwhile; load again", path)
                          : 0;
    return transport_agree(t, status, err);
}

void checkpoint_close(struct checkpoint *c) {
    if (c->state.shapes) state_close(&c->file, &c->state, 0);
    *c = (struct checkpoint){.state = {.shapes = NULL}};
}

/* Reads the part of an array that a shard has, with what other shards have between its rows. */
static int read_part(const struct checkpoint *c, const struct shard *shard, int a,
                     const struct array *to) {
    const struct table_shape *whole = &c->state.shapes[shard->table];
    const int64_t row_bytes = state_row_bytes(whole, a), step = (1 + shard->row_skip) * row_bytes,
                  element = dtype_bytes(table_array_type(whole, a)),
                  begin = c->state.begin + c->state.tables[shard->table].array[a].at +
                          shard->row * row_bytes,
                  skip = a == TABLE_ROW_STATE ? 0 : shard->column * element,
                  bytes = a == TABLE_ROW_STATE ? row_bytes : shard->columns * element,
                  at_once = max64(STATE_CHUNK / step, 1);
    char *buffer = must_have(malloc((size_t)(at_once * step)));
    int status = 0;
    for (int64_t row = 0; status == 0 && row < shard->rows; row += at_once) {
        const int64_t count = min64(at_once, shard->rows - row);
        status = state_bytes(&c->file, buffer, (count - 1) * step + row_bytes, begin + row * step);
        for (int64_t i = 0; status == 0 && i < count; i++)
            memcpy(array_row(to, row + i), buffer + i * step + skip, (size_t)bytes);
    }
    free(buffer);
    return status;
}

int checkpoint_read(const struct checkpoint *c, const struct sharding *s, int rank,
                    const struct table_shape *local, struct table_set *own, struct error *err) {
    const struct shard *shards = &s->shards[s->first[rank]];
    const int32_t count = s->first[rank + 1] - s->first[rank];
    int status = count ? tables_create(own, local, count, 0, err) : 0;
    for (int32_t i = 0; i < count; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (status == 0 && c->state.tables[shards[i].table].array[a].bytes)
                status =
                    failed(read_part(c, &shards[i], a, &own->tables[i].array[a]), &c->why, err);
    return status;
}

/* --- save */

struct saving {
    struct place *place;
    struct state *state;
    struct state_file file;
    struct embfuse_error why;
};

/* Gathers rows begin .. end-1, and writes them. memory: of such a chunk; rows: of an array's rows in one piece. */
static int write_chunk(struct saving *x, int32_t t, int64_t begin, int64_t end,
                       void *const memory[TABLE_ARRAYS], char *rows) {
    const struct table_shape *shape = &x->state->shapes[t];
    struct table chunk = table_in(shape, memory);
    struct error err;
    if (x->place->ops->get_rows(x->place, t, begin, end, &chunk, &err))
        return said(&x->why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    int status = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
        const int64_t bytes = state_row_bytes(shape, a);
        if (bytes == 0) continue;
        for (int64_t i = 0; i < end - begin; i++)
            memcpy(rows + i * bytes, array_row(&chunk.array[a], i), (size_t)bytes);
        status = state_rows(&x->file, x->state, t, a, begin, end - begin, rows);
    }
    return status;
}

static int write_table(struct saving *x, int32_t t) {
    const struct table_shape *shape = &x->state->shapes[t];
    void *memory[TABLE_ARRAYS];
    int64_t row_bytes = 1;
    int status = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) row_bytes += table_memory_stride(shape, a);
    const int64_t at_once = min64(max64(STATE_CHUNK / row_bytes, 1), shape->rows);
    for (int a = 0; a < TABLE_ARRAYS; a++)
        memory[a] = must_have(array_alloc(at_once * table_memory_stride(shape, a), 1));
    char *rows = must_have(malloc((size_t)(at_once * row_bytes)));
    for (int64_t row = 0; status == 0 && row < shape->rows; row += at_once)
        status = write_chunk(x, t, row, min64(row + at_once, shape->rows), memory, rows);
    for (int a = 0; a < TABLE_ARRAYS; a++) free(memory[a]);
    free(rows);
    return status;
}

int checkpoint_save(struct place *p, const char *path, struct state *state, struct error *err) {
    struct saving x = {.place = p, .state = state};
    int status = state_create(&x.file, path, state, &x.why);
    for (int32_t t = 0; status == 0 && t < state->num_tables; t++) status = write_table(&x, t);
    return failed(state_close(&x.file, state, status), &x.why, err);
}
