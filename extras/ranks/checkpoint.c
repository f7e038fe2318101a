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

struct finding {
    struct checkpoint *to;
    const char *directory;
    const struct table_shape *shapes;
    int32_t num_tables;
};

static int verify(void *ctx, int64_t number, struct embfuse_error *why) {
    const struct finding *f = ctx;
    struct checkpoint *c = f->to;
    int status = state_path(c->folder, f->directory, number, "", why);
    if (status == 0) status = state_manifest(c->folder, &c->state, why);
    if (status == 0) status = state_fits(c->folder, &c->state, f->shapes, f->num_tables, why);
    for (int32_t t = 0; status == 0 && t < f->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&f->shapes[t], a))
                status = state_verify(c->folder, &c->state, t, a, NULL, why);
    if (status) checkpoint_close(c);
    return status;
}

int checkpoint_open(struct checkpoint *c, struct transport *t, const char *directory,
                    const struct table_shape *shapes, int32_t num_tables, struct error *err) {
    struct embfuse_error why;
    struct finding f = {c, directory, shapes, num_tables};
    int64_t *numbers = NULL;
    int32_t count;
    int status = 0;
    transport_phase(t, "verifying a saved state");
    t->channel = CHANNEL_CONTROL;
    memset(c, 0, sizeof *c);
    if (t->rank == 0) {
        status = state_list_path(directory, &numbers, &count, &why);
        if (status == 0)
            status = state_newest(directory, numbers, count, verify, &f, &c->loaded, &why);
        free(numbers);
    }
    if (transport_agree(t, failed(status, &why, err), err) ||
        transport_broadcast(t, 0, &c->loaded, sizeof c->loaded, err))
        return -1;
    if (t->rank) {
        status = state_path(c->folder, directory, c->loaded.number, "", &why);
        if (status == 0) status = state_manifest(c->folder, &c->state, &why);
    }
    return transport_agree(t, failed(status, &why, err), err);
}

void checkpoint_close(struct checkpoint *c) {
    free(c->state.tables);
    c->state = (struct state){0};
}

/* Where the part of an array that a shard has lies in its file. bytes 0: the shard has none. */
static struct state_part part_of(const struct table_shape *whole, const struct shard *shard,
                                 int a) {
    const int64_t element = dtype_bytes(table_array_type(whole, a));
    struct state_part part = state_whole(whole, a);
    part.first = shard->row;
    part.step = 1 + shard->row_skip;
    if (a == TABLE_ROW_STATE || part.bytes == 0) return part;
    part.skip = shard->column * element;
    part.bytes = shard->columns * element;
    return part;
}

static int read_shard(const struct checkpoint *c, const struct shard *shard, struct table *own,
                      struct embfuse_error *why) {
    int status = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
        const struct state_part part = part_of(&c->state.tables[shard->table].shape, shard, a);
        struct state_rows r;
        if (part.bytes == 0) continue;
        status = state_rows_open(&r, ON_HOST, &own->array[a], &part, shard->rows, why);
        if (status == 0) status = state_read(c->folder, &c->state, shard->table, a, &r, NULL, why);
        state_rows_close(&r);
    }
    return status;
}

int checkpoint_read(const struct checkpoint *c, const struct sharding *s, int rank,
                    const struct table_shape *local, struct table_set *own, struct error *err) {
    const struct shard *shards = &s->shards[s->first[rank]];
    const int32_t count = s->first[rank + 1] - s->first[rank];
    struct embfuse_error why;
    int status = count ? tables_create(own, local, count, 0, err) : 0;
    for (int32_t i = 0; status == 0 && i < count; i++)
        status = failed(read_shard(c, &shards[i], &own->tables[i], &why), &why, err);
    return status;
}

/* --- save */

struct saving {
    struct place *place;
    struct state *state;
    struct state_save to;
    struct embfuse_error why;
};

/* The files of a table while they are written. */
struct files {
    struct state_out out[TABLE_ARRAYS]; /* fd -1: the table has no such array */
    XXH3_state_t *sum[TABLE_ARRAYS];
    void *memory[TABLE_ARRAYS]; /* of a chunk of rows */
};

/* Gathers rows begin .. end-1, and writes them. */
static int write_chunk(struct saving *x, int32_t t, int64_t begin, int64_t end, struct files *f) {
    const struct table_shape *shape = &x->state->tables[t].shape;
    struct table chunk = table_in(shape, f->memory);
    struct error err;
    if (x->place->ops->get_rows(x->place, t, begin, end, &chunk, &err))
        return said(&x->why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    int status = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
        struct state_part part = state_whole(shape, a);
        struct state_rows rows;
        if (f->out[a].fd < 0) continue;
        part.first = begin;
        status = state_rows_open(&rows, ON_HOST, &chunk.array[a], &part, end - begin, &x->why);
        if (status == 0) status = state_out_rows(&x->to, &f->out[a], &rows, f->sum[a]);
        state_rows_close(&rows);
    }
    return status;
}

static int write_table(struct saving *x, int32_t t) {
    struct state_table *table = &x->state->tables[t];
    const struct table_shape *shape = &table->shape;
    struct files f;
    int64_t row_bytes = 1;
    int status = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) row_bytes += table_memory_stride(shape, a);
    const int64_t at_once = min64(max64(STATE_CHUNK / row_bytes, 1), shape->rows);
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        f.out[a].fd = -1;
        f.sum[a] = must_have(XXH3_createState());
        f.memory[a] = must_have(array_alloc(at_once * table_memory_stride(shape, a), 1));
        if (status == 0 && table_array_width(shape, a))
            status = state_out_open(&x->to, x->state, t, a, f.sum[a], &f.out[a]);
    }
    for (int64_t row = 0; status == 0 && row < shape->rows; row += at_once)
        status = write_chunk(x, t, row, min64(row + at_once, shape->rows), &f);
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        if (f.out[a].fd >= 0)
            table->file[a] =
                (struct state_file){state_file_bytes(shape, a), XXH3_64bits_digest(f.sum[a])};
        status = state_out_end(&x->to, &f.out[a], status);
        XXH3_freeState(f.sum[a]);
        free(f.memory[a]);
    }
    return status;
}

int checkpoint_save(struct place *p, const char *directory, struct state *state, int64_t *number,
                    struct error *err) {
    struct table_shape *shapes = must_have(calloc((size_t)state->num_tables, sizeof *shapes));
    struct saving x = {.place = p, .state = state};
    for (int32_t t = 0; t < state->num_tables; t++) shapes[t] = state->tables[t].shape;
    int status = state_save_begin(&x.to, directory, shapes, state->num_tables, &x.why);
    for (int32_t t = 0; status == 0 && t < state->num_tables; t++) status = write_table(&x, t);
    status = state_save_end(&x.to, state, status);
    *number = x.to.number;
    free(shapes);
    return failed(status, &x.why, err);
}
