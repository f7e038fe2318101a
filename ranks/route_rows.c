/* SPDX-License-Identifier: MIT
 *
 * Rows travel: gradients to the owners, outputs back.
 */
#include "ranks/route_parts.h"

#include <stdlib.h>
#include <string.h>

/* One side of an exchange of rows: those of some local features of a rank, as the matrix and lists. */
struct side {
    const struct local_features *x;
    int32_t count;   /* the first so many of them */
    int64_t columns; /* of their matrix */
    const struct row_list *lists;
    int64_t bags;
};

/* The rows that travel between the bags of rank `bags` and the shards of rank `shards`; one of them is
 * this rank. */
static struct side side_of(const struct route *r, int bags, int shards, bool output) {
    const struct local_features *x = &r->of[shards];
    return (struct side){.x = x,
                         .count = output ? x->count - x->shared : x->count,
                         .columns = output ? x->own_columns : x->columns,
                         .bags = bags_of(r, bags)};
}

static size_t side_bytes(const struct route *r, const struct side *s) {
    size_t bytes = (size_t)(s->bags * s->columns * dtype_bytes(r->own->grad_type));
    for (int32_t j = 0; j < s->count; j++)
        if (!s->x->feature[j].matrix)
            bytes += (size_t)s->lists[j].count * row_bytes(r, &s->x->feature[j]);
    return bytes;
}

/* Calls of this kind copy, or add, `bytes` of a row between a message and an array. */
enum move { PACK, UNPACK, ADD };

/* columns: in the array are rows of the whole table, and this shard's columns travel; NULL: in the array, too, are
 * only those. */
static void move_row(enum move how, const struct shard *columns, char *array, char *message,
                     size_t bytes) {
    if (how == PACK && columns)
        shard_take(columns, (int64_t)bytes / columns->columns, array, message);
    else if (how == PACK)
        memcpy(message, array, bytes);
    else if (how == UNPACK && columns)
        shard_put(columns, (int64_t)bytes / columns->columns, array, message);
    else if (how == UNPACK)
        memcpy(array, message, bytes);
    else {
        float *to = (float *)array;
        const float *from = (const float *)message;
        for (size_t i = 0; i < bytes / sizeof *to; i++) to[i] += from[i];
    }
}

/* Where the rows of a local feature lie in an array of own bags, or of the local batch. */
struct rows_at {
    char *base;     /* of row 0 */
    int64_t stride; /* bytes */
};

static struct rows_at own_rows(const struct route *r, const struct local_feature *l,
                               const void *data) {
    const int64_t element = dtype_bytes(r->own->grad_type);
    const struct feature *f = &r->own->features[l->feature];
    return (struct rows_at){(char *)data + (f->grad_offset + shard_of(r, l)->column) * element,
                            f->grad_stride * element};
}

static struct rows_at local_rows(const struct route *r, int32_t j, const void *data) {
    const int64_t element = dtype_bytes(r->own->grad_type);
    const struct feature *f = &r->local.features[j];
    return (struct rows_at){(char *)data + f->grad_offset * element, f->grad_stride * element};
}

static int64_t row_at(const struct row_list *rows, int64_t i) {
    return rows->row ? rows->row[i] : rows->first + i;
}

/* Moves rows between a message and an array. here: of own bags, rank `peer` has the shards; otherwise of
 * the local batch, and rank `peer` has the bags. sums: pooled rows of tables that are cut by rows are
 * added. */
static void move_rows(const struct route *r, enum move how, bool here, int peer, bool output,
                      const void *array, char *message) {
    const int me = r->transport->rank;
    struct side s = here ? side_of(r, me, peer, output) : side_of(r, peer, me, output);
    s.lists = here ? r->out[peer] : r->in[peer];
    const int64_t element = dtype_bytes(r->own->grad_type), begin = here ? 0 : begin_of(r, peer);
#pragma omp parallel
    {
        for (int32_t j = 0; j < s.count; j++) {
            const struct local_feature *l = &s.x->feature[j];
            if (!l->matrix) continue;
            const struct rows_at at = here ? own_rows(r, l, array) : local_rows(r, j, array);
            const size_t bytes = row_bytes(r, l);
            const bool sums = how == UNPACK && here && sharding_by_rows(kind_of(r, l));
#pragma omp for schedule(static) nowait
            for (int64_t b = 0; b < s.bags; b++)
                move_row(sums ? ADD : how, here ? shard_of(r, l) : NULL,
                         at.base + (begin + b) * at.stride,
                         message + (b * s.columns + l->column) * element, bytes);
        }
        char *behind = message + s.bags * s.columns * element;
        for (int32_t j = 0; j < s.count; j++) {
            const struct local_feature *l = &s.x->feature[j];
            if (l->matrix) continue;
            const struct rows_at at = here ? own_rows(r, l, array) : local_rows(r, j, array);
            const size_t bytes = row_bytes(r, l);
            const struct row_list *rows = &s.lists[j];
            const bool sums = how == UNPACK && here && !is_sequence(r, l);
#pragma omp for schedule(static) nowait
            for (int64_t i = 0; i < rows->count; i++)
                move_row(sums ? ADD : how, here ? shard_of(r, l) : NULL,
                         at.base + row_at(rows, i) * at.stride, behind + (size_t)i * bytes, bytes);
            behind += (size_t)rows->count * bytes;
        }
    }
}

/* Is the message from, or to, a local array a piece of that array? */
static bool is_piece(const struct route *r, bool output) {
    const struct local_features *x = &r->of[r->transport->rank];
    if (output && x->own_columns != x->columns) return false;
    for (int32_t j = 0; j < x->count - (output ? x->shared : 0); j++)
        if (!x->feature[j].matrix) return false;
    return true;
}

/* The sizes of an exchange of rows between own bags and shards: to the owners (gradients), or back. */
static void size_rows(struct route *r, bool output, struct parts *bags, struct parts *shards) {
    const int me = r->transport->rank;
    for (int p = 0; p < r->sharding->ranks; p++) {
        struct side here = side_of(r, me, p, output), there = side_of(r, p, me, output);
        here.lists = r->out[p];
        there.lists = r->in[p];
        bags->bytes[p] = side_bytes(r, &here);
        shards->bytes[p] = side_bytes(r, &there);
    }
    parts_lay_out(bags, r->sharding->ranks, 1);
    parts_lay_out(shards, r->sharding->ranks, 1);
}

static size_t end_of(const struct parts *p, int ranks) {
    return p->at[ranks - 1] + p->bytes[ranks - 1];
}

int route_gradient_start(struct route *r, struct error *err) {
    const int ranks = r->sharding->ranks;
    size_rows(r, false, &r->rows_out, &r->rows_in);
    char *send = room_for(&r->send, end_of(&r->rows_out, ranks) + 1);
    char *receive =
        is_piece(r, false) ? r->grad.data : room_for(&r->receive, end_of(&r->rows_in, ranks) + 1);
    for (int d = 0; d < ranks; d++)
        move_rows(r, PACK, true, d, false, r->own->grad, send + r->rows_out.at[d]);
    r->transport->channel = CHANNEL_GRADIENT;
    return transport_start(r->transport, send, &r->rows_out, receive, &r->rows_in, err);
}

int route_gradient_finish(struct route *r, struct error *err) {
    if (transport_finish(r->transport, err)) return -1;
    for (int s = 0; !is_piece(r, false) && s < r->sharding->ranks; s++)
        move_rows(r, UNPACK, false, s, false, r->local.grad,
                  (char *)r->receive.data + r->rows_in.at[s]);
    return 0;
}

/* Sums begin with 0. */
static void clear_sums(const struct route *r, void *to) {
    const int64_t element = dtype_bytes(r->own->grad_type);
    for (int32_t f = 0; f < r->own->num_features; f++) {
        const struct feature *x = &r->own->features[f];
        if (x->pooling == POOL_NONE || !is_sent(r, x->table) ||
            !sharding_by_rows(r->sharding->kind[x->table]))
            continue;
        for (int64_t b = 0; b < r->own->bags; b++)
            memset((char *)to + (x->grad_offset + b * x->grad_stride) * element, 0,
                   (size_t)(r->own->tables[x->table].dim * element));
    }
}

/* Rows of tables of the kind data are in `shared` where they belong in `to`. */
static void copy_shared(const struct route *r, const void *shared, void *to) {
    const int64_t element = dtype_bytes(r->own->grad_type);
    for (int32_t f = 0; f < r->shared.num_features; f++) {
        const struct feature *x = &r->shared.features[f];
        const int64_t rows = x->pooling == POOL_NONE ? x->lookups : r->shared.bags;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = (x->grad_offset + i * x->grad_stride) * element;
            memcpy((char *)to + at, (const char *)shared + at,
                   (size_t)(r->shared.tables[x->table].dim * element));
        }
    }
}

int route_output(struct route *r, const void *output, const void *shared, void *to,
                 struct error *err) {
    const int ranks = r->sharding->ranks;
    struct transport *t = r->transport;
    const bool piece = is_piece(r, true);
    size_rows(r, true, &r->rows_in, &r->rows_out);
    const char *send = output;
    if (!piece) {
        char *packed = room_for(&r->send, end_of(&r->rows_out, ranks) + 1);
        for (int d = 0; d < ranks; d++)
            move_rows(r, PACK, false, d, true, output, packed + r->rows_out.at[d]);
        send = packed;
    }
    char *receive = room_for(&r->receive, end_of(&r->rows_in, ranks) + 1);
    t->channel = CHANNEL_OUTPUT;
    if (transport_exchange(t, send, &r->rows_out, receive, &r->rows_in, err)) return -1;
    clear_sums(r, to);
    for (int s = 0; s < ranks; s++) /* in the order of the ranks */
        move_rows(r, UNPACK, true, s, true, to, receive + r->rows_in.at[s]);
    if (r->shared.num_features) copy_shared(r, shared, to);
    return 0;
}
