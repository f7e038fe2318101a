/* SPDX-License-Identifier: MIT
 *
 * Measuring on the host: tables in huge pages, the monotonic clock, context switches.
 */
#include <string.h>
#include <sys/resource.h>

#include "harness/measure/measure.h"

static int host_open(struct measure *m, struct error *err) {
    struct workload *w = m->workload;
    struct host_state *h = &m->host;
    int32_t t = measure_largest_table(w);
    if (tables_create(&h->tables, w->tables, w->num_tables, w->seed, err)) return -1;
    if (ceiling_open(&h->ceilings, &w->batches[0], &m->index[0], t, &h->tables.tables[t].weight,
                     m->threads, err) == 0)
        return 0;
    tables_free(&h->tables);
    return -1;
}

static void host_close(struct measure *m) {
    ceiling_close(&m->host.ceilings);
    tables_free(&m->host.tables);
}

static int host_scratch_open(struct place_scratch *s, size_t bytes, const char *what,
                             struct error *err) {
    memset(s, 0, sizeof *s);
    if (buffer_alloc(&s->host, bytes, what, err)) return -1;
    s->data = s->host.data;
    s->bytes = bytes;
    return 0;
}

static void host_scratch_close(struct place_scratch *s) {
    buffer_free(&s->host);
    memset(s, 0, sizeof *s);
}

static int host_poison(struct place_scratch *s, struct error *err) {
    (void)err;
    buffer_poison(&s->host);
    return 0;
}

static bool host_intact(struct measure *m, const struct place_scratch *s) {
    return buffer_intact(&s->host) && tables_intact(&m->host.tables);
}

static int host_step(struct measure *m, const struct kernel *k, int b, void *scratch,
                     struct error *err) {
    (void)err;
    const struct batch *in = &m->workload->batches[b];
    struct launch how = {.threads = m->threads, .scratch = scratch};
    if (k->plan) k->plan(in, &how);
    k->run(in, m->steps, m->host.tables.tables, &how);
    return 0;
}

static int host_parts(struct measure *m, const struct kernel *k, int b, struct place_scratch *s,
                      struct step_parts *out, struct error *err) {
    struct memory_watch watch = memory_watch();
    host_step(m, k, b, s->data, err);
    *out = (struct step_parts){.appeared = memory_watch_peak(watch)};
    return 0;
}

static int host_restore(struct measure *m, int b, bool all, struct error *err) {
    (void)err;
    if (all)
        tables_reset(&m->host.tables);
    else
        tables_restore(&m->host.tables, &m->index[b]);
    return 0;
}

static void host_look(struct measure *m, struct check *c) {
    c->after = m->host.tables.tables;
}

static int host_ceilings(struct measure *m, struct ceiling *out, struct error *err) {
    (void)err;
    *out = ceiling_measure(&m->host.ceilings);
    return 0;
}

struct stopwatch {
    double last;
    double *stage;
};

static void mark(void *ctx, enum stage ended) {
    struct stopwatch *s = ctx;
    double now = clock_seconds();
    s->stage[ended] += now - s->last;
    s->last = now;
}

static long context_switches(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_nivcsw;
}

static int host_timed(struct measure *m, const struct kernel *k, int b, bool cold,
                      struct sample *out, struct error *err) {
    (void)err;
    const struct batch *in = &m->workload->batches[b];
    struct launch how = {.threads = m->threads, .scratch = m->at[ON_HOST].scratch.data};
    double begin = clock_seconds();
    if (k->plan) k->plan(in, &how);
    out->plan = k->plan ? clock_seconds() - begin : 0;
    if (cold) ceiling_flush_caches(&m->host.ceilings);
    memset(out->stage, 0, sizeof out->stage);
    long before = context_switches();
    struct stopwatch watch = {clock_seconds(), out->stage};
    how.mark = mark;
    how.mark_ctx = &watch;
    begin = watch.last;
    k->run(in, m->steps, m->host.tables.tables, &how);
    out->seconds = clock_seconds() - begin;
    out->disturbed = context_switches() != before;
    return 0;
}

const struct place_ops place_host = {.open = host_open,
                                     .close = host_close,
                                     .scratch_open = host_scratch_open,
                                     .scratch_close = host_scratch_close,
                                     .poison = host_poison,
                                     .intact = host_intact,
                                     .step = host_step,
                                     .parts = host_parts,
                                     .restore = host_restore,
                                     .look = host_look,
                                     .ceilings = host_ceilings,
                                     .timed = host_timed};
