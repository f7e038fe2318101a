/* SPDX-License-Identifier: MIT
 *
 * The host: tables in huge pages, the monotonic clock, time spent waiting for a CPU.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "harness/measure/disturbance.h"
#include "harness/measure/place.h"
#include "harness/workload/workload.h"
#include "kernels/forward.h"

struct host {
    struct place place;
    struct place_setup setup;
    struct table_set own; /* if the setup has no tables */
    struct table_set *tables;
    struct ceiling_probe ceilings;
    uint64_t *hash; /* [ring] of each batch, at opening */
};

static struct host *host_of(struct place *p) {
    return (struct host *)p;
}

/* Hashes the members one by one: a copy of a struct need not keep the bytes of its padding. (The assertion below misses
 * a new member that fits in the padding.) */
static uint64_t shape_hash(const struct table_shape *t, uint64_t hash) {
    const struct table_part *p = &t->part;
    const int64_t members[] = {t->rows,     t->dim,         (int64_t)t->rule,
                               t->adjusts,  t->weight_type, t->momentum_type,
                               t->rounding, t->row_state,   (int64_t)t->rounding_key,
                               p->table,    p->column,      p->row,
                               p->row_skip, t->features,    t->lookups,
                               t->first_row};
    _Static_assert(sizeof *t == 96, "a new member belongs into the hash");
    return XXH3_64bits_withSeed(members, sizeof members, hash);
}

/* The hash of everything that a kernel may only read. */
static uint64_t batch_hash(const struct batch *in) {
    const size_t lookups = (size_t)in->lookups;
    const struct {
        const void *data;
        size_t bytes;
    } parts[] = {{in->ids, lookups * (in->id_type == ID_INT32 ? 4 : 8)},
                 {in->offsets, (size_t)(in->flat_bags + 1) * sizeof *in->offsets},
                 {in->lookup_weights, lookups * sizeof *in->lookup_weights},
                 {in->grad, (size_t)(in->grad_elements * dtype_bytes(in->grad_type))},
                 {in->winners, (size_t)in->grad_elements * sizeof *in->winners},
                 {in->features, (size_t)in->num_features * sizeof *in->features}};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].data) hash = XXH3_64bits_withSeed(parts[i].data, parts[i].bytes, hash);
    for (int32_t t = 0; t < in->num_tables; t++) hash = shape_hash(&in->tables[t], hash);
    return hash;
}

static void host_close(struct place *p) {
    struct host *h = host_of(p);
    ceiling_close(&h->ceilings);
    tables_free(&h->own);
    free(h->hash);
    free(h);
}

static int host_scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                              struct error *err) {
    return setup_scratch_bytes(&host_of(p)->setup, k, bytes, err);
}

int place_scratch_open(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                       struct error *err) {
    (void)p;
    memset(s, 0, sizeof *s);
    if (buffer_alloc(&s->host, bytes, what, err)) return -1;
    s->data = s->host.data;
    s->bytes = bytes;
    return 0;
}

void place_scratch_close(struct place *p, struct place_scratch *s) {
    (void)p;
    buffer_free(&s->host);
    memset(s, 0, sizeof *s);
}

const struct table *place_tables_elsewhere(struct place *p) {
    (void)p;
    return NULL;
}

static int host_scratch_fill(struct place *p, struct place_scratch *s, int byte,
                             struct error *err) {
    (void)p, (void)err;
    memory_fill(s->data, byte, s->bytes);
    return 0;
}

int place_scratch_get(struct place *p, const struct place_scratch *s, void *to, struct error *err) {
    (void)p, (void)err;
    if (s->bytes) memcpy(to, s->data, s->bytes);
    return 0;
}

/* The winners of a forward, behind its output; NULL if there are none. */
static int32_t *winners_of(const struct host *h, const struct place_job *job) {
    const bool forward = job->forward || job->kernel->operation == OP_FORWARD;
    int32_t *winners = NULL;
    if (forward) forward_lay_out(&h->setup.batches[job->batch], job->output->data, &winners);
    return winners;
}

/* The step of an iteration reads the winners of its own forward. */
static struct batch batch_of(const struct host *h, const struct place_job *job) {
    struct batch in = h->setup.batches[job->batch];
    if (job->forward) in.winners = winners_of(h, job);
    return in;
}

static int call_plan(const struct host *h, const struct place_job *job) {
    const struct launch how = {.threads = h->setup.threads, .scratch = job->scratch->data};
    const struct batch in = batch_of(h, job);
    return job->kernel->plan ? job->kernel->plan(&in, &how) : 0;
}

static int call_forward(const struct host *h, const struct place_job *job) {
    const struct launch how = {
        .threads = h->setup.threads, .output = job->output->data, .winners = winners_of(h, job)};
    return job->forward->run(&h->setup.batches[job->batch], job->steps, h->tables->tables, &how);
}

static int call_run(const struct host *h, const struct place_job *job,
                    void (*mark)(void *, enum stage), void *ctx) {
    const struct launch how = {.threads = h->setup.threads,
                               .scratch = job->scratch->data,
                               .output = job->output ? job->output->data : NULL,
                               .winners = winners_of(h, job),
                               .mark = mark,
                               .mark_ctx = ctx};
    const struct batch in = batch_of(h, job);
    return job->kernel->run(&in, job->steps, h->tables->tables, &how);
}

static int returned(int status, const struct place_job *job, struct error *err) {
    return status ? fail(err, "%s: plan or run returned %d", job->kernel->name, status) : 0;
}

static int host_run(struct place *p, const struct place_job *job, struct error *err) {
    const struct host *h = host_of(p);
    int status = job->forward ? call_forward(h, job) : 0;
    if (status == 0 && !job->planned) status = call_plan(h, job);
    if (status == 0) status = call_run(h, job, job->mark, job->mark_ctx);
    return returned(status, job, err);
}

static int host_parts(struct place *p, const struct place_job *job, struct step_parts *out,
                      struct error *err) {
    struct memory_watch watch = memory_watch();
    int status = host_run(p, job, err);
    *out = (struct step_parts){.appeared = memory_watch_peak(watch)};
    return status;
}

struct stopwatch {
    double last;
    double *stage;
};

static void stop(void *ctx, enum stage ended) {
    struct stopwatch *s = ctx;
    double now = clock_seconds();
    s->stage[ended] += now - s->last;
    s->last = now;
}

static int time_plan(const struct host *h, const struct place_job *job, double *seconds) {
    const double begin = clock_seconds();
    const int status = call_plan(h, job);
    *seconds = job->kernel->plan ? clock_seconds() - begin : 0;
    return status;
}

static int host_time(struct place *p, const struct place_job *job, bool cold,
                     struct step_times *out, struct error *err) {
    const struct host *h = host_of(p);
    *out = (struct step_times){0};
    int status = job->forward ? 0 : time_plan(h, job, &out->plan);
    if (cold) ceiling_flush_caches(&h->ceilings);
    const struct disturbance before = disturbance_now("/proc");
    const double begin = clock_seconds();
    if (job->forward) {
        status = call_forward(h, job);
        out->forward = clock_seconds() - begin;
        if (status == 0) status = time_plan(h, job, &out->plan);
    }
    struct stopwatch watch = {job->forward ? clock_seconds() : begin, out->stage};
    if (status == 0) status = call_run(h, job, stop, &watch);
    out->seconds = clock_seconds() - begin;
    out->disturbed = disturbed(before, disturbance_now("/proc"), out->seconds);
    return returned(status, job, err);
}

static int host_plan(struct place *p, const struct place_job *job, struct error *err) {
    return returned(call_plan(host_of(p), job), job, err);
}

static int host_flush(struct place *p, struct error *err) {
    (void)err;
    ceiling_flush_caches(&host_of(p)->ceilings);
    return 0;
}

/* There is nothing to copy: the step reads the batch where it is. */
static int host_renew(struct place *p, int batch, struct error *err) {
    (void)p, (void)batch, (void)err;
    return 0;
}

static int host_ceilings(struct place *p, struct ceiling *out, struct error *err) {
    (void)err;
    *out = ceiling_measure(&host_of(p)->ceilings);
    return 0;
}

static int host_restore(struct place *p, int batch, struct error *err) {
    const struct host *h = host_of(p);
    (void)err;
    if (batch < 0)
        tables_reset(h->tables);
    else
        tables_restore(h->tables, &h->setup.index[batch]);
    return 0;
}

static const struct table *host_tables(struct place *p) {
    return host_of(p)->tables->tables;
}

static int host_get_rows(struct place *p, int32_t t, int64_t begin, int64_t end, struct table *rows,
                         struct error *err) {
    (void)err;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const struct table_set *s = host_of(p)->tables;
        const size_t bytes = (size_t)((end - begin) * table_memory_stride(&s->shapes[t], a));
        if (bytes) memcpy(rows->array[a].data, array_row(&s->tables[t].array[a], begin), bytes);
    }
    return 0;
}

static int host_intact(struct place *p, int batch, const struct place_scratch *s,
                       struct error *err) {
    const struct host *h = host_of(p);
    if (!buffer_intact(&s->host)) return fail(err, "wrote outside of its scratch"), 1;
    if (!tables_intact(h->tables)) return fail(err, "wrote outside of the tables"), 1;
    if (batch_hash(&h->setup.batches[batch]) != h->hash[batch])
        return fail(err, "changed its input"), 1;
    return 0;
}

static const struct place_ops host_ops = {.close = host_close,
                                          .scratch_bytes = host_scratch_bytes,
                                          .scratch_open = place_scratch_open,
                                          .scratch_close = place_scratch_close,
                                          .scratch_fill = host_scratch_fill,
                                          .scratch_get = place_scratch_get,
                                          .plan = host_plan,
                                          .flush = host_flush,
                                          .renew = host_renew,
                                          .run = host_run,
                                          .parts = host_parts,
                                          .time = host_time,
                                          .ceilings = host_ceilings,
                                          .restore = host_restore,
                                          .tables = host_tables,
                                          .get_rows = host_get_rows,
                                          .intact = host_intact};

/* The ceilings come from the table with the most bytes of rows. */
static int open_all(struct host *h, struct error *err) {
    const struct place_setup *s = &h->setup;
    h->tables = s->tables ? s->tables : &h->own;
    if (!s->tables && tables_create(&h->own, s->shapes, s->num_tables, s->seed, err)) return -1;
    h->hash = must_have(calloc((size_t)s->ring, sizeof *h->hash));
    for (int b = 0; b < s->ring; b++) h->hash[b] = batch_hash(&s->batches[b]);
    if (!s->timed) return 0;
    const int32_t t = tables_largest(s->shapes, s->num_tables);
    return ceiling_open(&h->ceilings, s->operation, &s->batches[0], &s->index[0], t,
                        &h->tables->tables[t].weight, s->threads, err);
}

struct place *place_host_open(const struct place_setup *setup, struct error *err) {
    struct host *h = calloc(1, sizeof *h);
    if (!h) return fail(err, "out of memory"), NULL;
    h->place.ops = &host_ops;
    h->setup = *setup;
    if (open_all(h, err) == 0) return &h->place;
    host_close(&h->place);
    return NULL;
}
