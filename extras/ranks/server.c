/* SPDX-License-Identifier: MIT
 *
 * The servers. A push and an end are handled when they come, a pull when no worker is too far behind.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/batch_fill.h"
#include "kernels/shape.h"
#include "extras/ranks/server_parts.h"

/* A message, which begins with its head. */
struct request {
    const struct request_head *head; /* NULL: none */
    const int64_t *count;            /* [num_tables] */
    const int64_t *rows;             /* those that are not applied yet */
    const float *values;
};

/* What a server knows of a worker. */
struct client {
    int64_t clock; /* pushes so far */
    bool ended;
    struct request pull; /* not answered yet */
    struct request push; /* of a synchronous clock, not applied yet */
};

struct server {
    struct transport *transport;
    const struct server_setup *setup;
    int32_t count; /* tables */
    struct table_shape *shapes;
    struct feature *features; /* of the batch of a step: one for each table */
    struct table_set tables;
    struct rule_step *steps;
    struct embfuse_admission *admissions; /* NULL: all rows train */
    int workers;
    struct client *clients;
    int64_t version, number; /* pushes and steps so far */
    struct room offsets, ids, grad, answer, admitted;
    struct buffer scratch;
    struct server_report report;
};

int server_check(const struct transport *t, const struct server_setup *x, struct error *err) {
    if (x->servers < 1 || x->servers >= t->ranks)
        return fail(err, "%d servers of %d ranks: there must be a server and a worker", x->servers,
                    t->ranks);
    if (x->step->place != ON_HOST || x->forward->place != ON_HOST ||
        x->gradient->place != ON_HOST || !(x->gradient->traits & MERGED))
        return fail(err, "a parameter server runs kernels of the host, and a merged gradient");
    for (int32_t i = 0; i < x->num_tables; i++)
        if (x->shapes[i].rows < x->servers)
            return fail(err, "table %d has %lld rows for %d servers; take fewer servers", i,
                        (long long)x->shapes[i].rows, x->servers);
    return 0;
}

/* --- opening */

static int make_admissions(struct server *s, struct error *err) {
    s->admissions = must_have(calloc((size_t)s->count, sizeof *s->admissions));
    for (int32_t i = 0; i < s->count; i++) {
        struct embfuse_admission *a = &s->admissions[i];
        *a = *s->setup->admission;
        a->size = sizeof *a;
        a->table = i;
        a->seed = rng_key(a->seed, (uint64_t)s->transport->rank);
        a->num_counters = s->shapes[i].rows;
        a->counter_bytes = 4;
        a->hashes = 0;
        a->counters = array_require(a->num_counters, 4, "counters of rows", err);
        if (!a->counters) return -1;
        memset(a->counters, 0, (size_t)a->num_counters * 4);
    }
    return 0;
}

int server_open(struct server **out, struct transport *t, const struct server_setup *setup,
                struct error *err) {
    struct server *s = must_have(calloc(1, sizeof *s));
    *out = s;
    s->transport = t;
    s->setup = setup;
    s->count = setup->num_tables;
    if (server_check(t, setup, err)) return -1;
    s->workers = t->ranks - setup->servers;
    s->clients = must_have(calloc((size_t)s->workers, sizeof *s->clients));
    s->shapes = must_have(calloc((size_t)s->count, sizeof *s->shapes));
    s->features = must_have(calloc((size_t)s->count, sizeof *s->features));
    s->steps = must_have(calloc((size_t)s->count, sizeof *s->steps));
    for (int32_t i = 0; i < s->count; i++) {
        s->shapes[i] = setup->shapes[i];
        s->shapes[i].rows = (setup->shapes[i].rows - t->rank + setup->servers - 1) / setup->servers;
        s->shapes[i].part.row = t->rank;
        s->shapes[i].part.row_skip = setup->servers - 1;
    }
    if (tables_create(&s->tables, s->shapes, s->count, setup->seed, err)) return -1;
    return setup->admission ? make_admissions(s, err) : 0;
}

static void free_request(struct request *r) {
    free((void *)(uintptr_t)r->head);
    *r = (struct request){0};
}

void server_close(struct server *s) {
    for (int w = 0; w < s->workers; w++) {
        free_request(&s->clients[w].pull);
        free_request(&s->clients[w].push);
    }
    for (int32_t i = 0; s->admissions && i < s->count; i++) free(s->admissions[i].counters);
    free(s->admissions);
    struct room *const rooms[] = {&s->offsets, &s->ids, &s->grad, &s->answer, &s->admitted};
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) free(rooms[i]->data);
    buffer_free(&s->scratch);
    tables_free(&s->tables);
    free(s->shapes);
    free(s->features);
    free(s->steps);
    free(s->clients);
    free(s);
}

struct table_set *server_tables(struct server *s) {
    return &s->tables;
}

struct server_report server_report(const struct server *s) {
    return s->report;
}

/* --- a step of some pushes */

static int run(struct server *s, const struct batch *in, struct error *err) {
    const struct kernel *k = s->setup->step;
    const int threads = s->setup->threads;
    const size_t bytes = k->scratch_bytes ? k->scratch_bytes(in, threads) : 0;
    const char *refused = kernel_refuses(k, in);
    if (refused) return fail(err, "%s: %s", k->name, refused);
    if (bytes > s->scratch.bytes) {
        buffer_free(&s->scratch);
        if (buffer_alloc(&s->scratch, bytes + bytes / 2, "scratch of the step", err)) return -1;
    }
    for (int32_t i = 0; i < s->count; i++) s->steps[i] = rule_step(s->setup->rules[i], s->number);
    const struct launch how = {.threads = threads, .scratch = s->scratch.data};
    if ((k->plan && k->plan(in, &how)) || k->run(in, s->steps, s->tables.tables, &how))
        return fail(err, "%s failed", k->name);
    return 0;
}

/* Every row of a push is a lookup in a sequence; pushes follow one another in each table, in this order. */
static int apply(struct server *s, struct request *const *pushes, int count, struct error *err) {
    int64_t *offsets = room_for(&s->offsets, ((size_t)s->count + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (int32_t i = 0; i < s->count; i++) {
        s->features[i] =
            (struct feature){.table = i, .bags = 1, .pooling = POOL_NONE, .padding_id = -1};
        offsets[i + 1] = offsets[i];
        for (int p = 0; p < count; p++) offsets[i + 1] += pushes[p]->count[i];
    }
    struct batch in = {.num_tables = s->count,
                       .num_features = s->count,
                       .lookups = offsets[s->count],
                       .tables = s->shapes,
                       .features = s->features,
                       .id_type = ID_INT64,
                       .offsets = offsets,
                       .grad_type = FP32};
    s->number++;
    s->report.rows += in.lookups;
    if (in.lookups == 0) return 0;
    batch_count(&in, s->features);
    batch_lay_out_rows(s->shapes, s->features, s->count);
    batch_derive_counted(&in, s->shapes, s->features);
    int64_t *ids = room_for(&s->ids, (size_t)in.lookups * sizeof *ids);
    float *grad = room_for(&s->grad, (size_t)in.grad_elements * sizeof *grad);
    for (int32_t i = 0; i < s->count; i++) {
        const int64_t dim = s->shapes[i].dim;
        int64_t *row = ids + offsets[i];
        float *value = grad + s->features[i].grad_offset;
        for (int p = 0; p < count; p++) {
            const int64_t n = pushes[p]->count[i];
            memcpy(row, pushes[p]->rows, (size_t)n * sizeof *row);
            memcpy(value, pushes[p]->values, (size_t)(n * dim) * sizeof *value);
            row += n, pushes[p]->rows += n;
            value += n * dim, pushes[p]->values += n * dim;
        }
    }
    in.ids = ids;
    in.grad = grad;
    return run(s, &in, err);
}

static void count_distance(int64_t histogram[DISTANCES], int64_t distance) {
    histogram[distance < DISTANCES - 1 ? distance : DISTANCES - 1]++;
}

/* Applies pushes, and forgets them. */
static int apply_all(struct server *s, struct request *const *pushes, int count,
                     struct error *err) {
    const int status = apply(s, pushes, count, err);
    for (int p = 0; p < count; p++) {
        count_distance(s->report.versions, s->version - pushes[p]->head->version);
        free_request(pushes[p]);
    }
    s->report.pushes += count;
    s->version += count;
    return status;
}

/* A synchronous clock ends when all workers that are left have pushed. */
static int end_clock(struct server *s, struct error *err) {
    struct request **pushes = must_have(calloc((size_t)s->workers, sizeof *pushes));
    int count = 0;
    bool all = true;
    for (int w = 0; w < s->workers; w++) {
        struct client *c = &s->clients[w];
        if (c->push.head) pushes[count++] = &c->push;
        all = all && (c->ended || c->push.head);
    }
    const int status = all && count ? apply_all(s, pushes, count, err) : 0;
    free(pushes);
    return status;
}

/* --- messages */

/* The clock of the slowest worker. */
static int64_t slowest(const struct server *s) {
    int64_t clock = INT64_MAX;
    for (int w = 0; w < s->workers; w++)
        if (!s->clients[w].ended) clock = min64(clock, s->clients[w].clock);
    return clock;
}

/* Touches rows of a table. admitted: a byte for each row. */
static int admit(struct server *s, int32_t table, const int64_t *rows, int64_t count,
                 uint8_t *admitted, struct error *err) {
    memset(admitted, 1, (size_t)count);
    if (!s->admissions) return 0;
    struct embfuse_error why;
    int64_t refused = 0, *left = room_for(&s->admitted, (size_t)count * sizeof *left);
    if (embfuse_admit_ids(&s->admissions[table], rows, EMBFUSE_INT64, count, -1, s->setup->threads,
                          left, &refused, &why))
        return fail(err, "%s", why.text);
    for (int64_t i = 0; i < count; i++) admitted[i] = left[i] >= 0;
    return 0;
}

static int answer(struct server *s, int worker, const struct request *r, struct error *err) {
    int64_t all = 0, floats = 0;
    for (int32_t i = 0; i < s->count; i++) {
        all += r->count[i];
        floats += r->count[i] * s->shapes[i].dim;
    }
    const size_t bytes = sizeof(struct answer_head) + (size_t)floats * sizeof(float) + (size_t)all;
    struct answer_head *head = room_for(&s->answer, bytes);
    *head = (struct answer_head){s->version};
    float *to = (float *)(head + 1);
    uint8_t *admitted = (uint8_t *)(to + floats);
    const int64_t *rows = r->rows;
    for (int32_t i = 0; i < s->count; rows += r->count[i], admitted += r->count[i], i++) {
        const struct table_shape *shape = &s->shapes[i];
        for (int64_t k = 0; k < r->count[i]; k++, to += shape->dim)
            for (int32_t d = 0; d < shape->dim; d++)
                to[d] = dtype_get(shape->weight_type,
                                  array_row(&s->tables.tables[i].weight, rows[k]), d);
        if (admit(s, i, rows, r->count[i], admitted, err)) return -1;
    }
    s->report.pulls++;
    count_distance(s->report.clocks, max64(0, r->head->clock - slowest(s)));
    s->transport->channel = CHANNEL_WEIGHT;
    return transport_send(s->transport, s->setup->servers + worker, TAG_ANSWER, head, bytes, err);
}

/* Answers the pulls of workers that are not too far ahead. */
static int answer_all(struct server *s, struct error *err) {
    const int64_t staleness = s->setup->staleness;
    for (int w = 0; w < s->workers; w++) {
        struct request *r = &s->clients[w].pull;
        if (!r->head || (staleness != STALENESS_ANY && r->head->clock - staleness > slowest(s)))
            continue;
        if (answer(s, w, r, err)) return -1;
        free_request(r);
    }
    return 0;
}

/* Finds the parts of a message. */
static struct request parse(const struct server *s, const void *data) {
    struct request r = {.head = data,
                        .count = (const int64_t *)((const struct request_head *)data + 1)};
    int64_t all = 0;
    for (int32_t i = 0; i < s->count; i++) all += r.count[i];
    r.rows = r.count + s->count;
    r.values = (const float *)(r.rows + all);
    return r;
}

static int handle(struct server *s, int worker, struct request r, struct error *err) {
    struct client *c = &s->clients[worker];
    switch ((enum request_kind)r.head->kind) {
    case REQUEST_PULL: c->pull = r; return 0;
    case REQUEST_PUSH:
        c->clock++;
        c->push = r;
        return s->setup->staleness == 0 ? end_clock(s, err)
                                        : apply_all(s, (struct request *[]){&c->push}, 1, err);
    default:
        c->ended = true;
        free_request(&r);
        return end_clock(s, err);
    }
}

int server_serve(struct server *s, struct error *err) {
    transport_phase(s->transport, "serving");
    while (slowest(s) < INT64_MAX) {
        struct message message;
        void *data;
        if (transport_receive(s->transport, ANY_RANK, TAG_REQUEST, &data, &message, err) ||
            handle(s, message.from - s->setup->servers, parse(s, data), err) || answer_all(s, err))
            return -1;
    }
    return 0;
}
