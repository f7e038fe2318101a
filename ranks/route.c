/* SPDX-License-Identifier: MIT */
#include "ranks/route.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/batch_fill.h"
#include "harness/workload/workload.h"

enum { ROW_ALIGN = 16 /* elements */ };

void *room_for(struct room *m, size_t bytes) {
    if (m->bytes >= bytes && m->data) return m->data;
    free(m->data);
    m->data = must_have(array_alloc((int64_t)bytes, 1));
    m->bytes = bytes;
    return m->data;
}

static int64_t begin_of(const struct route *r, int rank) {
    return sharding_bag(r->bags, rank, r->sharding->ranks);
}

static int64_t bags_of(const struct route *r, int rank) {
    return begin_of(r, rank + 1) - begin_of(r, rank);
}

static const struct shard *shard_of(const struct route *r, const struct local_feature *l) {
    return &r->sharding->shards[l->shard];
}

static enum sharding_kind kind_of(const struct route *r, const struct local_feature *l) {
    return r->sharding->kind[shard_of(r, l)->table];
}

static size_t row_bytes(const struct route *r, const struct local_feature *l) {
    return (size_t)(shard_of(r, l)->columns * dtype_bytes(r->own->grad_type));
}

static bool is_sequence(const struct route *r, const struct local_feature *l) {
    return r->own->features[l->feature].pooling == POOL_NONE;
}

/* --- the local features of every rank */

static void add_features(struct route *r, int rank, const struct batch *whole, bool shared,
                         bool all_rows) {
    const struct sharding *s = r->sharding;
    struct local_features *x = &r->of[rank];
    for (int32_t i = s->first[rank]; i < s->first[rank + 1]; i++) {
        const struct shard *part = &s->shards[i];
        const enum sharding_kind kind = s->kind[part->table];
        if (kind == SHARD_DATA_DENSE || (kind == SHARD_DATA) != shared) continue;
        for (int32_t f = 0; f < whole->num_features; f++) {
            const struct feature *own = &whole->features[f];
            if (own->table != part->table) continue;
            struct local_feature *l = &x->feature[x->count++];
            *l = (struct local_feature){.feature = f, .shard = i, .column = x->columns};
            l->matrix = own->pooling != POOL_NONE && (!sharding_by_rows(kind) || all_rows);
            l->weighted = own->pooling == POOL_MEAN && sharding_by_rows(kind);
            if (l->matrix) x->columns += part->columns;
            x->shared += shared;
        }
    }
    if (!shared) x->own_columns = x->columns;
}

static int32_t most_features(const struct sharding *s, const struct batch *whole, int rank) {
    int32_t count = 0;
    for (int32_t i = s->first[rank]; i < s->first[rank + 1]; i++)
        for (int32_t f = 0; f < whole->num_features; f++)
            count += whole->features[f].table == s->shards[i].table;
    return count;
}

/* Does the local batch of a rank have per-sample weights? */
static bool has_weights(const struct route *r, int rank) {
    bool weighted = r->own->lookup_weights != NULL;
    for (int32_t j = 0; j < r->of[rank].count; j++) weighted |= r->of[rank].feature[j].weighted;
    return weighted;
}

/* Arrays of int32, one number per bag, that a rank gets for each of its local features: the lookups, and of
 * some means the divisor. */
static int32_t length_slots(const struct local_features *x) {
    int32_t slots = x->count;
    for (int32_t j = 0; j < x->count; j++) slots += x->feature[j].weighted;
    return slots;
}

const char *route_refuses(const struct sharding *s, const struct batch *whole) {
    for (int32_t t = 0; t < whole->num_tables; t++) {
        const char *why = sharding_refuses(s->kind[t], &whole->tables[t]);
        if (why) return why;
        if (s->kind[t] == SHARD_COLUMN && whole->tables[t].rounding == ROUND_STOCHASTIC &&
            table_is_narrow(&whole->tables[t]))
            return "stochastic rounding draws by the column, and a shard has other columns";
    }
    for (int32_t f = 0; f < whole->num_features; f++)
        if (whole->features[f].pooling == POOL_MAX) return "max pooling is for one process";
    return NULL;
}

bool route_sums_in_parts(const struct sharding *s, const struct batch *whole) {
    for (int32_t f = 0; f < whole->num_features; f++)
        if (whole->features[f].pooling != POOL_NONE && s->ranks > 1 &&
            sharding_by_rows(s->kind[whole->features[f].table]))
            return true;
    return false;
}

int route_open(struct route *r, const struct sharding *s, struct transport *t,
               const struct batch *whole, const struct batch *own, bool all_rows,
               struct error *err) {
    const size_t ranks = (size_t)s->ranks;
    *r = (struct route){.sharding = s, .transport = t, .bags = whole->bags, .own = own};
    r->of = must_have(calloc(ranks, sizeof *r->of));
    r->out = must_have(calloc(ranks, sizeof *r->out));
    r->in = must_have(calloc(ranks, sizeof *r->in));
    for (int d = 0; d < s->ranks; d++) {
        const size_t most = (size_t)most_features(s, whole, d) + 1;
        r->of[d].feature = must_have(calloc(most, sizeof *r->of[d].feature));
        add_features(r, d, whole, false, all_rows);
        add_features(r, d, whole, true, all_rows);
        r->out[d] = must_have(calloc(most, sizeof *r->out[d]));
    }
    struct local_features *mine = &r->of[t->rank];
    for (int d = 0; d < s->ranks; d++)
        r->in[d] = must_have(calloc((size_t)mine->count + 1, sizeof *r->in[d]));
    r->weighted = has_weights(r, t->rank);
    struct parts *every[] = {&r->lengths_out, &r->lengths_in, &r->ids_out,
                             &r->ids_in,      &r->rows_out,   &r->rows_in};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) *every[i] = parts_make(s->ranks);
    for (int d = 0; d < s->ranks; d++) {
        r->lengths_out.bytes[d] =
            (size_t)(length_slots(&r->of[d]) * bags_of(r, t->rank)) * sizeof(int32_t);
        r->lengths_in.bytes[d] = (size_t)(length_slots(mine) * bags_of(r, d)) * sizeof(int32_t);
    }
    if (whole->bags >= INT32_MAX || own->lookups >= INT32_MAX)
        return fail(err, "more than 2^31 bags, or lookups of one rank");
    return 0;
}

static void free_lists(struct row_list **lists, int ranks,
                       int32_t (*count)(const struct route *, int), const struct route *r) {
    for (int d = 0; lists && d < ranks; d++) {
        for (int32_t j = 0; lists[d] && j < count(r, d); j++) free(lists[d][j].row);
        free(lists[d]);
    }
    free(lists);
}

static int32_t count_there(const struct route *r, int rank) {
    return r->of[rank].count;
}

static int32_t count_here(const struct route *r, int rank) {
    (void)rank;
    return r->of[r->transport->rank].count;
}

void route_close(struct route *r) {
    if (!r->sharding) return;
    const int ranks = r->sharding->ranks;
    free_lists(r->out, ranks, count_there, r);
    free_lists(r->in, ranks, count_here, r);
    for (int d = 0; r->of && d < ranks; d++) free(r->of[d].feature);
    free(r->of);
    free((void *)r->local.tables);
    free((void *)r->local.features);
    free((void *)r->forward.tables);
    free((void *)r->shared.tables);
    free((void *)r->shared.features);
    struct parts *every[] = {&r->lengths_out, &r->lengths_in, &r->ids_out,
                             &r->ids_in,      &r->rows_out,   &r->rows_in};
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) parts_free(every[i]);
    struct room *rooms[] = {
        &r->send,           &r->receive,    &r->lengths_sent,  &r->lengths_received,
        &r->offsets,        &r->ids,        &r->weights,       &r->grad,
        &r->shared_offsets, &r->shared_ids, &r->shared_weights};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
    *r = (struct route){0};
}

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
    const int64_t bags = r->own->bags;
    struct delivery *all =
        must_have(calloc((size_t)(r->own->num_features * s->ranks) + 1, sizeof *all));
    int32_t *lengths = room_for(&r->lengths_sent, parts_lay_out(&r->lengths_out, s->ranks) + 1);
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

/* Does any rank get lookups of a table by this route? */
static bool is_sent(const struct route *r, int32_t table) {
    for (int d = 0; d < r->sharding->ranks; d++)
        if (r->sharding->part[(int64_t)table * r->sharding->ranks + d] >= 0)
            return r->sharding->kind[table] != SHARD_DATA_DENSE;
    return false;
}

/* The lengths of feature f for every rank that it goes to. */
static void count_feature(const struct route *r, int32_t f, struct delivery *to) {
    const struct batch *in = r->own;
    const int ranks = r->sharding->ranks;
    const int32_t table = in->features[f].table;
    const bool by_rows = sharding_by_rows(r->sharding->kind[table]);
    if (!is_sent(r, table)) return;
    for (int64_t b = 0; b < in->bags; b++) {
        const int64_t q = f * in->bags + b, all = in->offsets[q + 1] - in->offsets[q];
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
    const int64_t *offsets = in->offsets + f * in->bags, first = offsets[0];
    if (!is_sent(r, table)) return;
    struct cursor *c = must_have(calloc((size_t)ranks, sizeof *c));
    for (int d = 0; d < ranks; d++) {
        if (!to[d].l) continue;
        c[d] = cursor_of(r, &to[d], d);
        list_begin(to[d].rows, by_rows && !to[d].l->matrix, sequence ? to[d].count : in->bags);
        if (sequence && !by_rows) to[d].rows->count = to[d].count;
    }
    for (int64_t b = 0; b < in->bags; b++) {
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
    local->bags = r->bags;
    local->id_type = own->id_type;
    local->grad_type = own->grad_type;
    batch_derive(local, shapes, features);
    const size_t bytes = (size_t)(at * dtype_bytes(own->grad_type));
    if (!local->grad || r->grad.bytes < bytes)
        local->grad =
            memset(room_for(&r->grad, bytes + 1), 0xff, bytes); /* NaN: nobody may read it */
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
    int64_t lookups = 0;
    int32_t count = 0;
    for (int32_t f = 0; f < own->num_features; f++)
        if (copy_of(r, f) >= 0) lookups += own->features[f].lookups, count++;
    int64_t *offsets =
        room_for(&r->shared_offsets, (size_t)(count * own->bags + 1) * sizeof *offsets);
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
        const int64_t *from = own->offsets + f * own->bags;
        const int64_t at = offsets[k * own->bags], n = own->features[f].lookups;
        for (int64_t b = 1; b <= own->bags; b++)
            offsets[k * own->bags + b] = at + from[b] - from[0];
        memcpy(ids + (size_t)at * id_bytes, (const char *)own->ids + (size_t)from[0] * id_bytes,
               (size_t)n * id_bytes);
        if (weights) memcpy(weights + at, own->lookup_weights + from[0], (size_t)n * 4);
        /* Output rows lie as in the own batch, whose output they are a part of. */
        features[k] = own->features[f];
        features[k++].table = copy_of(r, f);
    }
    *to = (struct batch){.num_tables = tables,
                         .num_features = count,
                         .bags = own->bags,
                         .id_type = own->id_type,
                         .ids = ids,
                         .offsets = offsets,
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
    void *lengths = room_for(&r->lengths_received, parts_lay_out(&r->lengths_in, ranks) + 1);
    t->channel = CHANNEL_LENGTHS;
    status =
        transport_exchange(t, r->lengths_sent.data, &r->lengths_out, lengths, &r->lengths_in, err);
    if (status == 0) {
        place_ids(r, all);
        room_for(&r->send, parts_lay_out(&r->ids_out, ranks) + 1);
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
    room_for(&r->receive, parts_lay_out(&r->ids_in, ranks) + 1);
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
    return status;
}

/* --- rows: gradients to the owners, outputs back */

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

static void move_row(enum move how, char *array, char *message, size_t bytes) {
    if (how == PACK)
        memcpy(message, array, bytes);
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
                move_row(sums ? ADD : how, at.base + (begin + b) * at.stride,
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
                move_row(sums ? ADD : how, at.base + row_at(rows, i) * at.stride,
                         behind + (size_t)i * bytes, bytes);
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
    parts_lay_out(bags, r->sharding->ranks);
    parts_lay_out(shards, r->sharding->ranks);
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
