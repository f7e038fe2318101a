/* SPDX-License-Identifier: MIT */
#include "extras/ranks/deal.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/workload.h"
#include "kernels/forward.h"

static int64_t first_bag(const struct deal *d, int rank) {
    return sharding_bag(d->bags, rank, d->transport->ranks);
}

static size_t id_bytes(const struct deal *d) {
    return d->id_type == ID_INT32 ? 4 : 8;
}

struct deal deal_of(struct transport *t, const struct batch *whole) {
    return (struct deal){.transport = t,
                         .shapes = whole->tables,
                         .features = whole->features,
                         .num_tables = whole->num_tables,
                         .num_features = whole->num_features,
                         .bags = whole->features[0].bags,
                         .id_type = whole->id_type,
                         .grad_type = whole->grad_type,
                         .weighted = whole->lookup_weights != NULL};
}

/* The features of bags begin .. end-1, laid out as a batch of their own. */
static struct feature *layout_of(const struct batch *whole, int64_t begin, int64_t end) {
    struct feature *own = must_have(calloc((size_t)whole->num_features, sizeof *own));
    for (int32_t f = 0; f < whole->num_features; f++) {
        const int64_t *at = whole->offsets + whole->features[f].first_bag;
        own[f] = whole->features[f];
        own[f].bags = end - begin;
        own[f].lookups = at[end] - at[begin];
    }
    batch_lay_out_rows(whole->tables, own, whole->num_features);
    return own;
}

void deal_move_bags(const struct batch *whole, int64_t begin, int64_t end, enum deal_move how,
                    void *all, void *own) {
    const int64_t element = dtype_bytes(whole->grad_type);
    struct feature *layout = layout_of(whole, begin, end);
    for (int32_t f = 0; f < whole->num_features; f++) {
        const struct feature *x = &whole->features[f];
        const int64_t rows = feature_rows(&layout[f]);
        const int64_t skip = x->pooling == POOL_NONE
                                 ? whole->offsets[x->first_bag + begin] - x->first_lookup
                                 : begin;
        for (int64_t i = 0; i < rows; i++) {
            char *there = (char *)all + forward_row(x, skip + i) * element;
            char *here = (char *)own + forward_row(&layout[f], i) * element;
            memcpy(how == DEAL_TAKE ? here : there, how == DEAL_TAKE ? there : here,
                   (size_t)(whole->tables[x->table].dim * element));
        }
    }
    free(layout);
}

/* Gives a batch of own bags its layout; its offsets are there. */
static void lay_out_own(const struct deal *d, struct batch *own, int64_t bags) {
    struct table_shape *tables = must_have(calloc((size_t)d->num_tables, sizeof *tables));
    struct feature *features = must_have(calloc((size_t)d->num_features, sizeof *features));
    memcpy(tables, d->shapes, (size_t)d->num_tables * sizeof *tables);
    memcpy(features, d->features, (size_t)d->num_features * sizeof *features);
    own->num_tables = d->num_tables;
    own->num_features = d->num_features;
    for (int32_t f = 0; f < d->num_features; f++) features[f].bags = bags;
    own->id_type = d->id_type;
    own->grad_type = d->grad_type;
    batch_count(own, features);
    batch_lay_out_rows(tables, features, own->num_features);
    batch_derive_counted(own, tables, features);
}

/* Bags begin .. end-1 of a batch as contiguous bytes: offsets, ids, weights, gradient. */
static char *cut_batch(const struct deal *d, const struct batch *whole, int64_t begin, int64_t end,
                       size_t *bytes) {
    const int64_t bags = end - begin, flat = whole->num_features * bags;
    const size_t id = id_bytes(d);
    int64_t lookups = 0, elements = 0;
    for (int32_t f = 0; f < whole->num_features; f++) {
        const struct feature *x = &whole->features[f];
        const int64_t *at = whole->offsets + x->first_bag, own = at[end] - at[begin];
        lookups += own;
        elements += (x->pooling == POOL_NONE ? own : bags) * whole->tables[x->table].dim;
    }
    *bytes = (size_t)(flat + 1) * 8 + (size_t)lookups * (id + (whole->lookup_weights ? 4 : 0)) +
             (size_t)(elements * dtype_bytes(whole->grad_type));
    char *data = must_have(malloc(*bytes + 1)), *ids = data + (flat + 1) * 8;
    char *weights = ids + (size_t)lookups * id;
    int64_t *offsets = (int64_t *)data, at = 0;
    offsets[0] = 0;
    for (int32_t f = 0; f < whole->num_features; f++) {
        const int64_t *there = whole->offsets + whole->features[f].first_bag;
        const int64_t first = there[begin], count = there[end] - first;
        memcpy(ids + (size_t)at * id, (const char *)whole->ids + (size_t)first * id,
               (size_t)count * id);
        if (whole->lookup_weights)
            memcpy(weights + at * 4, whole->lookup_weights + first, (size_t)count * 4);
        for (int64_t b = 0; b < bags; b++)
            offsets[f * bags + b + 1] = at + there[begin + b + 1] - first;
        at += count;
    }
    if (whole->grad)
        deal_move_bags(whole, begin, end, DEAL_TAKE, (void *)(uintptr_t)whole->grad,
                       weights + (whole->lookup_weights ? lookups * 4 : 0));
    return data;
}

static const void *copy_of(const char **data, size_t bytes) {
    void *copy = memcpy(must_have(array_alloc((int64_t)bytes + 1, 1)), *data, bytes);
    *data += bytes;
    return copy;
}

/* Makes a batch of such bytes. */
static void take_batch(const struct deal *d, int64_t bags, const char *data, struct batch *own) {
    *own = (struct batch){0};
    own->offsets = copy_of(&data, (size_t)(d->num_features * bags + 1) * sizeof *own->offsets);
    lay_out_own(d, own, bags);
    own->ids = copy_of(&data, (size_t)own->lookups * id_bytes(d));
    if (d->weighted) own->lookup_weights = copy_of(&data, (size_t)own->lookups * 4);
    own->grad = copy_of(&data, deal_grad_bytes(own));
}

void deal_cut(const struct deal *d, const struct batch *whole, int64_t begin, int64_t end,
              struct batch *own) {
    size_t bytes;
    char *data = cut_batch(d, whole, begin, end, &bytes);
    take_batch(d, end - begin, data, own);
    free(data);
}

int deal_batch(const struct deal *d, const struct batch *whole, struct batch *own,
               struct error *err) {
    struct transport *t = d->transport;
    const int64_t begin = first_bag(d, t->rank), end = first_bag(d, t->rank + 1);
    struct message message;
    void *data;
    *own = (struct batch){0};
    t->channel = CHANNEL_CONTROL;
    if (t->rank) {
        if (transport_receive(t, 0, TAG_SLICE, &data, &message, err)) return -1;
        take_batch(d, end - begin, data, own);
        free(data);
        return 0;
    }
    for (int r = 1; r < t->ranks; r++) {
        size_t bytes;
        data = cut_batch(d, whole, first_bag(d, r), first_bag(d, r + 1), &bytes);
        const int status = transport_send(t, r, TAG_SLICE, data, bytes, err);
        free(data);
        if (status) return -1;
    }
    deal_cut(d, whole, begin, end, own);
    return 0;
}

void deal_free(struct batch *own) {
    free((void *)own->offsets);
    free((void *)own->ids);
    free((void *)own->lookup_weights);
    free((void *)own->grad);
    free((void *)own->tables);
    free((void *)own->features);
    *own = (struct batch){0};
}

int64_t deal_rows_in(const struct shard *part, int64_t begin, int64_t end, int64_t *first) {
    const int64_t skip = 1 + part->row_skip;
    const int64_t low = begin <= part->row ? 0 : (begin - part->row + skip - 1) / skip;
    const int64_t high = end <= part->row ? 0 : (end - part->row + skip - 1) / skip;
    *first = min64(low, part->rows);
    return max64(0, min64(high, part->rows) - *first);
}

size_t deal_rows_bytes(const struct sharding *s, const struct shard *part,
                       const struct table_shape *shapes, int64_t rows) {
    const struct table_shape shape = sharding_shape(s, part, shapes);
    size_t bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) bytes += (size_t)(rows * table_memory_stride(&shape, a));
    return bytes;
}

struct table deal_rows_in_message(const struct table_shape *shape, int64_t rows, void *data) {
    void *memory[TABLE_ARRAYS];
    char *at = data;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        memory[a] = at;
        at += rows * table_memory_stride(shape, a);
    }
    return table_in(shape, memory);
}

bool deal_put_rows(const struct sharding *s, const struct shard *part,
                   const struct table_shape *shape, bool again, struct table *whole, int64_t begin,
                   int64_t first, int64_t count, const struct table *rows) {
    const bool compares = again && sharding_copies(s->kind[part->table]);
    bool same = true;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t element = dtype_bytes(table_array_type(shape, a));
        const size_t bytes = (size_t)(table_array_width(shape, a) * element);
        for (int64_t i = 0; bytes && i < count; i++) {
            char *there =
                array_row(&whole->array[a], part->row + (first + i) * (1 + part->row_skip) - begin);
            char *here = array_row(&rows->array[a], i);
            if (a != TABLE_ROW_STATE) there += part->column * element;
            if (compares)
                same &= memcmp(there, here, bytes) == 0;
            else
                memcpy(there, here, bytes);
        }
    }
    return same;
}
