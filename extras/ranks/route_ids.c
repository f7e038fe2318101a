/* SPDX-License-Identifier: MIT
 *
 * Lookups go to the ranks that have their rows, and become local batches there.
 */
#include "extras/ranks/route_parts.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/batch_fill.h"

enum { ROW_ALIGN = 16 /* elements */ };

/* --- ids: the sender's side */

static void list_begin(struct row_list *x, bool listed, int64_t most) {
    x->first = x->count = 0;
    if (!listed) {
        free(x->row);
        x->row = NULL;
        x->most = 0;
    } else if (!x->row || x->most < (size_t)most) {
        free(x->row);
        x->row = must_have(malloc((size_t)(most + 1) * sizeof *x->row));
        x->most = (size_t)most;
    }
}

/* One feature on its way to one rank. */
struct delivery {
    const struct local_feature *l;
    struct row_list *rows;
    int32_t *lengths, *divisors; /* [own bags]; divisors NULL: none */
    int64_t count;               /* lookups */
    int64_t at;                  /* the next one among the ids for that rank */
};

/* Where feature f goes: deliveries[f*ranks + d]; .l NULL: not there. */
static struct delivery *deliveries_of(struct route *r) {
    const struct sharding *s = r->sharding;
    const int64_t bags = r->own->features[0].bags;
    struct delivery *all =
        must_have(calloc((size_t)(r->own->num_features * s->ranks) + 1, sizeof *all));
    int32_t *lengths = room_for(&r->lengths_sent, parts_lay_out(&r->lengths_out, s->ranks, 1) + 1);
    for (int d = 0; d < s->ranks; d++) {
        int32_t *at = lengths + r->lengths_out.at[d] / sizeof *at;
        for (int32_t j = 0; j < r->of[d].count; j++) {
            const struct local_feature *l = &r->of[d].feature[j];
            struct delivery *x = &all[(int64_t)l->feature * s->ranks + d];
            *x = (struct delivery){.l = l, .rows = &r->out[d][j], .lengths = at};
            at += bags;
            if (l->weighted) x->divisors = at, at += bags;
        }
    }
    return all;
}

static int64_t counted(const struct batch *in, int32_t f, int64_t q) {
    int64_t count = 0;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++)
        count += batch_id(in, i) != in->features[f].padding_id;
    return count;
}

/* The lengths of feature f for every rank that it goes to. */
static void count_feature(const struct route *r, int32_t f, struct delivery *to) {
    const struct batch *in = r->own;
    const int ranks = r->sharding->ranks;
    const int32_t table = in->features[f].table;
    const bool by_rows = sharding_by_rows(r->sharding->kind[table]);
    if (!is_sent(r, table)) return;
    for (int64_t b = 0; b < in->features[f].bags; b++) {
        const int64_t q = in->features[f].first_bag + b, all = in->offsets[q + 1] - in->offsets[q];
        for (int d = 0; d < ranks; d++) {
            if (!to[d].l) continue;
            to[d].lengths[b] = by_rows ? 0 : (int32_t)all;
            if (to[d].divisors) to[d].divisors[b] = (int32_t)counted(in, f, q);
        }
        for (int64_t i = in->offsets[q]; by_rows && i < in->offsets[q + 1]; i++)
            to[sharding_owner(r->sharding, table, batch_id(in, i))].lengths[b]++;
        for (int d = 0; d < ranks; d++)
            if (to[d].l) to[d].count += to[d].lengths[b];
    }
}

/* What is sent to each rank: all ids of its local features, then, with per-sample weights, all weights. */
static void place_ids(struct route *r, struct delivery *all) {
    const struct batch *in = r->own;
    const int ranks = r->sharding->ranks;
    const size_t each = (in->id_type == ID_INT32 ? 4u : 8u) + (in->lookup_weights ? 4u : 0u);
    for (int d = 0; d < ranks; d++) {
        int64_t at = 0;
        for (int32_t j = 0; j < r->of[d].count; j++) {
            struct delivery *x = &all[(int64_t)r->of[d].feature[j].feature * ranks + d];
            x->at = at;
            at += x->count;
        }
        r->ids_out.bytes[d] = (size_t)at * each;
    }
}

/* Where the lookups of a feature go next, among those for one rank. */
struct cursor {
    const struct shard *part;
    void *ids;
    float *weights; /* NULL: none */
    int64_t at;
    struct row_list *rows;
};

static struct cursor cursor_of(const struct route *r, const struct delivery *to, int rank) {
    const struct batch *in = r->own;
    const size_t id_bytes = in->id_type == ID_INT32 ? 4 : 8, weight = in->lookup_weights ? 4 : 0;
    char *base = (char *)r->send.data + r->ids_out.at[rank];
    const size_t there = r->ids_out.bytes[rank] / (id_bytes + weight);
    return (struct cursor){.part = shard_of(r, to->l),
                           .ids = base,
                           .weights = weight ? (float *)(void *)(base + there * id_bytes) : NULL,
                           .at = to->at,
                           .rows = to->rows};
}

static void put_lookup(const struct batch *in, struct cursor *c, int64_t i, int64_t id) {
    put_id(in->id_type, c->ids, c->at, shard_row(c->part, id));
    if (c->weights) memcpy(&c->weights[c->at], &in->lookup_weights[i], sizeof(float));
    c->at++;
}

static void list_row(struct row_list *rows, int64_t row) {
    if (rows->row) rows->row[rows->count++] = (int32_t)row;
}

/* Copies the lookups of feature f, and lists the gradient rows that have to follow them. to: [ranks] */
static void fill_feature(const struct route *r, int32_t f, const struct delivery *to) {
    const struct batch *in = r->own;
    const int ranks = r->sharding->ranks;
    const int32_t table = in->features[f].table;
    const bool by_rows = sharding_by_rows(r->sharding->kind[table]);
    const bool sequence = in->features[f].pooling == POOL_NONE;
    const int64_t bags = in->features[f].bags, first = in->features[f].first_lookup,
                  *offsets = in->offsets + in->features[f].first_bag;
    if (!is_sent(r, table)) return;
    struct cursor *c = must_have(calloc((size_t)ranks, sizeof *c));
    for (int d = 0; d < ranks; d++) {
        if (!to[d].l) continue;
        c[d] = cursor_of(r, &to[d], d);
        list_begin(to[d].rows, by_rows && !to[d].l->matrix, sequence ? to[d].count : bags);
        if (sequence && !by_rows) to[d].rows->count = to[d].count;
    }
    for (int64_t b = 0; b < bags; b++) {
        for (int64_t i = offsets[b]; i < offsets[b + 1]; i++) {
            const int64_t id = batch_id(in, i);
            const int owner = by_rows ? sharding_owner(r->sharding, table, id) : 0;
            for (int d = owner; d < (by_rows ? owner + 1 : ranks); d++)
                if (to[d].l) put_lookup(in, &c[d], i, id);
            if (by_rows && sequence) list_row(to[owner].rows, i - first);
        }
        for (int d = 0; by_rows && !sequence && d < ranks; d++)
            if (to[d].l && to[d].lengths[b]) list_row(to[d].rows, b);
    }
    free(c);
}

/* --- ids: the receiver's side */

/* Offsets of the local batch from the lengths of all ranks; sizes of what comes from each. */
static void lay_out_lookups(struct route *r, int64_t *offsets, int64_t *from) {
    const int ranks = r->sharding->ranks;
    const struct local_features *x = &r->of[r->transport->rank];
    int64_t lookups = 0;
    offsets[0] = 0;
    for (int s = 0; s < ranks; s++) from[s] = 0;
    for (int32_t j = 0, slot = 0; j < x->count; slot += 1 + x->feature[j++].weighted)
        for (int s = 0; s < ranks; s++) {
            const int64_t bags = bags_of(r, s);
            const int32_t *lengths =
                (const int32_t *)((const char *)r->lengths_received.data + r->lengths_in.at[s]) +
                slot * bags;
            int64_t *at = offsets + j * r->bags + begin_of(r, s) + 1;
            const int64_t before = lookups;
            for (int64_t b = 0; b < bags; b++) at[b] = lookups += lengths[b];
            from[s] += lookups - before;
        }
}

/* The rows of local feature j that rank s has the gradient of. */
static void list_rows(struct route *r, int32_t j, int s) {
    const struct local_feature *l = &r->of[r->transport->rank].feature[j];
    const int64_t *offsets = r->local.offsets + j * r->bags;
    const int64_t begin = begin_of(r, s), end = begin_of(r, s + 1);
    struct row_list *rows = &r->in[s][j];
    const bool sequence = is_sequence(r, l);
    list_begin(rows, !l->matrix && !sequence, end - begin);
    if (sequence) {
        rows->first = offsets[begin] - offsets[0];
        rows->count = offsets[end] - offsets[begin];
    }
    for (int64_t b = begin; rows->row && b < end; b++)
        if (offsets[b + 1] > offsets[b]) rows->row[rows->count++] = (int32_t)b;
}

/* Brings what came from the ranks into the order of features. */
static void take_lookups(struct route *r, const int64_t *from) {
    const int ranks = r->sharding->ranks;
    const struct batch *in = r->own;
    const struct local_features *x = &r->of[r->transport->rank];
    const size_t id_bytes = in->id_type == ID_INT32 ? 4 : 8;
    char *ids = (char *)r->ids.data;
    float *weights = r->weights.data;
#pragma omp parallel for schedule(dynamic)
    for (int s = 0; s < ranks; s++) {
        const char *base = (const char *)r->receive.data + r->ids_in.at[s];
        const char *sent = base + (size_t)from[s] * id_bytes;
        int64_t at = 0;
        for (int32_t j = 0, slot = 0; j < x->count; slot += 1 + x->feature[j++].weighted) {
            const int64_t bags = bags_of(r, s), *offsets = r->local.offsets + j * r->bags;
            const int64_t first = offsets[begin_of(r, s)], end = offsets[begin_of(r, s + 1)];
            memcpy(ids + (size_t)first * id_bytes, base + (size_t)at * id_bytes,
                   (size_t)(end - first) * id_bytes);
            if (in->lookup_weights)
                memcpy(weights + first, sent + at * 4, (size_t)(end - first) * sizeof(float));
            else
                for (int64_t i = first; r->weighted && i < end; i++) weights[i] = 1;
            at += end - first;
            list_rows(r, j, s);
            if (!x->feature[j].weighted) continue;
            const int32_t *divisors =
                (const int32_t *)((const char *)r->lengths_received.data + r->lengths_in.at[s]) +
                (slot + 1) * bags;
            for (int64_t b = 0; b < bags; b++) {
                const float scale = 1.0f / (float)(divisors[b] ? divisors[b] : 1);
                const int64_t q = begin_of(r, s) + b;
                for (int64_t i = offsets[q]; i < offsets[q + 1]; i++) weights[i] *= scale;
            }
        }
    }
}

/* Tables, features and gradient of the local batch; once, when its lengths are known. */
static void lay_out_batch(struct route *r) {
    const struct sharding *s = r->sharding;
    const int me = r->transport->rank;
    const struct local_features *x = &r->of[me];
    const struct batch *own = r->own;
    const int32_t tables = s->first[me + 1] - s->first[me];
    struct table_shape *shapes = (struct table_shape *)r->local.tables;
    struct feature *features = (struct feature *)r->local.features;
    if (!shapes) {
        shapes = must_have(calloc((size_t)tables + 1, sizeof *shapes));
        features = must_have(calloc((size_t)x->count + 1, sizeof *features));
        r->forward.tables = must_have(calloc((size_t)tables + 1, sizeof *shapes));
    }
    for (int32_t i = 0; i < tables; i++)
        shapes[i] = sharding_shape(s, &s->shards[s->first[me] + i], own->tables);
    int64_t at = (r->bags * x->columns + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    for (int32_t j = 0; j < x->count; j++) {
        const struct local_feature *l = &x->feature[j];
        const struct shard *part = shard_of(r, l);
        const struct feature *whole = &own->features[l->feature];
        const int64_t lookups = r->local.offsets[(j + 1) * r->bags] - r->local.offsets[j * r->bags];
        features[j] = (struct feature){
            .table = l->shard - s->first[me],
            .bags = r->bags,
            .pooling = l->weighted ? POOL_SUM : whole->pooling,
            .padding_id = whole->padding_id < 0 ? -1 : shard_row(part, whole->padding_id),
            .grad_offset = l->matrix ? l->column : at,
            .grad_stride = l->matrix ? x->columns : part->columns};
        if (l->matrix) continue;
        at += (is_sequence(r, l) ? lookups : r->bags) * part->columns;
        at = (at + ROW_ALIGN - 1) / ROW_ALIGN * ROW_ALIGN;
    }
    struct batch *local = &r->local, *forward = &r->forward;
    local->num_tables = tables;
    local->num_features = x->count;
    local->id_type = own->id_type;
    local->grad_type = own->grad_type;
    batch_derive(local, shapes, features);
    const size_t bytes = (size_t)(at * dtype_bytes(own->grad_type));
    if (!local->grad || r->grad.bytes < bytes)
        local->grad = memset(room_for(&r->grad, bytes + 1), 0xff,
                             bytes); /* NaN, since no kernel may read it */
    struct table_shape *forward_shapes = (struct table_shape *)forward->tables;
    *forward = *local;
    forward->num_features = x->count - x->shared;
    memcpy(forward_shapes, shapes, (size_t)tables * sizeof *shapes);
    batch_derive(forward, forward_shapes, features);
}

/* --- tables that every rank has: the forward looks up own bags */

/* The number of the table of feature f among those that this rank has a copy of; -1: it has none. */
static int32_t copy_of(const struct route *r, int32_t f) {
    const struct sharding *s = r->sharding;
    const int me = r->transport->rank;
    const int32_t table = r->own->features[f].table;
    const int32_t part = s->part[(int64_t)table * s->ranks + me];
    return part >= 0 && sharding_copies(s->kind[table]) ? part - s->first[me] : -1;
}

bool route_has_copies(const struct route *r) {
    for (int32_t f = 0; f < r->own->num_features; f++)
        if (copy_of(r, f) >= 0) return true;
    return false;
}

static void keep_shared(struct route *r) {
    const struct batch *own = r->own;
    const int32_t tables = r->local.num_tables;
    struct batch *to = &r->shared;
    const size_t id_bytes = own->id_type == ID_INT32 ? 4 : 8;
    int64_t lookups = 0, bags = 0;
    int32_t count = 0;
    for (int32_t f = 0; f < own->num_features; f++)
        if (copy_of(r, f) >= 0)
            lookups += own->features[f].lookups, bags += own->features[f].bags, count++;
    int64_t *offsets = room_for(&r->shared_offsets, (size_t)(bags + 1) * sizeof *offsets);
    char *ids = room_for(&r->shared_ids, (size_t)lookups * id_bytes + 1);
    float *weights =
        own->lookup_weights ? room_for(&r->shared_weights, (size_t)lookups * 4 + 1) : NULL;
    struct table_shape *shapes = (struct table_shape *)to->tables;
    struct feature *features = (struct feature *)to->features;
    if (!shapes) {
        shapes = must_have(calloc((size_t)tables + 1, sizeof *shapes));
        features = must_have(calloc((size_t)count + 1, sizeof *features));
    }
    memcpy(shapes, r->local.tables, (size_t)tables * sizeof *shapes);
    offsets[0] = 0;
    for (int32_t f = 0, k = 0; f < own->num_features; f++) {
        if (copy_of(r, f) < 0) continue;
        const struct feature *x = &own->features[f];
        const int64_t *from = own->offsets + x->first_bag, at = *offsets, n = x->lookups;
        for (int64_t b = 1; b <= x->bags; b++) offsets[b] = at + from[b] - from[0];
        offsets += x->bags;
        memcpy(ids + (size_t)at * id_bytes, (const char *)own->ids + (size_t)from[0] * id_bytes,
               (size_t)n * id_bytes);
        if (weights) memcpy(weights + at, own->lookup_weights + from[0], (size_t)n * 4);
        /* Output rows lie as in the own batch, whose output they are a part of. */
        features[k] = own->features[f];
        features[k++].table = copy_of(r, f);
    }
    *to = (struct batch){.num_tables = tables,
                         .num_features = count,
                         .id_type = own->id_type,
                         .ids = ids,
                         .offsets = r->shared_offsets.data,
                         .lookup_weights = weights,
                         .grad_type = own->grad_type};
    batch_derive(to, shapes, features);
}

int route_ids(struct route *r, struct error *err) {
    struct transport *t = r->transport;
    const int ranks = r->sharding->ranks;
    const struct batch *in = r->own;
    const size_t id_bytes = in->id_type == ID_INT32 ? 4 : 8;
    const size_t each = id_bytes + (in->lookup_weights ? 4 : 0);
    struct delivery *all = deliveries_of(r);
    int status = 0;
#pragma omp parallel for schedule(dynamic)
    for (int32_t f = 0; f < in->num_features; f++) count_feature(r, f, all + (int64_t)f * ranks);
    void *lengths = room_for(&r->lengths_received, parts_lay_out(&r->lengths_in, ranks, 1) + 1);
    t->channel = CHANNEL_LENGTHS;
    status =
        transport_exchange(t, r->lengths_sent.data, &r->lengths_out, lengths, &r->lengths_in, err);
    if (status == 0) {
        place_ids(r, all);
        room_for(&r->send, parts_lay_out(&r->ids_out, ranks, sizeof(int64_t)) + 1);
#pragma omp parallel for schedule(dynamic)
        for (int32_t f = 0; f < in->num_features; f++) fill_feature(r, f, all + (int64_t)f * ranks);
    }
    free(all);
    if (status) return -1;

    const int64_t flat = r->of[t->rank].count * r->bags;
    int64_t *offsets = room_for(&r->offsets, (size_t)(flat + 1) * sizeof *offsets);
    int64_t *from = must_have(calloc((size_t)ranks, sizeof *from));
    lay_out_lookups(r, offsets, from);
    for (int s = 0; s < ranks; s++) r->ids_in.bytes[s] = (size_t)from[s] * each;
    room_for(&r->receive, parts_lay_out(&r->ids_in, ranks, sizeof(int64_t)) + 1);
    t->channel = CHANNEL_IDS;
    status = transport_exchange(t, r->send.data, &r->ids_out, r->receive.data, &r->ids_in, err);
    if (status == 0) {
        r->local.offsets = offsets;
        r->local.ids = room_for(&r->ids, (size_t)offsets[flat] * id_bytes + 1);
        r->local.lookup_weights =
            r->weighted ? room_for(&r->weights, (size_t)offsets[flat] * sizeof(float) + 1) : NULL;
        take_lookups(r, from);
        lay_out_batch(r);
        if (route_has_copies(r)) keep_shared(r);
    }
    free(from);
    if (status == 0 && r->device.used) status = route_put_lists(r, err);
    return status;
}
