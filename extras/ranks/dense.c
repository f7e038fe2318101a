/* SPDX-License-Identifier: MIT */
#include "extras/ranks/dense.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/batch_fill.h"
#include "harness/workload/workload.h"

/* Table number i of this rank; every rank has the same ones. */
static int32_t table_of(const struct dense *d, int32_t i) {
    return d->sharding->shards[d->sharding->first[d->transport->rank] + i].table;
}

static int32_t num_tables(const struct dense *d) {
    const int me = d->transport->rank;
    return d->sharding->first[me + 1] - d->sharding->first[me];
}

static const struct table_shape *shape_of(const struct dense *d, int32_t i) {
    return &d->own->tables[table_of(d, i)];
}

static size_t touched_bytes(const struct dense *d) {
    size_t bytes = 0;
    for (int32_t i = 0; i < num_tables(d); i++) bytes += (size_t)(shape_of(d, i)->rows + 7) / 8;
    return bytes;
}

int dense_open(struct dense *d, const struct sharding *s, struct transport *t,
               const struct batch *own, struct error *err) {
    *d = (struct dense){.sharding = s, .transport = t, .own = own};
    int64_t elements = 0;
    for (int32_t i = 0; i < num_tables(d); i++) {
        const int64_t all = shape_of(d, i)->rows * shape_of(d, i)->dim;
        if (all > elements) elements = all;
    }
    if (memory_require(elements * (int64_t)sizeof(float), "a dense gradient", err)) return -1;
    room_for(&d->sum, (size_t)elements * sizeof(float) + 1);
    return 0;
}

void dense_close(struct dense *d) {
    struct room *rooms[] = {&d->sum, &d->touched, &d->all_touched, &d->offsets, &d->ids, &d->grad};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
    free((void *)d->local.tables);
    free((void *)d->local.features);
    *d = (struct dense){0};
}

/* --- which rows */

/* Marks the rows of table i that a lookup touches. */
static void mark_touched(const struct dense *d, int32_t i, unsigned char *bits) {
    const struct batch *in = d->own;
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        if (x->table != table_of(d, i)) continue;
        for (int64_t at = x->first_lookup; at < x->first_lookup + x->lookups; at++) {
            const int64_t id = batch_id(in, at);
            if (id != x->padding_id) bits[id / 8] |= (unsigned char)(1 << id % 8);
        }
    }
}

/* The local batch: all touched rows of each table, in ascending order. */
static void lay_out(struct dense *d, const unsigned char *touched) {
    const int32_t tables = num_tables(d);
    const size_t id_bytes = d->own->id_type == ID_INT32 ? 4 : 8;
    struct batch *local = &d->local;
    struct table_shape *shapes = (struct table_shape *)local->tables;
    struct feature *features = (struct feature *)local->features;
    if (!shapes) {
        shapes = must_have(calloc((size_t)tables + 1, sizeof *shapes));
        features = must_have(calloc((size_t)tables + 1, sizeof *features));
    }
    int64_t *offsets = room_for(&d->offsets, (size_t)(tables + 1) * sizeof *offsets);
    int64_t rows = 0;
    for (int32_t i = 0; i < tables; i++) rows += shape_of(d, i)->rows;
    void *ids = room_for(&d->ids, (size_t)rows * id_bytes + 1);
    int64_t count = 0;
    offsets[0] = 0;
    for (int32_t i = 0; i < tables; i++) {
        shapes[i] = sharding_shape(d->sharding,
                                   &d->sharding->shards[d->sharding->first[d->transport->rank] + i],
                                   d->own->tables);
        features[i] =
            (struct feature){.table = i, .bags = 1, .pooling = POOL_NONE, .padding_id = -1};
        for (int64_t row = 0; row < shapes[i].rows; row++)
            if (touched[row / 8] >> row % 8 & 1) put_id(d->own->id_type, ids, count++, row);
        touched += (shapes[i].rows + 7) / 8;
        offsets[i + 1] = count;
    }
    *local = (struct batch){.num_tables = tables,
                            .num_features = tables,
                            .id_type = d->own->id_type,
                            .ids = ids,
                            .offsets = offsets,
                            .grad_type = FP32,
                            .tables = shapes,
                            .features = features};
    batch_count(local, features);
    batch_lay_out_rows(shapes, features, tables);
    batch_derive_counted(local, shapes, features);
    local->grad = room_for(&d->grad, (size_t)local->grad_elements * sizeof(float) + 1);
}

int dense_ids(struct dense *d, struct error *err) {
    struct transport *t = d->transport;
    const size_t bytes = touched_bytes(d);
    unsigned char *own = memset(room_for(&d->touched, bytes + 1), 0, bytes + 1), *at = own;
    unsigned char *all = room_for(&d->all_touched, bytes * (size_t)t->ranks + 1);
    for (int32_t i = 0; i < num_tables(d); at += (shape_of(d, i++)->rows + 7) / 8)
        mark_touched(d, i, at);
    t->channel = CHANNEL_IDS;
    if (transport_all_gather(t, own, bytes, all, err)) return -1;
    for (int r = 0; r < t->ranks; r++)
        for (size_t i = 0; i < bytes; i++) own[i] |= all[(size_t)r * bytes + i];
    lay_out(d, own);
    return 0;
}

/* --- the gradient */

/* Adds own lookups to the dense gradient of a table, in their order. A thread has columns of its own. */
static void add_lookups(const struct dense *d, int32_t i, float *sum) {
    const struct batch *in = d->own;
    const int32_t dim = shape_of(d, i)->dim;
    enum { COLUMNS = 16 };
#pragma omp parallel for schedule(static)
    for (int32_t first = 0; first < dim; first += COLUMNS) {
        const int32_t last = first + COLUMNS < dim ? first + COLUMNS : dim;
        for (int32_t f = 0; f < in->num_features; f++) {
            const struct feature *x = &in->features[f];
            if (x->table != table_of(d, i)) continue;
            for (int64_t q = x->first_bag; q < x->first_bag + x->bags; q++) {
                int64_t count = 0;
                for (int64_t at = in->offsets[q]; at < in->offsets[q + 1]; at++)
                    count += batch_id(in, at) != x->padding_id;
                const float mean = 1.0f / (float)(count ? count : 1);
                for (int64_t at = in->offsets[q]; at < in->offsets[q + 1]; at++) {
                    const int64_t id = batch_id(in, at);
                    if (id == x->padding_id) continue;
                    float scale = in->lookup_weights ? in->lookup_weights[at] : 1;
                    if (x->pooling == POOL_MEAN) scale *= mean;
                    const int64_t row =
                        x->pooling == POOL_NONE ? at - x->first_lookup : q - x->first_bag;
                    const int64_t from = x->grad_offset + row * x->grad_stride;
                    for (int32_t c = first; c < last; c++)
                        sum[id * dim + c] += scale * batch_grad(in, from + c);
                }
            }
        }
    }
}

int dense_gradient(struct dense *d, struct error *err) {
    struct transport *t = d->transport;
    int64_t *begin = must_have(calloc((size_t)t->ranks + 1, sizeof *begin));
    size_t *bytes = must_have(calloc((size_t)t->ranks + 1, sizeof *bytes));
    float *sum = d->sum.data;
    int status = 0;
    t->channel = CHANNEL_GRADIENT;
    for (int32_t i = 0; status == 0 && i < num_tables(d); i++) {
        const int64_t rows = shape_of(d, i)->rows, dim = shape_of(d, i)->dim;
        memset(sum, 0, (size_t)(rows * dim) * sizeof *sum);
        add_lookups(d, i, sum);
        for (int r = 0; r <= t->ranks; r++) {
            begin[r] = sharding_bag(rows, r, t->ranks) * dim;
            bytes[r] = (size_t)begin[r] * sizeof *sum;
        }
        float *block = sum + begin[t->rank];
        status = transport_reduce_scatter(t, sum, begin, block, err) ||
                 transport_gather(t, block, bytes, sum, err);
        const struct feature *x = &d->local.features[i];
        const int64_t first = d->local.offsets[i];
        float *grad = (float *)d->grad.data + x->grad_offset;
#pragma omp parallel for
        for (int64_t k = 0; k < x->lookups; k++)
            memcpy(grad + k * dim, sum + batch_id(&d->local, first + k) * dim,
                   (size_t)dim * sizeof *sum);
    }
    free(begin);
    free(bytes);
    return status ? -1 : 0;
}
