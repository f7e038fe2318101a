/* SPDX-License-Identifier: MIT */
#include "extras/ranks/zero.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/registry.h"
#include "kernels/host/gather.h"
#include "kernels/host/row.h"
#include "kernels/host/update.h"

struct chunk {
    void *data;
    int64_t bytes;
    bool file;
};

/* A table, and this rank's rows of it. */
struct bucket {
    struct table_shape shape; /* of a shard's rows, fp32 */
    int64_t rows, block, own; /* of the table; of a shard; of this shard without padding */
    int64_t shard;            /* elements of a shard */
    struct chunk weights, gradient, main_gradient, array[TABLE_ARRAYS];
};

struct zero {
    struct transport *t;
    struct zero_setup setup;
    int32_t count;
    struct bucket *buckets;
    struct rule *rules;
    struct zero_report report;
    int64_t held; /* in memory, without work space */
};

static bool partitions_weights(const struct zero *z) {
    return z->setup.stage == ZERO_3;
}

static bool has_main_gradient(const struct zero *z) {
    return partitions_weights(z) || z->setup.types.gradient != FP32;
}

/* --- memory, counted */

static void count(struct zero *z, enum zero_memory what, int64_t bytes, bool file) {
    struct zero_report *r = &z->report;
    r->held[what] += bytes;
    if (r->held[what] > r->most[what]) r->most[what] = r->held[what];
    if (file)
        r->offloaded += bytes;
    else if (what != ZERO_WORK)
        z->held += bytes;
    if (z->held > r->peak) r->peak = z->held;
}

static int map_file(struct zero *z, struct chunk *c, struct error *err) {
    char name[400];
    if (snprintf(name, sizeof name, "%s.%d.XXXXXX", z->setup.offload, z->t->rank) >=
        (int)sizeof name)
        return fail(err, "the name of the offload file is too long: %.80s...", z->setup.offload);
    const int fd = mkstemp(name);
    if (fd < 0) return fail(err, "cannot create the offload file %s: %m", name);
    unlink(name);
    const int no_room = posix_fallocate(fd, 0, c->bytes);
    c->data = no_room ? MAP_FAILED
                      : mmap(NULL, (size_t)c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (c->data != MAP_FAILED) return 0;
    c->data = NULL;
    return fail(err, "no room for %lld bytes in the offload file %s", (long long)c->bytes, name);
}

/* Zeroed. */
static int take(struct zero *z, struct chunk *c, enum zero_memory what, int64_t bytes,
                struct error *err) {
    const bool main =
        what == ZERO_MAIN_WEIGHTS || what == ZERO_MAIN_GRADIENT || what == ZERO_STATES;
    *c = (struct chunk){NULL, bytes, main && z->setup.offload};
    if (bytes == 0) return 0;
    if (c->file && map_file(z, c, err)) return -1;
    if (!c->file) {
        c->data = array_require(bytes, 1, "partitioned tables", err);
        if (!c->data) return -1;
        memset(c->data, 0, (size_t)bytes);
    }
    count(z, what, bytes, c->file);
    return 0;
}

static void release(struct zero *z, struct chunk *c, enum zero_memory what) {
    if (!c->data) return;
    count(z, what, -c->bytes, c->file);
    if (c->file)
        munmap(c->data, (size_t)c->bytes);
    else
        free(c->data);
    *c = (struct chunk){NULL, 0, false};
}

static enum zero_memory array_memory(const struct zero *z, int array) {
    if (array != TABLE_WEIGHT) return ZERO_STATES;
    return z->setup.types.weight == FP32 ? ZERO_WEIGHTS : ZERO_MAIN_WEIGHTS;
}

/* --- collectives on a bucket */

/* sum[shard] = the sum over ranks of this rank's shard. */
static int reduce_scatter(struct zero *z, const void *data, int64_t shard, float *sum,
                          struct error *err) {
    int64_t *begin = must_have(calloc((size_t)z->t->ranks + 1, sizeof *begin));
    for (int r = 1; r <= z->t->ranks; r++) begin[r] = r * shard;
    const int status =
        transport_reduce_scatter(z->t, z->setup.types.gradient, data, begin, sum, err);
    free(begin);
    z->report.reductions++;
    return status;
}

static char *own_weights(struct zero *z, struct bucket *b) {
    const int64_t bytes = b->shard * dtype_bytes(z->setup.types.weight);
    return (char *)b->weights.data + (partitions_weights(z) ? 0 : z->t->rank * bytes);
}

static int gather_weights(struct zero *z, struct bucket *b, void *all, struct error *err) {
    z->t->channel = CHANNEL_WEIGHT;
    z->report.gathers++;
    const int64_t bytes = b->shard * dtype_bytes(z->setup.types.weight);
    return transport_all_gather(z->t, own_weights(z, b), (size_t)bytes, all, err);
}

/* --- opening */

/* The memory of an array of this rank's rows. */
static char *array_data(struct zero *z, struct bucket *b, int array) {
    return array == TABLE_WEIGHT && z->setup.types.weight == FP32 ? own_weights(z, b)
                                                                  : b->array[array].data;
}

static void narrow_weights(struct zero *z, struct bucket *b) {
    if (z->setup.types.weight == FP32) return;
    const float *from = b->array[TABLE_WEIGHT].data;
    char *to = own_weights(z, b);
    for (int64_t i = 0; i < b->shard; i++) dtype_set(z->setup.types.weight, to, i, from[i]);
}

static int open_bucket(struct zero *z, int32_t i, struct error *err) {
    struct bucket *b = &z->buckets[i];
    const struct table_shape *shape = &z->setup.tables->shapes[i];
    const struct zero_types types = z->setup.types;
    const int ranks = z->t->ranks;
    b->rows = shape->rows;
    b->block = (b->rows + ranks - 1) / ranks;
    b->own = max64(0, min64(b->block, b->rows - z->t->rank * b->block));
    b->shard = b->block * shape->dim;
    b->shape = *shape;
    b->shape.rows = b->block;
    b->shape.part = (struct table_part){.table = i, .row = z->t->rank * b->block};
    b->shape.adjusts = rule_adjusts(&z->rules[i]);
    const int64_t whole = ranks * b->shard, kept = partitions_weights(z) ? b->shard : whole;
    z->report.elements += b->rows * shape->dim;
    z->report.padded += whole;
    z->report.largest = max64(z->report.largest, whole);
    if (take(z, &b->weights, ZERO_WEIGHTS, kept * dtype_bytes(types.weight), err)) return -1;
    if (!partitions_weights(z) &&
        take(z, &b->gradient, ZERO_GRADIENT, whole * dtype_bytes(types.gradient), err))
        return -1;
    if (has_main_gradient(z) && take(z, &b->main_gradient, ZERO_MAIN_GRADIENT, b->shard * 4, err))
        return -1;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(shape, a);
        if (width == 0) continue;
        if ((a != TABLE_WEIGHT || types.weight != FP32) &&
            take(z, &b->array[a], array_memory(z, a), b->block * width * 4, err))
            return -1;
        for (int64_t row = 0; row < b->own; row++)
            memcpy(array_data(z, b, a) + row * width * 4,
                   array_row(&z->setup.tables->tables[i].array[a], z->t->rank * b->block + row),
                   (size_t)width * 4);
    }
    narrow_weights(z, b);
    return partitions_weights(z) ? 0 : gather_weights(z, b, b->weights.data, err);
}

int zero_open(struct zero **out, struct transport *t, const struct zero_setup *setup,
              struct error *err) {
    struct zero *z = must_have(calloc(1, sizeof *z));
    const int32_t count = setup->tables->count;
    *out = NULL;
    *z = (struct zero){.t = t, .setup = *setup, .count = count};
    z->buckets = must_have(calloc((size_t)count + 1, sizeof *z->buckets));
    z->rules = must_have(calloc((size_t)count + 1, sizeof *z->rules));
    memcpy(z->rules, setup->rules, (size_t)count * sizeof *z->rules);
    int status = 0;
    for (int32_t i = 0; status == 0 && i < count; i++)
        status = table_is_narrow(&setup->tables->shapes[i])
                     ? fail(err, "table %d is not fp32: give ZeRO its types apart", i)
                     : open_bucket(z, i, err);
    z->report.gathers = 0;
    if (status) zero_close(z);
    if (status == 0) *out = z;
    return status;
}

void zero_close(struct zero *z) {
    for (int32_t i = 0; i < z->count; i++) {
        struct bucket *b = &z->buckets[i];
        release(z, &b->weights, ZERO_WEIGHTS);
        release(z, &b->gradient, ZERO_GRADIENT);
        release(z, &b->main_gradient, ZERO_MAIN_GRADIENT);
        for (int a = 0; a < TABLE_ARRAYS; a++) release(z, &b->array[a], array_memory(z, a));
    }
    free(z->buckets);
    free(z->rules);
    free(z);
}

struct zero_report zero_report(const struct zero *z) {
    return z->report;
}

/* --- bags of one feature, as a batch */

struct slice {
    struct batch in;
    struct table_shape shape;
    struct feature feature;
    struct chunk offsets;
};

static int slice_open(struct zero *z, struct slice *s, const struct batch *in, int32_t f,
                      int64_t begin, int64_t end, struct error *err) {
    const int64_t *at = in->offsets + f * in->bags, first = at[begin];
    s->in = *in;
    s->feature = in->features[f];
    s->shape = in->tables[s->feature.table];
    s->shape.weight_type = z->setup.types.weight;
    s->shape.features = 1;
    s->shape.first_row = 0;
    s->shape.lookups = s->feature.lookups = s->in.lookups = at[end] - first;
    s->feature.table = 0;
    s->feature.grad_offset +=
        (s->feature.pooling == POOL_NONE ? first - at[0] : begin) * s->feature.grad_stride;
    s->in.num_tables = s->in.num_features = 1;
    s->in.bags = end - begin;
    s->in.tables = &s->shape;
    s->in.features = &s->feature;
    s->in.ids = (const char *)in->ids + first * (in->id_type == ID_INT32 ? 4 : 8);
    if (in->lookup_weights) s->in.lookup_weights = in->lookup_weights + first;
    if (take(z, &s->offsets, ZERO_WORK, (end - begin + 1) * 8, err)) return -1;
    int64_t *offsets = s->offsets.data;
    for (int64_t b = begin; b <= end; b++) offsets[b - begin] = at[b] - first;
    s->in.offsets = offsets;
    return s->feature.pooling == POOL_MAX ? fail(err, "ZeRO has no max pooling (feature %d)", f)
                                          : 0;
}

struct adding {
    const struct gather *gather;
    enum dtype type;
    int32_t dim;
    char *grad;
    float *row;
};

ALWAYS_INLINE void add(void *ctx, struct lookup l) {
    struct adding *a = ctx;
    float c;
    const void *from = gather_at(a->gather, l.feature, l.q, l.i, &c);
    void *to = a->grad + l.row * a->dim * dtype_bytes(a->type);
    float *sum = a->type == FP32 ? to : a->row;
    for (int32_t d = 0; a->type != FP32 && d < a->dim; d++) sum[d] = dtype_get(a->type, to, d);
    row_add(a->gather->in->grad_type, sum, from, c, a->dim);
    for (int32_t d = 0; a->type != FP32 && d < a->dim; d++) dtype_set(a->type, to, d, sum[d]);
}

/* Adds the gradients of a slice to a table's dense gradient, in the order of the lookups. */
static int scatter_slice(struct zero *z, const struct slice *s, void *grad, struct error *err) {
    struct gather g;
    struct scratch need = {NULL, 0};
    gather_lay_out(&g, &need, &s->in, false);
    const int64_t row = (int64_t)(need.used + KERNEL_ALIGN) / KERNEL_ALIGN * KERNEL_ALIGN;
    struct chunk work;
    if (take(z, &work, ZERO_WORK, row + s->shape.dim * 4, err)) return -1;
    struct scratch have = {work.data, 0};
    gather_lay_out(&g, &have, &s->in, false);
    gather_prepare(&g);
    gather_fill(&g, 0, 1);
    struct adding a = {&g, z->setup.types.gradient, s->shape.dim, grad,
                       (float *)((char *)work.data + row)};
    walk(&s->in, 0, s->in.lookups, add, &a);
    release(z, &work, ZERO_WORK);
    return 0;
}

/* --- forward, backward, step */

int zero_forward(struct zero *z, const struct batch *in, int64_t begin, int64_t end, void *output,
                 struct error *err) {
    const struct kernel *k = registry_find(OP_FORWARD, "cpu_lookup", err);
    int status = k ? 0 : -1;
    for (int32_t i = 0; status == 0 && i < z->count; i++) {
        struct bucket *b = &z->buckets[i];
        const int64_t element = dtype_bytes(z->setup.types.weight);
        struct chunk all = {NULL, 0, false};
        if (partitions_weights(z))
            status = take(z, &all, ZERO_GATHERED, z->t->ranks * b->shard * element, err) ||
                     gather_weights(z, b, all.data, err);
        const struct table table = {
            .weight = {all.data ? all.data : b->weights.data, b->shape.dim * element}};
        for (int32_t f = 0; status == 0 && f < in->num_features; f++) {
            struct slice s;
            if (in->features[f].table != i || end == begin) continue;
            status = slice_open(z, &s, in, f, begin, end, err);
            if (status == 0)
                k->run(&s.in, NULL, &table, &(struct launch){.threads = 1, .output = output});
            release(z, &s.offsets, ZERO_WORK);
        }
        release(z, &all, ZERO_GATHERED);
    }
    return status ? -1 : 0;
}

/* The backward of a table: its gradient, summed over the ranks, of this rank's rows. */
static int backward(struct zero *z, int32_t i, const struct batch *in, int64_t begin, int64_t end,
                    struct error *err) {
    struct bucket *b = &z->buckets[i];
    const int64_t whole = z->t->ranks * b->shard, element = dtype_bytes(z->setup.types.gradient);
    struct chunk all = {NULL, 0, false}, grad = b->gradient;
    int status = 0;
    if (partitions_weights(z))
        status = take(z, &all, ZERO_GATHERED, whole * dtype_bytes(z->setup.types.weight), err) ||
                 gather_weights(z, b, all.data, err) ||
                 take(z, &grad, ZERO_GRADIENT, whole * element, err);
    else
        memset(grad.data, 0, (size_t)grad.bytes);
    for (int32_t f = 0; status == 0 && f < in->num_features; f++) {
        struct slice s;
        if (in->features[f].table != i || end == begin) continue;
        status = slice_open(z, &s, in, f, begin, end, err) || scatter_slice(z, &s, grad.data, err);
        release(z, &s.offsets, ZERO_WORK);
    }
    release(z, &all, ZERO_GATHERED);
    z->t->channel = CHANNEL_GRADIENT;
    float *sum =
        has_main_gradient(z) ? b->main_gradient.data : (float *)grad.data + z->t->rank * b->shard;
    if (status == 0) status = reduce_scatter(z, grad.data, b->shard, sum, err);
    if (partitions_weights(z)) release(z, &grad, ZERO_GRADIENT);
    return status ? -1 : 0;
}

static void update(struct zero *z, int32_t i, int64_t number) {
    struct bucket *b = &z->buckets[i];
    const struct rule_step step = rule_step(z->rules[i], number);
    const struct batch in = {.num_tables = 1, .tables = &b->shape};
    struct table io = {.watch = NULL};
    for (int a = 0; a < TABLE_ARRAYS; a++)
        io.array[a] = (struct array){array_data(z, b, a), table_array_width(&b->shape, a) * 4};
    const struct updater u = updater_of(&in, 0, &step, &io);
    float *grad = has_main_gradient(z) ? b->main_gradient.data
                                       : (float *)b->gradient.data + z->t->rank * b->shard;
    for (int64_t row = 0; row < b->own; row++) updater_row(&u, row, grad + row * b->shape.dim);
    narrow_weights(z, b);
}

int zero_step(struct zero *z, const struct batch *in, int64_t begin, int64_t end, int64_t t,
              struct error *err) {
    for (int32_t i = z->count; i-- > 0;)
        if (backward(z, i, in, begin, end, err)) return -1;
    for (int32_t i = 0; i < z->count; i++) {
        update(z, i, t);
        if (!partitions_weights(z) &&
            gather_weights(z, &z->buckets[i], z->buckets[i].weights.data, err))
            return -1;
    }
    return 0;
}

int zero_get_tables(struct zero *z, struct table_set *to, struct error *err) {
    z->t->channel = CHANNEL_CONTROL;
    for (int32_t i = 0; i < z->count; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct bucket *b = &z->buckets[i];
            const int64_t row_bytes = table_array_width(&b->shape, a) * 4;
            struct chunk all;
            if (row_bytes == 0) continue;
            int status = take(z, &all, ZERO_WORK, z->t->ranks * b->block * row_bytes, err);
            if (status == 0)
                status = transport_all_gather(z->t, array_data(z, b, a),
                                              (size_t)(b->block * row_bytes), all.data, err);
            for (int64_t row = 0; status == 0 && row < b->rows; row++)
                memcpy(array_row(&to->tables[i].array[a], row), (char *)all.data + row * row_bytes,
                       (size_t)row_bytes);
            release(z, &all, ZERO_WORK);
            if (status) return -1;
        }
    return 0;
}
