/* SPDX-License-Identifier: MIT
 *
 * Saved states of tables whose columns are dealt out one by one. A file has whole rows, so ranks put them together
 * before they write: in each round every rank with columns gets the columns of a block of rows from all others, and
 * writes it.
 */
#include "ranks/checkpoint_parts.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "ranks/deal.h"

/* Rows of a block, so that its arrays take STATE_CHUNK bytes or one row. */
static int64_t rows_of_block(const struct table_shape *whole) {
    int64_t each = 1;
    for (int a = 0; a < TABLE_ARRAYS; a++) each += table_memory_stride(whole, a);
    return max64(1, STATE_CHUNK / each);
}

static size_t table_bytes(const struct table_shape *shape, int64_t rows) {
    size_t bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) bytes += (size_t)(rows * table_memory_stride(shape, a));
    return bytes;
}

/* A table of the group. */
struct columns_table {
    const struct sharding *sharding;
    const struct table_shape *whole;
    int32_t table, shard; /* shard: of this rank; -1: none */
    int owners;           /* ranks 0 .. owners-1 have columns */
    int64_t block;        /* rows */
};

static struct columns_table columns_table(const struct saving *x, const struct sharding *s,
                                          int32_t table) {
    const int32_t *part = &s->part[(int64_t)table * s->ranks];
    const struct table_shape *whole = &x->shapes[table];
    return (struct columns_table){s,
                                  whole,
                                  table,
                                  part[x->transport->rank],
                                  sharding_column_ranks(s->ranks),
                                  rows_of_block(whole)};
}

static const struct shard *shard_of_rank(const struct columns_table *c, int rank) {
    return &c->sharding->shards[c->sharding->part[(int64_t)c->table * c->sharding->ranks + rank]];
}

/* The rows of block `number`. */
static int64_t block_rows(const struct columns_table *c, int64_t number) {
    return max64(0, min64(c->block, c->whole->rows - number * c->block));
}

/* Own columns of the block of every writer. */
static int take_blocks(struct saving *x, const struct columns_table *c, const struct group *g,
                       int64_t round, const struct parts *out, char *send) {
    const struct shard *own = &c->sharding->shards[c->shard];
    const struct table_shape local = sharding_shape(c->sharding, own, x->shapes);
    struct error err;
    for (int w = 0; w < c->owners; w++) {
        const int64_t number = round * c->owners + w, rows = block_rows(c, number);
        struct table to = deal_rows_in_message(&local, rows, send + out->at[w]);
        const int64_t begin = number * c->block;
        if (rows &&
            g->inner->ops->get_rows(g->inner, c->shard - c->sharding->first[x->transport->rank],
                                    begin, begin + rows, &to, &err))
            return said(&x->why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    }
    return 0;
}

/* Puts what came of one block together, and writes it. */
static int write_block(struct saving *x, const struct columns_table *c, int64_t number,
                       const struct parts *in, char *receive, char *room,
                       const struct state_out *out) {
    const int64_t rows = block_rows(c, number), begin = number * c->block;
    const struct shard all = {.table = c->table, .rows = c->whole->rows, .columns = c->whole->dim};
    struct table block = deal_rows_in_message(c->whole, rows, room);
    if (rows == 0) return 0;
    for (int r = 0; r < c->owners; r++) {
        const struct shard *part = shard_of_rank(c, r);
        const struct table_shape local = sharding_shape(c->sharding, part, x->shapes);
        struct table came = deal_rows_in_message(&local, rows, receive + in->at[r]);
        if (!deal_move(c->sharding, part, &local, r ? DEAL_PUT_AGAIN : DEAL_PUT, &block, begin,
                       begin, rows, &came))
            return said(&x->why, EMBFUSE_DEVICE_ERROR, "rank %d has other rows of table %d", r,
                        (int)c->table);
    }
    return checkpoint_write(x, &all, begin, rows, &block, out);
}

/* All blocks of a table. */
static int save_rounds(struct saving *x, const struct columns_table *c, const struct group *g,
                       const struct state_out *files, int *status, struct error *err) {
    struct transport *t = x->transport;
    const int64_t blocks = (c->whole->rows + c->block - 1) / c->block;
    struct parts out = parts_make(t->ranks), in = parts_make(t->ranks);
    size_t most = 0;
    for (int r = 0; r < c->owners; r++) {
        const struct table_shape local =
            sharding_shape(c->sharding, shard_of_rank(c, r), x->shapes);
        const size_t bytes = table_bytes(&local, c->block) + KERNEL_ALIGN;
        most = bytes > most ? bytes : most;
    }
    char *send = must_have(array_alloc(c->owners, most)),
         *receive = must_have(array_alloc(c->owners, most)),
         *room = must_have(array_alloc(1, table_bytes(c->whole, c->block)));
    int broken = 0;
    for (int64_t round = 0; !broken && round * c->owners < blocks; round++) {
        for (int r = 0; r < c->owners && c->shard >= 0; r++) {
            const struct table_shape own = sharding_shape(
                                         c->sharding, &c->sharding->shards[c->shard], x->shapes),
                                     other = sharding_shape(c->sharding, shard_of_rank(c, r),
                                                            x->shapes);
            out.bytes[r] = table_bytes(&own, block_rows(c, round * c->owners + r));
            in.bytes[r] = table_bytes(&other, block_rows(c, round * c->owners + t->rank));
        }
        parts_lay_out(&out, t->ranks, KERNEL_ALIGN);
        parts_lay_out(&in, t->ranks, KERNEL_ALIGN);
        if (*status == 0 && c->shard >= 0) *status = take_blocks(x, c, g, round, &out, send);
        broken = transport_exchange(t, send, &out, receive, &in, err);
        if (*status == 0 && !broken && c->shard >= 0)
            *status = write_block(x, c, round * c->owners + t->rank, &in, receive, room, files);
    }
    free(send);
    free(receive);
    free(room);
    parts_free(&out);
    parts_free(&in);
    return broken;
}

int checkpoint_save_columns(struct saving *x, const struct group *g, int *status,
                            struct error *err) {
    const struct sharding *s = &g->sharding;
    int broken = 0;
    for (int32_t i = 0; !broken && i < s->num_tables; i++) {
        struct state_out files[TABLE_ARRAYS];
        if (s->kind[i] != SHARD_COLUMN_MODULO || s->part[(int64_t)i * s->ranks] < 0) continue;
        const struct columns_table c = columns_table(x, s, i);
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            files[a].fd = -1;
            if (c.shard >= 0 && *status == 0 && table_array_width(c.whole, a))
                *status = state_out_open(&x->to, &x->state, i, a, false, NULL, &files[a]);
        }
        broken = save_rounds(x, &c, g, files, status, err);
        for (int a = 0; a < TABLE_ARRAYS; a++) *status = state_out_end(&x->to, &files[a], *status);
    }
    return broken;
}

int checkpoint_read_columns(const struct checkpoint *c, const struct sharding *s,
                            const struct shard *shard, const struct table_shape *local,
                            struct table *own, struct embfuse_error *why) {
    const struct table_shape *whole = &c->state.tables[shard->table].shape;
    const int64_t block = min64(rows_of_block(whole), max64(1, shard->rows));
    char *room = must_have(array_alloc(1, table_bytes(whole, block)));
    int status = 0;
    for (int64_t row = 0; status == 0 && row < shard->rows; row += block) {
        const int64_t rows = min64(block, shard->rows - row);
        struct table there = deal_rows_in_message(whole, rows, room), here = *own;
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
            struct state_part part = state_whole(whole, a);
            part.first = row;
            if (part.bytes)
                status =
                    checkpoint_read_part(c, &part, shard->table, a, &there.array[a], rows, why);
            if (here.array[a].data)
                here.array[a].data = (char *)here.array[a].data + row * here.array[a].stride;
        }
        if (status == 0) deal_move(s, shard, local, DEAL_TAKE, &there, row, row, rows, &here);
    }
    free(room);
    return status;
}
