/* SPDX-License-Identifier: MIT */
#include "extras/ranks/route_parts.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

void *room_for(struct room *m, size_t bytes) {
    if (m->bytes >= bytes && m->data) return m->data;
    free(m->data);
    m->data = must_have(array_alloc((int64_t)bytes, 1));
    m->bytes = bytes;
    return m->data;
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
    }
    for (int32_t f = 0; f < whole->num_features; f++)
        if (whole->features[f].pooling == POOL_MAX) return "max pooling is for one process";
    if (batch_common_bags(whole) < 0)
        return "features with own numbers of bags are for one process";
    return NULL;
}

bool route_sums_in_parts(const struct sharding *s, const struct batch *whole) {
    for (int32_t f = 0; f < whole->num_features; f++)
        if (whole->features[f].pooling != POOL_NONE &&
            (s->ranks > 1 || whole->features[f].pooling == POOL_MEAN) &&
            sharding_by_rows(s->kind[whole->features[f].table]))
            return true;
    return false;
}

int route_open(struct route *r, const struct sharding *s, struct transport *t, int64_t bags,
               const struct batch *own, bool all_rows, struct error *err) {
    const size_t ranks = (size_t)s->ranks;
    *r = (struct route){.sharding = s, .transport = t, .bags = bags, .own = own};
    r->of = must_have(calloc(ranks, sizeof *r->of));
    r->out = must_have(calloc(ranks, sizeof *r->out));
    r->in = must_have(calloc(ranks, sizeof *r->in));
    for (int d = 0; d < s->ranks; d++) {
        const size_t most = (size_t)most_features(s, own, d) + 1;
        r->of[d].feature = must_have(calloc(most, sizeof *r->of[d].feature));
        add_features(r, d, own, false, all_rows);
        add_features(r, d, own, true, all_rows);
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
    if (bags >= INT32_MAX || own->lookups >= INT32_MAX)
        return fail(err, "more than 2^31 bags, or lookups of one rank");
    return 0;
}

static void free_lists(struct row_list *lists, int32_t count) {
    for (int32_t j = 0; lists && j < count; j++) free(lists[j].row);
    free(lists);
}

void route_close(struct route *r) {
    if (!r->sharding) return;
    const int ranks = r->sharding->ranks;
    for (int d = 0; d < ranks; d++) {
        free_lists(r->out[d], r->of[d].count);
        free_lists(r->in[d], r->of[r->transport->rank].count);
    }
    for (int d = 0; d < ranks; d++) free(r->of[d].feature);
    free(r->out);
    free(r->in);
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
    free(r->moves.block);
    struct device_buffer *there[] = {&r->device.send, &r->device.receive, &r->device.lists,
                                     &r->device.blocks};
    for (size_t i = 0; r->device.used && i < sizeof there / sizeof *there; i++)
        device_free(there[i]);
    *r = (struct route){0};
}
