/* SPDX-License-Identifier: MIT
 *
 * Rows travel: gradients to the owners, outputs back. Each exchange is a list of blocks of rows to pack or unpack,
 * which the threads of the host move, or a kernel of the device.
 */
#include "extras/ranks/route_parts.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

/* One side of an exchange of rows: some local features of a rank, as their matrix and lists. */
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

/* --- moves */

static void add_block(struct route *r, struct row_block b) {
    struct row_moves *m = &r->moves;
    if (b.count == 0) return;
    if (m->count == m->most) {
        m->most = 2 * m->most + 16;
        m->block = must_have(realloc(m->block, (size_t)m->most * sizeof *m->block));
    }
    m->block[m->count++] = b;
}

/* Rows that move between a message and an array. here: of own bags, rank `peer` has the shards; otherwise of
 * the local batch, and rank `peer` has the bags. Pooled output rows of tables that are cut by rows are added. */
static void add_rows(struct route *r, bool pack, bool here, int peer, bool output,
                     const void *array, char *message) {
    const int me = r->transport->rank;
    struct side s = here ? side_of(r, me, peer, output) : side_of(r, peer, me, output);
    s.lists = here ? r->out[peer] : r->in[peer];
    const int64_t element = dtype_bytes(r->own->grad_type), begin = here ? 0 : begin_of(r, peer);
    char *behind = message + s.bags * s.columns * element;
    for (int32_t j = 0; j < s.count; j++) {
        const struct local_feature *l = &s.x->feature[j];
        const struct shard *part = shard_of(r, l);
        const struct rows_at at = here ? own_rows(r, l, array) : local_rows(r, j, array);
        const bool sums = !pack && here && !is_sequence(r, l) && sharding_by_rows(kind_of(r, l));
        struct row_block b = {.how = pack   ? ROWS_PACK
                                     : sums ? ROWS_ADD
                                            : ROWS_UNPACK,
                              .columns = part->columns,
                              .array = at.base,
                              .array_stride = at.stride};
        if (l->matrix) {
            b.first = begin;
            b.count = s.bags;
            b.message = message + l->column * element;
            b.message_stride = s.columns * element;
        } else {
            const struct row_list *rows = &s.lists[j];
            b.first = rows->first;
            b.count = rows->count;
            b.row = r->device.used ? rows->there : rows->row;
            b.message = behind;
            b.message_stride = (int64_t)row_bytes(r, l);
            behind += rows->count * b.message_stride;
        }
        add_block(r, b);
    }
}

static void move_row(const struct row_block *b, char *array, char *message, int64_t element) {
    const size_t bytes = (size_t)(b->columns * element);
    if (b->how == ROWS_PACK)
        memcpy(message, array, bytes);
    else if (b->how == ROWS_UNPACK)
        memcpy(array, message, bytes);
    else if (b->how == ROWS_CLEAR)
        memset(array, 0, bytes);
    else {
        float *to = (float *)array;
        const float *from = (const float *)message;
        for (int32_t c = 0; c < b->columns; c++) to[c] += from[c];
    }
}

static void move_on_host(const struct row_block *blocks, int32_t count, int64_t element) {
#pragma omp parallel
    for (const struct row_block *b = blocks; b < blocks + count; b++) {
#pragma omp for schedule(static) nowait
        for (int64_t i = 0; i < b->count; i++)
            move_row(b, b->array + (b->row ? b->row[i] : b->first + i) * b->array_stride,
                     b->message + i * b->message_stride, element);
    }
}

/* Makes the moves that were added. On a device they are enqueued. */
static int move(struct route *r, struct error *err) {
    const int64_t element = dtype_bytes(r->own->grad_type);
    struct row_moves *m = &r->moves;
    const int32_t count = m->count;
    m->count = 0;
    if (r->device.used)
        return device_rows_move(r->transport->device->stream, &r->device.blocks, m->block, count,
                                element, err);
    move_on_host(m->block, count, element);
    return 0;
}

/* --- sizes */

/* True if the message from, or to, a local array is a piece of that array, so that nothing is packed. */
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

static int grow(struct device_buffer *b, size_t bytes, struct error *err) {
    if (b->bytes >= bytes) return 0;
    device_free(b);
    return device_alloc(b, bytes, "rows between ranks", err);
}

/* Room for messages, where rows lie. */
static int room_of(struct route *r, struct room *host, struct device_buffer *there, size_t bytes,
                   char **out, struct error *err) {
    if (!r->device.used)
        *out = room_for(host, bytes + 1);
    else {
        if (grow(there, bytes, err)) return -1;
        *out = there->data;
    }
    return 0;
}

/* --- devices */

/* Copies all lists to `all`, contiguously, for a copy at `there` in device memory. all NULL: only counts. Returns the
 * bytes. */
static size_t lay_out_lists(struct route *r, char *all, const char *there) {
    const int ranks = r->sharding->ranks;
    size_t at = 0;
    for (int i = 0; i < 2 * ranks; i++) {
        struct row_list *lists = i < ranks ? r->out[i] : r->in[i - ranks];
        const int32_t count = r->of[i < ranks ? i : r->transport->rank].count;
        for (int32_t j = 0; j < count; j++) {
            const size_t bytes = lists[j].row ? (size_t)lists[j].count * sizeof *lists[j].row : 0;
            if (bytes && all) {
                memcpy(all + at, lists[j].row, bytes);
                lists[j].there = (const int32_t *)(there + at);
            }
            at += bytes;
        }
    }
    return at;
}

int route_put_lists(struct route *r, struct error *err) {
    struct device_buffer *there = &r->device.lists;
    const size_t bytes = lay_out_lists(r, NULL, NULL);
    if (bytes == 0) return 0;
    if (grow(there, bytes, err)) return -1;
    char *all = must_have(malloc(bytes));
    lay_out_lists(r, all, there->data);
    const int status = device_put(there->data, all, bytes, err);
    free(all);
    return status;
}

int route_use_device(struct route *r, const void *own_grad, void *local_grad, struct error *err) {
    const int ranks = r->sharding->ranks;
    r->device = (struct route_device){.used = true, .own_grad = own_grad, .local_grad = local_grad};
    size_t most = 0;
    char *room;
    for (int output = 0; output < 2; output++) {
        size_rows(r, output, &r->rows_out, &r->rows_in);
        const size_t out = end_of(&r->rows_out, ranks), in = end_of(&r->rows_in, ranks);
        most = most > out ? most : out;
        most = most > in ? most : in;
    }
    return route_put_lists(r, err) || room_of(r, NULL, &r->device.send, most, &room, err) ||
                   room_of(r, NULL, &r->device.receive, most, &room, err)
               ? -1
               : 0;
}

/* --- exchanges. On a device all of one is enqueued, and waited for at its end; on the host it is waited for before
 * rows are unpacked. */

static int start(struct route *r, const void *send, const struct parts *out, void *receive,
                 const struct parts *in, struct error *err) {
    return (r->device.used ? transport_device_start : transport_start)(r->transport, send, out,
                                                                       receive, in, err);
}

static int wait_before(struct route *r, struct error *err) {
    return r->device.used ? 0 : transport_finish(r->transport, err);
}

static int wait_behind(struct route *r, struct error *err) {
    return r->device.used ? transport_device_finish(r->transport, err) : 0;
}

static void *local_gradient(const struct route *r) {
    return r->device.used ? r->device.local_grad : r->grad.data;
}

static int start_gradient(struct route *r, struct error *err) {
    const int ranks = r->sharding->ranks;
    char *send, *receive = local_gradient(r);
    size_rows(r, false, &r->rows_out, &r->rows_in);
    if (room_of(r, &r->send, &r->device.send, end_of(&r->rows_out, ranks), &send, err) ||
        (!is_piece(r, false) &&
         room_of(r, &r->receive, &r->device.receive, end_of(&r->rows_in, ranks), &receive, err)))
        return -1;
    for (int d = 0; d < ranks; d++)
        add_rows(r, true, true, d, false, r->device.used ? r->device.own_grad : r->own->grad,
                 send + r->rows_out.at[d]);
    if (move(r, err)) return -1;
    r->transport->channel = CHANNEL_GRADIENT;
    return start(r, send, &r->rows_out, receive, &r->rows_in, err);
}

static int finish_gradient(struct route *r, struct error *err) {
    char *from = r->device.used ? r->device.receive.data : r->receive.data;
    if (wait_before(r, err)) return -1;
    for (int s = 0; !is_piece(r, false) && s < r->sharding->ranks; s++)
        add_rows(r, false, false, s, false, local_gradient(r), from + r->rows_in.at[s]);
    return move(r, err) || wait_behind(r, err) ? -1 : 0;
}

/* A row of a batch of own bags, where it belongs in `to`. */
static struct row_block own_row(const struct batch *in, int32_t f, void *to) {
    const int64_t element = dtype_bytes(in->grad_type);
    const struct feature *x = &in->features[f];
    return (struct row_block){.columns = in->tables[x->table].dim,
                              .count = feature_rows(x),
                              .array = (char *)to + x->grad_offset * element,
                              .array_stride = x->grad_stride * element};
}

/* Sums begin with 0. */
static void add_sums(struct route *r, void *to) {
    for (int32_t f = 0; f < r->own->num_features; f++) {
        const struct feature *x = &r->own->features[f];
        struct row_block b = own_row(r->own, f, to);
        b.how = ROWS_CLEAR;
        if (x->pooling != POOL_NONE && is_sent(r, x->table) &&
            sharding_by_rows(r->sharding->kind[x->table]))
            add_block(r, b);
    }
}

/* Rows of tables of the kind data are in `shared` where they belong in `to`. */
static void add_shared(struct route *r, const void *shared, void *to) {
    for (int32_t f = 0; f < r->shared.num_features; f++) {
        struct row_block b = own_row(&r->shared, f, to);
        b.how = ROWS_UNPACK;
        b.message = (char *)shared + (b.array - (char *)to);
        b.message_stride = b.array_stride;
        add_block(r, b);
    }
}

static int exchange_output(struct route *r, const void *output, const void *shared, void *to,
                           struct error *err) {
    const int ranks = r->sharding->ranks;
    char *send = (char *)output, *receive;
    size_rows(r, true, &r->rows_in, &r->rows_out);
    if (room_of(r, &r->receive, &r->device.receive, end_of(&r->rows_in, ranks), &receive, err))
        return -1;
    if (!is_piece(r, true)) {
        if (room_of(r, &r->send, &r->device.send, end_of(&r->rows_out, ranks), &send, err))
            return -1;
        for (int d = 0; d < ranks; d++)
            add_rows(r, true, false, d, true, output, send + r->rows_out.at[d]);
    }
    add_sums(r, to);
    add_shared(r, shared, to);
    if (move(r, err)) return -1;
    r->transport->channel = CHANNEL_OUTPUT;
    if (start(r, send, &r->rows_out, receive, &r->rows_in, err) || wait_before(r, err)) return -1;
    for (int s = 0; s < ranks; s++) { /* in the order of the ranks */
        add_rows(r, false, true, s, true, to, receive + r->rows_in.at[s]);
        if (move(r, err)) return -1;
    }
    return wait_behind(r, err);
}

/* A device can fail on one rank alone, while the others wait for its rows. */
static int settled(struct route *r, int status, const struct error *err) {
    if (status && r->device.used) transport_give_up(r->transport, err);
    return status;
}

int route_gradient_start(struct route *r, struct error *err) {
    return settled(r, start_gradient(r, err), err);
}

int route_gradient_finish(struct route *r, struct error *err) {
    return settled(r, finish_gradient(r, err), err);
}

int route_output(struct route *r, const void *output, const void *shared, void *to,
                 struct error *err) {
    return settled(r, exchange_output(r, output, shared, to, err), err);
}
