/* SPDX-License-Identifier: MIT
 *
 * The servers. Messages are kept in a list, oldest first, and handled as soon as they may be: a pull when no worker
 * is too far behind, everything else at once, or all of it in a recorded order.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/batch_fill.h"
#include "extras/ranks/server_parts.h"

struct request {
    struct request *next;
    int worker;
    size_t bytes;
    const struct request_head *head; /* the message */
    const int64_t *count;            /* there */
    const int64_t *rows;             /* those that are not applied yet */
    const float *values;
};

/* What a server knows of a worker. */
struct client {
    int64_t clock; /* pushes so far */
    bool ended;
    struct request *push; /* of a synchronous clock, not applied yet */
};

struct server {
    struct transport *transport;
    const struct server_setup *setup;
    uint64_t fingerprint;
    struct sharding sharding;
    int32_t count;
    const struct shard *shards; /* [count] */
    struct table_shape *shapes;
    struct feature *features; /* of the batch of a step: one for each shard */
    struct table_set tables;
    struct rule_step *steps;
    struct embfuse_admission *admissions; /* NULL: all rows train */
    int workers;
    struct client *clients;
    struct request *pending;
    int64_t version, handled;
    double beat; /* when the workers that wait were last told so */
    struct room offsets, ids, grad, answer, admitted;
    struct buffer scratch;
    struct server_report report;
};

/* --- what servers and workers share */

int server_cut(struct sharding *out, const struct transport *t, const struct server_setup *setup,
               struct error *err) {
    if (setup->servers < 1 || setup->servers >= t->ranks)
        return fail(err, "%d servers of %d ranks: there must be a server and a worker",
                    setup->servers, t->ranks);
    if (setup->step->place != ON_HOST || setup->forward->place != ON_HOST ||
        setup->gradient->place != ON_HOST || !(setup->gradient->traits & MERGED))
        return fail(err, "a parameter server runs kernels of the host, and a merged gradient");
    if (sharding_make(out, setup->sharding, NULL, setup->shapes, setup->num_tables, setup->servers,
                      1, err))
        return -1;
    for (int32_t i = 0; i < setup->num_tables; i++)
        if (out->kind[i] > SHARD_ROW_MODULO) {
            fail(err,
                 "table %d: a parameter server has whole rows; cut it by table, row or "
                 "row-modulo, not %s",
                 i, sharding_names[out->kind[i]]);
            sharding_free(out);
            return -1;
        }
    return 0;
}

uint64_t server_fingerprint(const struct server_setup *setup) {
    uint64_t key = rng_key((uint64_t)setup->servers, (uint64_t)setup->num_tables);
    for (const char *c = setup->sharding; *c; c++) key = rng_key(key, (uint64_t)*c);
    for (int32_t t = 0; t < setup->num_tables; t++) {
        key = rng_key(key, (uint64_t)setup->shapes[t].rows);
        key = rng_key(key, (uint64_t)setup->shapes[t].dim);
    }
    return key;
}

/* --- opening */

static int make_admissions(struct server *s, struct error *err) {
    const struct embfuse_admission *like = s->setup->admission;
    s->admissions = must_have(calloc((size_t)s->count + 1, sizeof *s->admissions));
    for (int32_t i = 0; i < s->count; i++) {
        struct embfuse_admission *a = &s->admissions[i];
        *a = *like;
        a->size = sizeof *a;
        a->table = s->shards[i].table;
        a->seed = rng_key(like->seed, (uint64_t)s->transport->rank);
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
    s->fingerprint = server_fingerprint(setup);
    s->workers = t->ranks - setup->servers;
    s->clients = must_have(calloc((size_t)s->workers + 1, sizeof *s->clients));
    if (server_cut(&s->sharding, t, setup, err)) return -1;
    const int32_t first = s->sharding.first[t->rank];
    s->count = s->sharding.first[t->rank + 1] - first;
    s->shards = s->sharding.shards + first;
    s->shapes = must_have(calloc((size_t)s->count + 1, sizeof *s->shapes));
    s->features = must_have(calloc((size_t)s->count + 1, sizeof *s->features));
    s->steps = must_have(calloc((size_t)s->count + 1, sizeof *s->steps));
    for (int32_t i = 0; i < s->count; i++)
        s->shapes[i] = sharding_shape(&s->sharding, &s->shards[i], setup->shapes);
    if (s->count && tables_create(&s->tables, s->shapes, s->count, setup->seed, err)) return -1;
    return setup->admission ? make_admissions(s, err) : 0;
}

static void free_request(struct request *r) {
    free((void *)(uintptr_t)r->head);
    free(r);
}

void server_close(struct server *s) {
    for (struct request *r; (r = s->pending);) {
        s->pending = r->next;
        free_request(r);
    }
    for (int w = 0; w < s->workers; w++)
        if (s->clients[w].push) free_request(s->clients[w].push);
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
    sharding_free(&s->sharding);
    free(s);
}

struct table_set *server_tables(struct server *s, const struct shard **shards) {
    if (shards) *shards = s->shards;
    return &s->tables;
}

struct server_report server_report(const struct server *s) {
    return s->report;
}

/* --- a step of some pushes */

static int room_for_scratch(struct server *s, size_t bytes, struct error *err) {
    if (bytes <= s->scratch.bytes) return 0;
    buffer_free(&s->scratch);
    return buffer_alloc(&s->scratch, bytes + bytes / 2, "scratch of the step", err);
}

/* Every row of a push is a lookup in a sequence; pushes follow one another in each table, in this order. */
static int apply(struct server *s, struct request *const *pushes, int count, struct error *err) {
    const struct kernel *k = s->setup->step;
    int64_t *offsets = room_for(&s->offsets, ((size_t)s->count + 1) * sizeof *offsets);
    offsets[0] = 0;
    for (int32_t i = 0; i < s->count; i++) {
        s->features[i] = (struct feature){.table = i, .pooling = POOL_NONE, .padding_id = -1};
        offsets[i + 1] = offsets[i];
        for (int p = 0; p < count; p++) offsets[i + 1] += pushes[p]->count[i];
    }
    struct batch in = {.num_tables = s->count,
                       .num_features = s->count,
                       .bags = 1,
                       .lookups = offsets[s->count],
                       .tables = s->shapes,
                       .features = s->features,
                       .id_type = ID_INT64,
                       .offsets = offsets,
                       .grad_type = FP32};
    s->report.steps++;
    s->report.rows += in.lookups;
    if (in.lookups == 0) return 0;
    batch_count(&in, s->features);
    batch_lay_out_rows(s->shapes, s->features, s->count, 1);
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
    const char *refused = kernel_refuses(k, &in);
    if (refused) return fail(err, "%s: %s", k->name, refused);
    if (room_for_scratch(s, k->scratch_bytes ? k->scratch_bytes(&in, s->setup->threads) : 0, err))
        return -1;
    for (int32_t i = 0; i < s->count; i++)
        s->steps[i] = rule_step(s->setup->rules[s->shards[i].table], s->report.steps);
    const struct launch how = {.threads = s->setup->threads, .scratch = s->scratch.data};
    if ((k->plan && k->plan(&in, &how)) || k->run(&in, s->steps, s->tables.tables, &how))
        return fail(err, "%s failed", k->name);
    return 0;
}

static int64_t slowest(const struct server *s) {
    int64_t clock = INT64_MAX;
    for (int w = 0; w < s->workers; w++)
        if (!s->clients[w].ended && s->clients[w].clock < clock) clock = s->clients[w].clock;
    return clock;
}

static void count_distance(int64_t histogram[DISTANCES], int64_t distance) {
    histogram[distance < DISTANCES - 1 ? distance : DISTANCES - 1]++;
}

/* Applies pushes, and forgets them. */
static int apply_all(struct server *s, struct request **pushes, int count, struct error *err) {
    const int status = apply(s, pushes, count, err);
    for (int p = 0; p < count; p++) {
        count_distance(s->report.versions, s->version - pushes[p]->head->version);
        s->report.pushes++;
        free_request(pushes[p]);
    }
    s->version += count;
    return status;
}

/* A synchronous clock ends when all workers that are left have pushed. */
static int end_clock(struct server *s, struct error *err) {
    struct request **pushes = must_have(calloc((size_t)s->workers, sizeof *pushes));
    int count = 0, status = 0;
    bool all = true;
    for (int w = 0; w < s->workers; w++) {
        if (s->clients[w].push) pushes[count++] = s->clients[w].push;
        all = all && (s->clients[w].ended || s->clients[w].push);
    }
    if (all && count) {
        for (int w = 0; w < s->workers; w++) s->clients[w].push = NULL;
        status = apply_all(s, pushes, count, err);
    }
    free(pushes);
    return status;
}

/* --- messages */

static int answer(struct server *s, int worker, const void *data, size_t bytes, struct error *err) {
    s->transport->channel = CHANNEL_WEIGHT;
    return transport_send(s->transport, s->setup->servers + worker, TAG_ANSWER, data, bytes, err);
}

static int answer_short(struct server *s, int worker, enum answer_kind kind, struct error *err) {
    const struct answer_head head = {kind, s->version};
    return answer(s, worker, &head, sizeof head, err);
}

/* Touches the rows of a shard. admitted: a byte for each row. */
static int admit(struct server *s, int32_t shard, const int64_t *rows, int64_t count,
                 uint8_t *admitted, struct error *err) {
    memset(admitted, 1, (size_t)count);
    if (!s->admissions) return 0;
    struct embfuse_error why;
    int64_t refused = 0, *left = room_for(&s->admitted, (size_t)count * sizeof *left);
    if (embfuse_admit_ids(&s->admissions[shard], rows, EMBFUSE_INT64, count, -1, s->setup->threads,
                          left, &refused, &why))
        return fail(err, "%s", why.text);
    for (int64_t i = 0; i < count; i++) admitted[i] = left[i] >= 0;
    s->report.refused += refused;
    return 0;
}

static int send_rows(struct server *s, const struct request *r, struct error *err) {
    size_t bytes = sizeof(struct answer_head);
    for (int32_t i = 0; i < s->count; i++)
        bytes += (size_t)r->count[i] * ((size_t)s->shapes[i].dim * sizeof(float) + 1);
    struct answer_head *head = room_for(&s->answer, bytes);
    *head = (struct answer_head){ANSWER_ROWS, s->version};
    float *to = (float *)(head + 1);
    const int64_t *rows = r->rows;
    for (int32_t i = 0; i < s->count; i++) {
        const struct table_shape *shape = &s->shapes[i];
        const struct array *weight = &s->tables.tables[i].weight;
        for (int64_t k = 0; k < r->count[i]; k++, to += shape->dim)
            for (int32_t d = 0; d < shape->dim; d++)
                to[d] = dtype_get(shape->weight_type, array_row(weight, rows[k]), d);
        rows += r->count[i];
    }
    uint8_t *admitted = (uint8_t *)to;
    rows = r->rows;
    for (int32_t i = 0; i < s->count; i++) {
        if (admit(s, i, rows, r->count[i], admitted, err)) return -1;
        admitted += r->count[i];
        rows += r->count[i];
    }
    s->report.pulls++;
    const int64_t behind = slowest(s);
    count_distance(s->report.clocks, r->head->clock > behind ? r->head->clock - behind : 0);
    return answer(s, r->worker, head, bytes, err);
}

static int push(struct server *s, struct request *r, struct error *err) {
    struct client *c = &s->clients[r->worker];
    c->clock++;
    if (s->setup->staleness != 0) return apply_all(s, &r, 1, err);
    c->push = r;
    return end_clock(s, err);
}

static void note_arrival(struct server *s, int worker) {
    struct arrivals *to = s->setup->record;
    s->handled++;
    if (!to) return;
    /* Grows at each power of two. */
    if ((to->count & (to->count - 1)) == 0)
        to->worker =
            must_have(realloc(to->worker, (size_t)(2 * to->count + 1) * sizeof *to->worker));
    to->worker[to->count++] = worker;
}

static int handle(struct server *s, struct request *r, struct error *err) {
    int status = 0;
    note_arrival(s, r->worker);
    switch ((enum request_kind)r->head->kind) {
    case REQUEST_PUSH: return push(s, r, err); /* which keeps or frees it */
    case REQUEST_PULL: status = send_rows(s, r, err); break;
    case REQUEST_END: s->clients[r->worker].ended = true; status = end_clock(s, err);
    }
    free_request(r);
    return status;
}

/* Whose turn it is in a replay; -1: anyone's. */
static int turn(const struct server *s) {
    const struct arrivals *order = s->setup->replay;
    return order && s->handled < order->count ? order->worker[s->handled] : -1;
}

static bool may_be_handled(const struct server *s, const struct request *r) {
    const int next = turn(s);
    if (next >= 0 && next != r->worker) return false;
    return r->head->kind != REQUEST_PULL || s->setup->staleness == STALENESS_ANY ||
           r->head->clock - s->setup->staleness <= slowest(s);
}

/* Takes the oldest request that may be handled; NULL: none. */
static struct request *take(struct server *s) {
    for (struct request **r = &s->pending; *r; r = &(*r)->next) {
        struct request *found = *r;
        if (!may_be_handled(s, found)) continue;
        *r = found->next;
        found->next = NULL;
        return found;
    }
    return NULL;
}

/* Finds the parts of a message, and checks them. */
static int parse(struct server *s, struct request *r, struct error *err) {
    const size_t counts = (size_t)s->count * sizeof *r->count;
    const bool short_one = r->bytes < sizeof *r->head;
    const bool ends = !short_one && r->head->kind == REQUEST_END;
    if (short_one || r->head->kind < REQUEST_PULL || r->head->kind > REQUEST_END ||
        r->bytes < sizeof *r->head + (ends ? 0 : counts))
        return fail(err, "worker %d sends what is no request", r->worker);
    if (r->head->tables != s->fingerprint) {
        if (answer_short(s, r->worker, ANSWER_OTHER_TABLES, err)) return -1;
        return fail(err,
                    "worker %d has other tables, another sharding or another number of servers",
                    r->worker);
    }
    if (ends) return 0;
    r->count = (const int64_t *)(r->head + 1);
    r->rows = r->count + s->count;
    int64_t all = 0, floats = 0;
    const int64_t most = (int64_t)(r->bytes / sizeof *r->rows);
    for (int32_t i = 0; i < s->count; i++) {
        if (r->count[i] < 0 || r->count[i] > most)
            return fail(err, "worker %d sends %lld rows of table %d", r->worker,
                        (long long)r->count[i], s->shards[i].table);
        all += r->count[i];
        floats += r->count[i] * s->shapes[i].dim;
    }
    r->values = (const float *)(r->rows + all);
    const size_t expected = sizeof *r->head + counts + (size_t)all * sizeof *r->rows +
                            (r->head->kind == REQUEST_PUSH ? (size_t)floats * sizeof(float) : 0);
    if (r->bytes != expected)
        return fail(err, "worker %d sends %zu bytes; its rows need %zu", r->worker, r->bytes,
                    expected);
    const int64_t *row = r->rows;
    for (int32_t i = 0; i < s->count; i++)
        for (int64_t k = 0; k < r->count[i]; k++, row++)
            if (*row < 0 || *row >= s->shapes[i].rows)
                return fail(err, "worker %d: row %lld of a shard of table %d, which has %lld",
                            r->worker, (long long)*row, s->shards[i].table,
                            (long long)s->shapes[i].rows);
    return 0;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tells workers that wait for rows that the server lives. */
static int beat(struct server *s, struct error *err) {
    if (now() - s->beat < SERVER_BEAT) return 0;
    for (const struct request *r = s->pending; r; r = r->next)
        if (r->head->kind == REQUEST_PULL && answer_short(s, r->worker, ANSWER_WAIT, err))
            return -1;
    s->beat = now();
    return 0;
}

/* Waits for a message, not for ever. */
static int hear(struct server *s, struct error *err) {
    struct message message;
    void *data;
    s->transport->patience = SERVER_BEAT;
    const int status = transport_receive(s->transport, ANY_RANK, TAG_REQUEST, &data, &message, err);
    s->transport->patience = 0;
    if (status || message.from == NOBODY) return status;
    struct request *r = must_have(calloc(1, sizeof *r)), **last = &s->pending;
    *r = (struct request){
        .worker = message.from - s->setup->servers, .bytes = message.bytes, .head = data};
    while (*last) last = &(*last)->next;
    *last = r;
    return parse(s, r, err);
}

static bool all_ended(const struct server *s) {
    for (int w = 0; w < s->workers; w++)
        if (!s->clients[w].ended) return false;
    return true;
}

int server_serve(struct server *s, struct error *err) {
    transport_phase(s->transport, "serving");
    s->beat = now();
    while (!all_ended(s)) {
        if (hear(s, err) || beat(s, err)) return -1;
        for (struct request *r; (r = take(s));)
            if (handle(s, r, err)) return -1;
    }
    return 0;
}
