/* SPDX-License-Identifier: MIT */
#include "extras/ranks/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/group.h"

/* A state that is saved. */
struct saving {
    struct transport *transport;
    const struct table_shape *shapes; /* whole, with their places in memory */
    struct state state;
    struct state_save to;
    struct embfuse_error why;
};

/* A status of the library as one of ranks. */
static int checkpoint_failed(int status, const struct embfuse_error *why, struct error *err) {
    if (status == 0) return 0;
    return status == EMBFUSE_NO_MEMORY ? fail_memory(err, "%s", why->text)
                                       : fail(err, "%s", why->text);
}

/* Where the part of an array that a shard has lies in its file. bytes 0: the shard has none. */
static struct state_part part_of(const struct table_shape *shapes, const struct shard *shard,
                                 int a) {
    const struct table_shape *whole = &shapes[shard->table];
    const int64_t element = dtype_bytes(table_array_type(whole, a));
    struct state_part part = state_whole(whole, a);
    part.first = shard->row;
    part.step = 1 + shard->row_skip;
    if (a == TABLE_ROW_STATE || part.bytes == 0) return part;
    part.skip = shard->column * element;
    part.bytes = shard->columns * element;
    return part;
}

/* --- files that are read whole, each by the rank with the fewest bytes so far */

typedef int on_file(void *ctx, const struct state *s, int32_t table, int array,
                    struct embfuse_error *why);

static int own_files(const struct transport *t, const struct state *s, on_file *each, void *ctx,
                     struct embfuse_error *why) {
    int64_t *load = must_have(calloc((size_t)t->ranks, sizeof *load));
    int status = 0;
    for (int32_t i = 0; i < s->num_tables; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            int least = 0;
            if (!table_array_width(&s->tables[i].shape, a)) continue;
            for (int r = 1; r < t->ranks; r++)
                if (load[r] < load[least]) least = r;
            load[least] += s->tables[i].file[a].bytes;
            if (least == t->rank && status == 0) status = each(ctx, s, i, a, why);
        }
    free(load);
    return status;
}

/* --- load */

struct finding {
    struct checkpoint *to;
    struct transport *transport;
    const char *directory;
    const struct table_shape *shapes;
    int32_t num_tables;
};

static int verify_file(void *ctx, const struct state *s, int32_t table, int array,
                       struct embfuse_error *why) {
    return state_verify(ctx, s, table, array, NULL, why);
}

/* Collective: all ranks get the status of all of them, damage only if there is nothing else. */
static int merge(struct transport *t, int status, struct embfuse_error *why) {
    struct error err;
    double worst = status == EMBFUSE_FILE_ERROR ? 0.5 : status;
    if (status) fail(&err, "%s", why->text);
    if (transport_most(t, &worst, 1, &err))
        return said(why, EMBFUSE_INVALID, "%s", err.text); /* the run is over */
    if (transport_agree(t, status, &err) == 0) return 0;
    return said(why, worst < 1 ? EMBFUSE_FILE_ERROR : (int)worst, "%s", err.text);
}

static int verify(void *ctx, int64_t number, struct embfuse_error *why) {
    const struct finding *f = ctx;
    struct checkpoint *c = f->to;
    int status = state_path(c->folder, f->directory, number, "", why);
    if (status == 0) status = state_manifest(c->folder, &c->state, why);
    if (status == 0) status = state_fits(c->folder, &c->state, f->shapes, f->num_tables, why);
    if (status == 0) status = own_files(f->transport, &c->state, verify_file, c->folder, why);
    status = merge(f->transport, status, why);
    if (status) checkpoint_close(c);
    return status;
}

int checkpoint_open(struct checkpoint *c, struct transport *t, const char *directory,
                    const struct table_shape *shapes, int32_t num_tables, struct error *err) {
    struct embfuse_error why;
    struct finding f = {c, t, directory, shapes, num_tables};
    int64_t *numbers = NULL;
    int32_t count = 0;
    int status = 0;
    transport_phase(t, "verifying a saved state");
    t->channel = CHANNEL_CONTROL;
    memset(c, 0, sizeof *c);
    if (t->rank == 0)
        status = checkpoint_failed(state_list_path(directory, &numbers, &count, &why), &why, err);
    status =
        transport_agree(t, status, err) || transport_broadcast(t, 0, &count, sizeof count, err);
    const size_t bytes = (size_t)count * sizeof *numbers;
    if (t->rank) numbers = must_have(malloc(bytes + 1));
    if (status == 0) status = transport_broadcast(t, 0, numbers, bytes, err);
    if (status == 0)
        status = checkpoint_failed(
            state_newest(directory, numbers, count, verify, &f, &c->loaded, &why), &why, err);
    free(numbers);
    return status ? -1 : 0;
}

void checkpoint_close(struct checkpoint *c) {
    free(c->state.tables);
    c->state = (struct state){0};
}

static int read_shard(const struct checkpoint *c, const struct shard *shard,
                      const struct table_shape *shapes, struct table *own,
                      struct embfuse_error *why) {
    int status = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
        const struct state_part part = part_of(shapes, shard, a);
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
    struct table_shape *shapes = must_have(calloc((size_t)s->num_tables, sizeof *shapes));
    struct embfuse_error why;
    int status = 0;
    for (int32_t t = 0; t < s->num_tables; t++) shapes[t] = c->state.tables[t].shape;
    if (count && tables_create(own, local, count, 0, err)) status = -1;
    for (int32_t i = 0; status == 0 && i < count; i++)
        status =
            checkpoint_failed(read_shard(c, &shards[i], shapes, &own->tables[i], &why), &why, err);
    free(shapes);
    return status;
}

/* --- save */

/* Of tables that every rank has, different ranks write. */
static bool writes(const struct transport *t, const struct sharding *s, const struct shard *shard) {
    return !sharding_copies(s->kind[shard->table]) || shard->table % t->ranks == t->rank;
}

/* Writes rows first .. first+count-1 of a shard to the files out[TABLE_ARRAYS] that are open. */
static int write_chunk(struct saving *x, const struct shard *shard, int64_t first, int64_t count,
                       const struct table *chunk, const struct state_out *out) {
    int status = 0;
    for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
        struct state_part part = part_of(x->shapes, shard, a);
        struct state_rows rows;
        if (out[a].fd < 0) continue;
        part.first += first * part.step;
        status = state_rows_open(&rows, ON_HOST, &chunk->array[a], &part, count, &x->why);
        if (status == 0) status = state_out_rows(&x->to, &out[a], &rows, NULL);
        state_rows_close(&rows);
    }
    return status;
}

/* The rows of a shard, a chunk at a time: table `number` of a place. */
static int write_rows(struct saving *x, const struct shard *shard, const struct table_shape *local,
                      struct place *p, int32_t number, const struct state_out *out) {
    int64_t each = 1;
    void *memory[TABLE_ARRAYS];
    struct error err;
    int status = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) each += table_memory_stride(local, a);
    const int64_t most = each < STATE_CHUNK ? STATE_CHUNK / each : 1;
    const int64_t at_once = most < shard->rows ? most : shard->rows;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        memory[a] = must_have(array_alloc(at_once * table_memory_stride(local, a), 1));
    struct table chunk = table_in(local, memory);
    for (int64_t row = 0; status == 0 && row < shard->rows; row += at_once) {
        const int64_t left = shard->rows - row, count = left < at_once ? left : at_once;
        if (p->ops->get_rows(p, number, row, row + count, &chunk, &err))
            status = said(&x->why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
        if (status == 0) status = write_chunk(x, shard, row, count, &chunk, out);
    }
    for (int a = 0; a < TABLE_ARRAYS; a++) free(memory[a]);
    return status;
}

/* A row's own states belong to the rank that has its first column. */
static int write_shard(struct saving *x, const struct group *g, int32_t number) {
    const struct shard *shard = &g->sharding.shards[number];
    const struct table_shape local = sharding_shape(&g->sharding, shard, x->shapes);
    struct state_out out[TABLE_ARRAYS];
    int status = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const bool has = table_array_width(&x->shapes[shard->table], a) &&
                         (a != TABLE_ROW_STATE || shard->column == 0);
        out[a].fd = -1;
        if (has && status == 0)
            status = state_out_open(&x->to, &x->state, shard->table, a, false, NULL, &out[a]);
    }
    if (status == 0)
        status = write_rows(x, shard, &local, g->inner,
                            number - g->sharding.first[x->transport->rank], out);
    for (int a = 0; a < TABLE_ARRAYS; a++) status = state_out_end(&x->to, &out[a], status);
    return status;
}

static int write_shards(struct saving *x, const struct group *groups, int num_groups) {
    const int me = x->transport->rank;
    int status = 0;
    for (int g = 0; g < num_groups; g++) {
        const struct sharding *s = &groups[g].sharding;
        for (int32_t i = s->first[me]; status == 0 && i < s->first[me + 1]; i++)
            if (writes(x->transport, s, &s->shards[i])) status = write_shard(x, &groups[g], i);
    }
    return status;
}

/* Rank 0 makes the folder and the files; the others find them. Collective. */
static int make_files(struct saving *x, const char *directory, struct error *err) {
    struct transport *t = x->transport;
    int status = 0;
    transport_phase(t, "saving: creating files");
    if (t->rank == 0)
        status = state_save_begin(&x->to, directory, x->shapes, x->state.num_tables, &x->why);
    for (int32_t i = 0; i < x->state.num_tables; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct state_out out = {.fd = -1};
            x->state.tables[i].file[a].bytes = state_file_bytes(&x->shapes[i], a);
            if (t->rank || status || !table_array_width(&x->shapes[i], a)) continue;
            status = state_out_open(&x->to, &x->state, i, a, true, NULL, &out);
            status = state_out_end(&x->to, &out, status);
        }
    if (transport_agree(t, checkpoint_failed(status, &x->why, err), err) ||
        transport_broadcast(t, 0, &x->to.number, sizeof x->to.number, err))
        return -1;
    if (t->rank) status = state_save_join(&x->to, directory, x->to.number, &x->why);
    return transport_agree(t, checkpoint_failed(status, &x->why, err), err);
}

static int sum_file(void *ctx, const struct state *s, int32_t table, int array,
                    struct embfuse_error *why) {
    return state_read(ctx, s, table, array, NULL, &s->tables[table].file[array].xxh3, why);
}

/* All ranks learn the checksums of all files. Collective. */
static int sum_files(struct saving *x, struct error *err) {
    struct transport *t = x->transport;
    const size_t count = (size_t)x->state.num_tables * TABLE_ARRAYS;
    char folder[PATH_MAX];
    transport_phase(t, "saving: checksums");
    int status = state_path(folder, x->to.path, x->to.number, STATE_PART, &x->why);
    if (status == 0) status = own_files(t, &x->state, sum_file, folder, &x->why);
    if (transport_agree(t, checkpoint_failed(status, &x->why, err), err)) return -1;
    uint64_t *own = must_have(calloc(count, sizeof *own));
    uint64_t *all = must_have(calloc(count * (size_t)t->ranks, sizeof *all));
    for (size_t i = 0; i < count; i++)
        own[i] = x->state.tables[i / TABLE_ARRAYS].file[i % TABLE_ARRAYS].xxh3;
    status = transport_all_gather(t, own, count * sizeof *own, all, err);
    /* One rank has summed each file; in all others its sum is 0. */
    for (size_t i = 0; i < count; i++)
        for (int r = 0; r < t->ranks; r++)
            if (r != t->rank)
                x->state.tables[i / TABLE_ARRAYS].file[i % TABLE_ARRAYS].xxh3 |=
                    all[(size_t)r * count + i];
    free(own);
    free(all);
    return status;
}

static int save(struct saving *x, const struct group *groups, int num_groups, const char *directory,
                struct error *err) {
    struct transport *t = x->transport;
    if (make_files(x, directory, err)) return -1;
    transport_phase(t, "saving: writing rows");
    int status = write_shards(x, groups, num_groups);
    status = checkpoint_failed(status, &x->why, err);
    return transport_agree(t, status, err) ? -1 : sum_files(x, err);
}

static int commit(struct saving *x, int64_t *number, struct error *err) {
    struct transport *t = x->transport;
    int status = 0;
    transport_phase(t, "saving: the commit");
    if (t->rank == 0) {
        status = checkpoint_failed(state_save_end(&x->to, &x->state, 0), &x->why, err);
        *number = x->to.number;
    }
    return transport_agree(t, status, err);
}

int checkpoint_save(struct transport *t, const struct group *groups, int num_groups,
                    const struct table_shape *shapes, int32_t num_tables, const char *directory,
                    const struct state *state, int64_t *number, struct error *err) {
    const size_t bytes = (size_t)num_tables * sizeof *state->tables;
    struct saving x = {.transport = t,
                       .shapes = shapes,
                       .state = {.num_tables = num_tables},
                       .to = {.directory = -1, .part = -1}};
    char path[PATH_MAX] = "";
    int status = 0;
    t->channel = CHANNEL_CONTROL;
    x.state.tables = must_have(calloc(1, bytes));
    if (state) {
        x.state.seed = state->seed;
        memcpy(x.state.tables, state->tables, bytes);
        snprintf(path, sizeof path, "%s", directory);
        if (strlen(directory) >= sizeof path) status = fail(err, "%.60s...: too long", directory);
    }
    if (transport_agree(t, status, err) || transport_broadcast(t, 0, path, sizeof path, err) ||
        transport_broadcast(t, 0, x.state.tables, bytes, err)) {
        free(x.state.tables);
        return -1;
    }
    status = save(&x, groups, num_groups, path, err);
    if (status == 0)
        status = commit(&x, number, err);
    else if (t->rank == 0) /* takes away what there is */
        state_save_end(&x.to, &x.state, EMBFUSE_FILE_ERROR);
    state_save_leave(&x.to);
    free(x.state.tables);
    return status;
}
