/* SPDX-License-Identifier: MIT */
#include "ranks/member.h"

#include <stdlib.h>
#include <string.h>

#include "harness/measure/disturbance.h"
#include "harness/measure/runner.h"
#include "harness/registry.h"
#include "harness/workload/batch_fill.h"
#include "harness/workload/workload.h"
#include "kernels/forward.h"
#include "kernels/shape.h"

/* --- opening: rank 0 cuts every batch into blocks of bags */

static int64_t first_bag(const struct member *m, int rank) {
    return sharding_bag(m->opening.bags, rank, m->transport->ranks);
}

static size_t id_bytes(const struct member *m) {
    return m->opening.id_type == ID_INT32 ? 4 : 8;
}

/* Gives a batch of own bags its layout; its offsets are there. */
static void lay_out_own(struct member *m, int k, int64_t bags) {
    struct batch *own = &m->own[k];
    struct table_shape *tables = must_have(calloc((size_t)m->opening.num_tables, sizeof *tables));
    struct feature *features = must_have(calloc((size_t)m->opening.num_features, sizeof *features));
    memcpy(tables, m->shapes, (size_t)m->opening.num_tables * sizeof *tables);
    memcpy(features, m->features, (size_t)m->opening.num_features * sizeof *features);
    own->num_tables = m->opening.num_tables;
    own->num_features = m->opening.num_features;
    own->bags = bags;
    own->id_type = m->opening.id_type;
    own->grad_type = m->opening.grad_type;
    batch_count(own, features);
    batch_lay_out_rows(tables, features, own->num_features, bags);
    batch_derive_counted(own, tables, features);
}

/* Bags begin .. end-1 of a whole batch, as bytes one behind the other: offsets, ids, weights, gradient. */
static char *cut_batch(const struct member *m, const struct batch *whole, int64_t begin,
                       int64_t end, size_t *bytes) {
    const int64_t bags = end - begin, flat = whole->num_features * bags;
    const size_t element = (size_t)dtype_bytes(whole->grad_type);
    int64_t lookups = 0, elements = 0;
    struct feature *layout = must_have(calloc((size_t)whole->num_features, sizeof *layout));
    for (int32_t f = 0; f < whole->num_features; f++) {
        const int64_t *at = whole->offsets + f * whole->bags;
        layout[f] = whole->features[f];
        layout[f].lookups = at[end] - at[begin];
        lookups += layout[f].lookups;
        elements += (layout[f].pooling == POOL_NONE ? layout[f].lookups : bags) *
                    whole->tables[layout[f].table].dim;
    }
    batch_lay_out_rows(whole->tables, layout, whole->num_features, bags);
    *bytes = (size_t)(flat + 1) * 8 +
             (size_t)lookups * (id_bytes(m) + (whole->lookup_weights ? 4 : 0)) +
             (size_t)elements * element;
    char *data = must_have(malloc(*bytes + 1)), *ids = data + (flat + 1) * 8;
    char *weights = ids + (size_t)lookups * id_bytes(m);
    char *grad = weights + (whole->lookup_weights ? lookups * 4 : 0);
    int64_t *offsets = (int64_t *)data, at = 0;
    offsets[0] = 0;
    for (int32_t f = 0; f < whole->num_features; f++) {
        const struct feature *from = &whole->features[f], *to = &layout[f];
        const int64_t *there = whole->offsets + f * whole->bags;
        const int64_t first = there[begin], count = to->lookups;
        memcpy(ids + (size_t)at * id_bytes(m),
               (const char *)whole->ids + (size_t)first * id_bytes(m), (size_t)count * id_bytes(m));
        if (whole->lookup_weights)
            memcpy(weights + at * 4, whole->lookup_weights + first, (size_t)count * 4);
        for (int64_t b = 0; b < bags; b++)
            offsets[f * bags + b + 1] = at + there[begin + b + 1] - first;
        at += count;
        const bool sequence = to->pooling == POOL_NONE;
        const int64_t rows = sequence ? count : bags, skip = sequence ? first - there[0] : begin;
        for (int64_t i = 0; whole->grad && i < rows; i++)
            memcpy(grad + (size_t)(to->grad_offset + i * to->grad_stride) * element,
                   (const char *)whole->grad +
                       (size_t)(from->grad_offset + (skip + i) * from->grad_stride) * element,
                   (size_t)whole->tables[to->table].dim * element);
    }
    free(layout);
    return data;
}

/* Takes such bytes as batch k. */
static void take_batch(struct member *m, int k, const char *data) {
    struct batch *own = &m->own[k];
    const int me = m->transport->rank;
    const int64_t bags = first_bag(m, me + 1) - first_bag(m, me);
    const int64_t flat = m->opening.num_features * bags;
    int64_t *offsets = must_have(array_alloc(flat + 1, sizeof *offsets));
    memcpy(offsets, data, (size_t)(flat + 1) * sizeof *offsets);
    data += (flat + 1) * 8;
    own->offsets = offsets;
    lay_out_own(m, k, bags);
    const size_t ids = (size_t)own->lookups * id_bytes(m), weights = (size_t)own->lookups * 4,
                 grad = (size_t)(own->grad_elements * dtype_bytes(own->grad_type));
    own->ids = memcpy(must_have(array_alloc((int64_t)ids + 1, 1)), data, ids);
    data += ids;
    if (m->opening.weighted) {
        own->lookup_weights =
            memcpy(must_have(array_alloc((int64_t)weights + 1, 1)), data, weights);
        data += weights;
    }
    own->grad = memcpy(must_have(array_alloc((int64_t)grad + 1, 1)), data, grad);
}

static int deal_batches(struct member *m, const struct batch *whole, struct error *err) {
    struct transport *t = m->transport;
    t->channel = CHANNEL_CONTROL;
    for (int k = 0; k < m->opening.ring; k++)
        if (t->rank == 0)
            for (int r = t->ranks; r-- > 0;) {
                size_t bytes;
                char *data = cut_batch(m, &whole[k], first_bag(m, r), first_bag(m, r + 1), &bytes);
                const int status = r ? transport_send(t, r, TAG_SLICE, data, bytes, err) : 0;
                if (r == 0) take_batch(m, k, data);
                free(data);
                if (status) return -1;
            }
        else {
            void *data;
            struct message message;
            if (transport_receive(t, 0, TAG_SLICE, &data, &message, err)) return -1;
            take_batch(m, k, data);
            free(data);
        }
    return 0;
}

static int32_t num_shards(const struct member *m) {
    const int me = m->transport->rank;
    return m->sharding.first[me + 1] - m->sharding.first[me];
}

static bool has_shared(const struct member *m) {
    return m->routes[0].of[m->transport->rank].shared > 0;
}

/* The rows of a shard as bytes: array by array. */
static char *cut_rows(const struct member *m, const struct shard *part, const struct table *whole,
                      size_t *bytes) {
    const struct table_shape shape = sharding_shape(&m->sharding, part, m->shapes);
    *bytes = member_rows_bytes(&m->sharding, part, m->shapes, part->rows);
    char *data = must_have(malloc(*bytes + 1)), *at = data;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_memory_stride(&shape, a);
        const int64_t skip = part->column * dtype_bytes(table_array_type(&shape, a));
        for (int64_t i = 0; width && i < part->rows; i++, at += width)
            memcpy(at,
                   (char *)array_row(&whole->array[a], part->row + i * (1 + part->row_skip)) + skip,
                   (size_t)width);
    }
    return data;
}

static int deal_tables(struct member *m, const struct table_set *whole, struct error *err) {
    struct transport *t = m->transport;
    const struct sharding *s = &m->sharding;
    t->channel = CHANNEL_CONTROL;
    for (int32_t i = 0; t->rank == 0 && i < s->count; i++) {
        size_t bytes;
        char *data = cut_rows(m, &s->shards[i], &whole->tables[s->shards[i].table], &bytes);
        const int status = transport_send(t, s->shards[i].rank, TAG_ROWS, data, bytes, err);
        free(data);
        if (status) return -1;
    }
    if (num_shards(m) == 0) return 0;
    if (tables_create(&m->tables, m->routes[0].local.tables, num_shards(m), m->opening.seed, err))
        return -1;
    for (int32_t i = 0; i < num_shards(m); i++) {
        void *data;
        struct message message;
        if (transport_receive(t, 0, TAG_ROWS, &data, &message, err)) return -1;
        const char *at = data;
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const size_t bytes = table_memory_bytes(&m->tables.shapes[i], a);
            if (bytes) memcpy(m->tables.tables[i].array[a].data, at, bytes);
            at += bytes;
        }
        free(data);
    }
    return 0;
}

static int open_inner(struct member *m, struct error *err) {
    const struct opening *o = &m->opening;
    const int ring = o->ring;
    for (int k = 0; k < ring; k++) {
        m->batches[k] = m->routes[k].local;
        m->batches[ring + k] = m->routes[k].forward;
        m->batches[2 * ring + k] = m->routes[k].shared;
    }
    const int count = has_shared(m) ? 3 * ring : 2 * ring;
    for (int k = 0; k < count; k++) {
        if (batch_validate_lookups(&m->batches[k], err)) return -1;
        m->index[k] = row_index_build(&m->batches[k]);
    }
    const struct place_setup setup = {.shapes = m->batches[0].tables,
                                      .num_tables = num_shards(m),
                                      .batches = m->batches,
                                      .index = m->index,
                                      .ring = count,
                                      .threads = o->threads,
                                      .seed = o->seed,
                                      .tables = o->own_tables ? &m->tables : NULL,
                                      .timed = o->timed,
                                      .operation = o->operation};
    m->inner = place_open(o->backend, &setup, err);
    return m->inner ? 0 : -1;
}

static int open_routes(struct member *m, struct error *err) {
    const struct opening *o = &m->opening;
    for (int k = 0; k < o->ring; k++) {
        struct batch whole = m->own[k];
        whole.bags = o->bags;
        if (route_open(&m->routes[k], &m->sharding, m->transport, &whole, &m->own[k], o->all_rows,
                       err))
            return -1;
    }
    return 0;
}

int member_open(struct member *m, struct transport *t, const struct opening *o,
                const struct table_shape *shapes, const struct batch *whole,
                const struct table_set *tables, struct error *err) {
    memset(m, 0, sizeof *m);
    m->transport = t;
    m->opening = *o;
    t->phase = "opening";
    const size_t count = (size_t)o->num_tables, features = (size_t)o->num_features;
    m->shapes = must_have(calloc(count, sizeof *m->shapes));
    m->features = must_have(calloc(features, sizeof *m->features));
    m->steps = must_have(calloc(count, sizeof *m->steps));
    m->local_steps = must_have(calloc(count, sizeof *m->local_steps));
    if (t->rank == 0) {
        memcpy(m->shapes, shapes, count * sizeof *m->shapes);
        memcpy(m->features, whole[0].features, features * sizeof *m->features);
    }
    t->channel = CHANNEL_CONTROL;
    if (transport_broadcast(t, 0, m->shapes, count * sizeof *m->shapes, err) ||
        transport_broadcast(t, 0, m->features, features * sizeof *m->features, err))
        return -1;
    int status = sharding_make(&m->sharding, o->sharding, NULL, m->shapes, o->num_tables, t->ranks,
                               t->nodes, err);
    if (transport_agree(t, status, err) || deal_batches(m, whole, err)) return -1;
    if (transport_agree(t, open_routes(m, err), err)) return -1;
    for (int k = 0; k < o->ring; k++)
        if (route_ids(&m->routes[k], err) || route_gradient(&m->routes[k], err)) return -1;
    if (o->own_tables && transport_agree(t, deal_tables(m, tables, err), err)) return -1;
    status = num_shards(m) ? open_inner(m, err) : 0;
    return transport_agree(t, status, err);
}

void member_close(struct member *m) {
    struct place *p = m->inner;
    if (p) {
        p->ops->scratch_close(p, &m->scratch);
        p->ops->scratch_close(p, &m->output);
        p->ops->scratch_close(p, &m->shared_output);
        p->ops->close(p);
    }
    for (int k = 0; k < PLACE_RING_MAX; k++) row_index_free(&m->index[k]);
    for (int k = 0; k < RING_MAX; k++) {
        route_close(&m->routes[k]);
        struct batch *own = &m->own[k];
        free((void *)own->offsets);
        free((void *)own->ids);
        free((void *)own->lookup_weights);
        free((void *)own->grad);
        free((void *)own->tables);
        free((void *)own->features);
    }
    tables_free(&m->tables);
    sharding_free(&m->sharding);
    free(m->shapes);
    free(m->features);
    free(m->steps);
    free(m->local_steps);
    free(m->result);
    free(m->output_copy.data);
    free(m->shared_copy.data);
    memset(m, 0, sizeof *m);
}

/* --- orders */

static const struct kernel *kernel_of(int number) {
    return number < 0 ? NULL : registry()[number].kernel;
}

/* What this rank's kernel would run on: the local batches of its operation. */
static int first_batch(const struct member *m, const struct kernel *k) {
    return k->operation == OP_FORWARD ? m->opening.ring : 0;
}

static int scratch_bytes(const struct member *m, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    *bytes = 0;
    if (!m->inner) return 0;
    if (k->operation == OP_STEP && m->transport->ranks > 1 && has_shared(m) &&
        !(k->traits & DETERMINISTIC))
        return fail(err,
                    "%s gives other bits on every run, so the ranks' copies of a table would drift "
                    "apart; take another kernel or sharding",
                    k->name);
    const struct place_setup setup = {.batches = m->batches + first_batch(m, k),
                                      .ring = m->opening.ring,
                                      .threads = m->opening.threads};
    return setup_scratch_bytes(&setup, k, bytes, err);
}

/* Scratch of exactly the size that the kernel needs on this rank. */
static int open_scratch(struct member *m, const struct kernel *k, int fill, struct error *err) {
    struct place *p = m->inner;
    size_t bytes;
    if (!p) return 0;
    const bool fresh = m->scratch_of != k;
    if (fresh) {
        if (scratch_bytes(m, k, &bytes, err)) return -1;
        p->ops->scratch_close(p, &m->scratch);
        m->scratch_of = NULL;
        if (p->ops->scratch_open(p, &m->scratch, bytes, "scratch", err)) return -1;
        m->scratch_of = k;
    }
    if (fill == AS_IT_IS && fresh) fill = POISON;
    return fill == AS_IT_IS ? 0 : p->ops->scratch_fill(p, &m->scratch, fill, err);
}

static int open_outputs(struct member *m, struct error *err) {
    struct place *p = m->inner;
    size_t most = 0, shared = 0, own = 0;
    for (int k = 0; k < m->opening.ring; k++) {
        int32_t *winners;
        const size_t bytes = forward_lay_out(&m->routes[k].forward, NULL, &winners);
        const size_t beside = forward_lay_out(&m->routes[k].shared, NULL, &winners);
        const size_t mine = forward_lay_out(&m->own[k], NULL, &winners);
        most = bytes > most ? bytes : most;
        shared = beside > shared ? beside : shared;
        own = mine > own ? mine : own;
    }
    if (!m->result) m->result = must_have(array_alloc((int64_t)own + 1, 1));
    if (!p || m->output.data || m->shared_output.data) return 0;
    return p->ops->scratch_open(p, &m->output, most, "the output", err) ||
                   p->ops->scratch_open(p, &m->shared_output, shared, "the output", err)
               ? -1
               : 0;
}

/* One of the inner place's kernels on one of its batches; nothing to do without features. */
static int run_inner(struct member *m, const struct kernel *k, int batch,
                     struct place_scratch *scratch, struct place_scratch *output, bool planned,
                     void (*mark)(void *, enum stage), void *ctx, struct error *err) {
    if (!m->inner || m->batches[batch].num_features == 0) return 0;
    const struct place_job job = {.kernel = k,
                                  .batch = batch,
                                  .steps = m->local_steps,
                                  .scratch = scratch,
                                  .output = output,
                                  .planned = planned,
                                  .mark = mark,
                                  .mark_ctx = ctx};
    return m->inner->ops->run(m->inner, &job, err);
}

/* The output of a forward in host memory. */
static const void *in_host_memory(struct member *m, const struct place_scratch *s,
                                  struct room *copy, struct error *err) {
    if (!m->inner || s->bytes == 0 || m->inner->ops->tables(m->inner)) return s->data;
    void *to = room_for(copy, s->bytes);
    return m->inner->ops->scratch_get(m->inner, s, to, err) ? NULL : to;
}

/* A place with memory of its own gets what came. */
static int renew(struct member *m, int batch, struct error *err) {
    return m->inner && m->batches[batch].num_features ? m->inner->ops->renew(m->inner, batch, err)
                                                      : 0;
}

/* The forward of a batch: rows of the shards, then the outputs of own bags. */
static int forward(struct member *m, const struct kernel *k, int batch, double *lookup,
                   double *output, struct error *err) {
    const int ring = m->opening.ring;
    const double begin = clock_seconds();
    int status = renew(m, ring + batch, err);
    if (status == 0)
        status = run_inner(m, k, ring + batch, &m->none, &m->output, false, NULL, NULL, err);
    if (status == 0 && has_shared(m))
        status =
            run_inner(m, k, 2 * ring + batch, &m->none, &m->shared_output, false, NULL, NULL, err);
    const double middle = clock_seconds();
    *lookup = middle - begin;
    m->transport->phase = "exchange of outputs";
    if (status) return -1;
    const void *own = in_host_memory(m, &m->output, &m->output_copy, err);
    const void *shared = in_host_memory(m, &m->shared_output, &m->shared_copy, err);
    status = route_output(&m->routes[batch], own, shared, m->result, err);
    *output = clock_seconds() - middle;
    return status;
}

struct stopwatch {
    double last, *stage;
};

static void stop(void *ctx, enum stage ended) {
    struct stopwatch *s = ctx;
    const double now = clock_seconds();
    s->stage[ended] += now - s->last;
    s->last = now;
}

static int plan_inner(struct member *m, const struct kernel *k, int batch, struct error *err) {
    if (!m->inner || !k->plan || m->batches[batch].num_features == 0) return 0;
    const struct place_job job = {
        .kernel = k, .batch = batch, .steps = m->local_steps, .scratch = &m->scratch};
    return m->inner->ops->plan(m->inner, &job, err);
}

static int64_t sent(const struct member *m, enum channel channel) {
    return m->transport->bytes[channel].sent;
}

/* One operation, with its times. The bytes of its exchanges are in the transport. */
static int operate(struct member *m, const struct order *o, struct step_times *times,
                   struct error *err) {
    const struct kernel *k = kernel_of(o->kernel), *lookup = kernel_of(o->forward);
    struct route *r = &m->routes[o->batch];
    struct exchanged *by = times->exchange;
    const bool step = k->operation == OP_STEP, iteration = lookup != NULL;
    double begin = clock_seconds(), at = begin;
    m->transport->phase = "exchange of ids";
    if (route_ids(r, err)) return -1;
    by[EXCHANGE_IDS].seconds = clock_seconds() - at;
    int status = 0;
    if (step && !iteration) {
        at = clock_seconds();
        m->transport->phase = "plan";
        status = plan_inner(m, k, o->batch, err);
        times->plan = clock_seconds() - at + by[EXCHANGE_IDS].seconds;
        if (status == 0 && o->cold && m->inner) status = m->inner->ops->flush(m->inner, err);
        if (transport_agree(m->transport, status, err)) return -1;
        begin = clock_seconds();
    }
    if (!step || iteration)
        if (forward(m, step ? lookup : k, o->batch, &times->forward, &by[EXCHANGE_OUTPUT].seconds,
                    err))
            return -1;
    if (step) {
        at = clock_seconds();
        m->transport->phase = "exchange of gradients";
        if (route_gradient(r, err)) return -1;
        status = renew(m, o->batch, err);
        by[EXCHANGE_GRADIENT].seconds = clock_seconds() - at;
        if (iteration && status == 0) {
            at = clock_seconds();
            status = plan_inner(m, k, o->batch, err);
            times->plan = clock_seconds() - at;
        }
        m->transport->phase = "update";
        struct stopwatch watch = {clock_seconds(), times->stage};
        if (status == 0)
            status = run_inner(m, k, o->batch, &m->scratch, NULL, true, stop, &watch, err);
    }
    times->seconds = clock_seconds() - begin;
    return status;
}

static void merge_bytes(struct member *m, const struct transport_bytes before[CHANNELS],
                        struct exchanged *by) {
    static const enum channel of[EXCHANGES][2] = {
        [EXCHANGE_IDS] = {CHANNEL_LENGTHS, CHANNEL_IDS},
        [EXCHANGE_OUTPUT] = {CHANNEL_OUTPUT, CHANNEL_OUTPUT},
        [EXCHANGE_GRADIENT] = {CHANNEL_GRADIENT, CHANNEL_GRADIENT}};
    for (int e = 0; e < EXCHANGES; e++)
        for (int i = 0; i < 2 && (i == 0 || of[e][0] != of[e][1]); i++) {
            by[e].sent += sent(m, of[e][i]) - before[of[e][i]].sent;
            by[e].received += m->transport->bytes[of[e][i]].received - before[of[e][i]].received;
        }
}

/* The largest of all ranks, of every number of the times; bytes also as a sum. */
static int merge_times(struct member *m, struct step_times *t, struct error *err) {
    enum { OWN = 4, COUNT = OWN + STAGE_COUNT + 3 * EXCHANGES };
    double most[COUNT] = {t->seconds, t->forward, t->plan, t->disturbed}, *at = most + OWN;
    for (int s = 0; s < STAGE_COUNT; s++) *at++ = t->stage[s];
    for (int e = 0; e < EXCHANGES; e++) {
        *at++ = t->exchange[e].seconds;
        *at++ = (double)t->exchange[e].sent;
        *at++ = (double)t->exchange[e].received;
    }
    double sums[EXCHANGES],
        *all = must_have(calloc((size_t)m->transport->ranks * EXCHANGES, sizeof *all));
    for (int e = 0; e < EXCHANGES; e++) sums[e] = (double)t->exchange[e].sent;
    m->transport->channel = CHANNEL_CONTROL;
    int status = transport_most(m->transport, most, COUNT, err);
    if (status == 0) status = transport_all_gather(m->transport, sums, sizeof sums, all, err);
    for (int e = 0; status == 0 && e < EXCHANGES; e++) {
        t->exchange[e].sent_all = 0;
        for (int r = 0; r < m->transport->ranks; r++)
            t->exchange[e].sent_all += (int64_t)all[r * EXCHANGES + e];
    }
    free(all);
    if (status) return -1;
    t->seconds = most[0], t->forward = most[1], t->plan = most[2], t->disturbed = most[3] > 0;
    at = most + OWN;
    for (int s = 0; s < STAGE_COUNT; s++) t->stage[s] = *at++;
    for (int e = 0; e < EXCHANGES; e++) {
        t->exchange[e].seconds = *at++;
        t->exchange[e].sent = (int64_t)*at++;
        t->exchange[e].received = (int64_t)*at++;
    }
    return 0;
}

static int gather_output(struct member *m, int batch, struct error *err) {
    struct transport *t = m->transport;
    const struct batch *own = &m->own[batch];
    t->channel = CHANNEL_CONTROL;
    if (t->rank == 0) return 0; /* rank 0 takes them in: place_ranks.c */
    return transport_send(t, 0, TAG_OUTPUT, m->result,
                          (size_t)(own->grad_elements * dtype_bytes(own->grad_type)), err);
}

static int prepare(struct member *m, const struct order *o, struct error *err) {
    const struct kernel *k = kernel_of(o->kernel);
    const bool forward = k->operation == OP_FORWARD || o->forward >= 0;
    if (forward && m->opening.grad_type != FP32 && route_sums_in_parts(&m->sharding, &m->own[0]))
        return fail(err,
                    "outputs narrower than fp32 are not summed over ranks, since each part would "
                    "be rounded; take another sharding than by rows");
    if (forward && open_outputs(m, err)) return -1;
    if (k->operation == OP_STEP && open_scratch(m, k, o->fill, err)) return -1;
    return 0;
}

static int run(struct member *m, const struct order *o, struct reply *out, struct error *err) {
    struct transport *t = m->transport;
    struct transport_bytes before[CHANNELS];
    t->channel = CHANNEL_CONTROL;
    if (transport_agree(t, prepare(m, o, err), err)) return -1;
    memcpy(before, t->bytes, sizeof before);
    const struct disturbance calm = disturbance_now("/proc/self/task");
    int status = operate(m, o, &out->times, err);
    out->times.disturbed = disturbed(calm, disturbance_now("/proc/self/task"), out->times.seconds);
    merge_bytes(m, before, out->times.exchange);
    t->phase = "end of the step";
    t->channel = CHANNEL_CONTROL;
    if (transport_agree(t, status, err) || merge_times(m, &out->times, err)) return -1;
    return o->gather ? gather_output(m, o->batch, err) : 0;
}

static int parts(struct member *m, const struct order *o, struct reply *out, struct error *err) {
    const struct kernel *k = kernel_of(o->kernel);
    struct step_parts own = {0};
    int status = prepare(m, o, err);
    if (status == 0 && m->inner && k->operation == OP_STEP) {
        const struct place_job job = {
            .kernel = k, .batch = o->batch, .steps = m->local_steps, .scratch = &m->scratch};
        status = m->inner->ops->parts(m->inner, &job, &own, err);
    }
    double most = (double)own.appeared;
    m->transport->channel = CHANNEL_CONTROL;
    if (transport_agree(m->transport, status, err) || transport_most(m->transport, &most, 1, err))
        return -1;
    out->appeared = (int64_t)most;
    return 0;
}

/* Ranks measure at the same time: together they have what they can have together. */
static int ceilings(struct member *m, struct reply *out, struct error *err) {
    struct transport *t = m->transport;
    struct ceiling own = {.pingpong_ns = -1},
                   *all = must_have(calloc((size_t)t->ranks, sizeof *all));
    t->channel = CHANNEL_CONTROL;
    const int status = m->inner ? m->inner->ops->ceilings(m->inner, &own, err) : 0;
    const int failed =
        transport_agree(t, status, err) || transport_all_gather(t, &own, sizeof own, all, err);
    out->ceiling = all[0];
    for (int r = 1; r < t->ranks; r++) {
        out->ceiling.copy_gbs += all[r].copy_gbs;
        out->ceiling.rmw_gbs += all[r].rmw_gbs;
        out->ceiling.gather_gbs += all[r].gather_gbs;
    }
    free(all);
    return failed ? -1 : 0;
}

int64_t member_rows_in(const struct shard *part, int64_t begin, int64_t end, int64_t *first) {
    const int64_t skip = 1 + part->row_skip;
    const int64_t low = begin <= part->row ? 0 : (begin - part->row + skip - 1) / skip;
    const int64_t high = end <= part->row ? 0 : (end - part->row + skip - 1) / skip;
    *first = min64(low, part->rows);
    return max64(0, min64(high, part->rows) - *first);
}

size_t member_rows_bytes(const struct sharding *s, const struct shard *part,
                         const struct table_shape *shapes, int64_t rows) {
    const struct table_shape shape = sharding_shape(s, part, shapes);
    size_t bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) bytes += (size_t)(rows * table_memory_stride(&shape, a));
    return bytes;
}

static int send_rows(struct member *m, const struct order *o, struct error *err) {
    struct transport *t = m->transport;
    const struct sharding *s = &m->sharding;
    const int32_t number = s->part[(int64_t)o->table * s->ranks + t->rank];
    t->channel = CHANNEL_CONTROL;
    if (number < 0) return 0;
    const struct shard *part = &s->shards[number];
    const struct table_shape shape = sharding_shape(s, part, m->shapes);
    int64_t first;
    const int64_t count = member_rows_in(part, o->begin, o->end, &first);
    const size_t bytes = member_rows_bytes(s, part, m->shapes, count);
    char *data = must_have(malloc(bytes + 1)), *at = data;
    void *memory[TABLE_ARRAYS];
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        memory[a] = at;
        at += count * table_memory_stride(&shape, a);
    }
    struct table rows = table_in(&shape, memory);
    struct error why;
    const int lost = count ? m->inner->ops->get_rows(m->inner, number - s->first[t->rank], first,
                                                     first + count, &rows, &why)
                           : 0;
    /* A byte says whether the rows are there. */
    data[bytes] = (char)(lost != 0);
    const int status = transport_send(t, 0, TAG_ROWS, data, bytes + 1, err);
    free(data);
    return status;
}

int member_do(struct member *m, const struct order *o, const struct rule_step *steps,
              struct reply *out, struct error *err) {
    struct transport *t = m->transport;
    const struct sharding *s = &m->sharding;
    *out = (struct reply){0};
    for (int32_t i = 0; steps && i < num_shards(m); i++)
        m->local_steps[i] = steps[s->shards[s->first[t->rank] + i].table];
    switch (o->what) {
    case DO_SCRATCH: {
        const int status = scratch_bytes(m, kernel_of(o->kernel), &out->scratch, err);
        double most = (double)out->scratch;
        t->channel = CHANNEL_CONTROL;
        if (transport_agree(t, status, err) || transport_most(t, &most, 1, err)) return -1;
        out->scratch = (size_t)most;
        return 0;
    }
    case DO_RUN:
    case DO_TIME: return run(m, o, out, err);
    case DO_PARTS: return parts(m, o, out, err);
    case DO_CEILINGS: return ceilings(m, out, err);
    case DO_RESTORE: {
        const int status = m->inner ? m->inner->ops->restore(m->inner, o->batch, err) : 0;
        t->channel = CHANNEL_CONTROL;
        return transport_agree(t, status, err);
    }
    case DO_ROWS: return send_rows(m, o, err);
    case DO_INTACT: {
        const struct place_scratch *scratch = m->scratch_of ? &m->scratch : &m->none;
        const int status = m->inner ? m->inner->ops->intact(m->inner, o->batch, scratch, err) : 0;
        t->channel = CHANNEL_CONTROL;
        return transport_agree(t, status, err);
    }
    default: return fail(err, "rank %d got an order that it does not know", t->rank);
    }
}
