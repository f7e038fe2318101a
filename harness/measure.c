/* SPDX-License-Identifier: MIT */
#include "harness/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "harness/registry.h"
#include "harness/traffic.h"

/* Most tries for one undisturbed sample, and the time after which there is no further one: on a
 * machine that is never quiet the last try counts, and its sample says how many came before. */
enum { TRIES = 4 };
static const double seconds_for_tries = 0.25;

static void *must(void *p) {
    if (!p) abort();
    return p;
}

int64_t measure_bytes(const struct table_shape *tables, int32_t count, int64_t lookups, int ring) {
    int64_t per_lookup = sizeof(struct row_lookup) + sizeof(struct row_run);
    return tables_bytes(tables, count) + ring * lookups * per_lookup;
}

/* The table that most bytes of rows are in: the ceiling is measured on its rows. */
static int32_t largest_table(const struct workload *w) {
    int32_t best = 0;
    for (int32_t t = 1; t < w->num_tables; t++)
        if (w->tables[t].rows * w->tables[t].dim > w->tables[best].rows * w->tables[best].dim)
            best = t;
    return best;
}

int measure_open(struct measure *m, struct workload *w, enum grad_mode mode, int threads,
                 struct error *err) {
    memset(m, 0, sizeof *m);
    m->workload = w;
    m->threads = threads;
    if (memory_require(measure_bytes(w->tables, w->num_tables, w->batches[0].lookups, w->ring),
                       w->name, err))
        return -1;
    for (int k = 0; k < w->ring; k++)
        if (batch_validate(&w->batches[k], err)) goto out;
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < w->ring; k++) {
        m->index[k] = row_index_build(&w->batches[k]);
        m->stats[k] = id_stats(&w->batches[k], &m->index[k]);
        m->compulsory[k] = compulsory_bytes(&w->batches[k], &m->index[k]);
        m->exact[k] = batch_sums_exact(&w->batches[k], mode);
    }
    if (tables_create(&m->tables, w->tables, w->num_tables, w->seed, err)) goto out;
    m->rules = must(calloc((size_t)w->num_tables, sizeof *m->rules));
    m->steps = must(calloc((size_t)w->num_tables, sizeof *m->steps));
    for (int32_t t = 0; t < w->num_tables; t++) {
        m->rules[t] = rule_default(w->tables[t].rule);
        m->steps[t] = rule_step(m->rules[t], MEASURED_STEP);
    }
    int32_t large = largest_table(w);
    if (ceiling_open(&m->ceilings, m->tables.tables[large].weight, w->tables[large].rows,
                     w->tables[large].dim, threads, err))
        goto out;
    return 0;
out:
    measure_close(m);
    return -1;
}

void measure_close(struct measure *m) {
    for (int k = 0; k < RING_MAX; k++) row_index_free(&m->index[k]);
    ceiling_close(&m->ceilings);
    tables_free(&m->tables);
    buffer_free(&m->scratch);
    free(m->rules);
    free(m->steps);
    memset(m, 0, sizeof *m);
}

static size_t declared_scratch(const struct measure *m, const struct kernel *k) {
    size_t most = 0;
    for (int b = 0; b < m->workload->ring && k->scratch_bytes; b++) {
        size_t bytes = k->scratch_bytes(&m->workload->batches[b], m->threads);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Scratch of exactly the declared size. */
static int scratch_for(const struct measure *m, const struct kernel *k, struct buffer *out,
                       struct error *err) {
    const char *why = kernel_refuses(k, &m->workload->batches[0]);
    if (why) return fail(err, "%s: %s", k->name, why);
    char what[96];
    snprintf(what, sizeof what, "scratch of %s", k->name);
    return buffer_alloc(out, declared_scratch(m, k), what, err);
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

/* One step on batch b; returns its time, and the stages' if asked for. */
static double step(struct measure *m, const struct kernel *k, int b, void *scratch, double *stage) {
    struct stopwatch watch = {clock_seconds(), stage};
    struct launch how = {
        .threads = m->threads, .scratch = scratch, .mark = stage ? mark : NULL, .mark_ctx = &watch};
    double begin = watch.last;
    k->run(&m->workload->batches[b], m->steps, m->tables.tables, &how);
    return clock_seconds() - begin;
}

/* Undoes a step: the touched rows, or all rows after a dense step that moves idle ones. */
static void restore(struct measure *m, const struct kernel *k, int b) {
    bool all = false;
    for (int32_t t = 0; t < m->tables.count; t++)
        all |= (k->traits & DENSE_STEP) && !rule_info(m->rules[t].kind).idle_is_identity;
    if (all)
        tables_reset(&m->tables);
    else
        tables_restore(&m->tables, &m->index[b]);
}

static void initial_row(const void *ctx, int32_t table, int64_t row, float *weight,
                        float *const elem[RULE_ELEM_STATES], float *row_state) {
    tables_initial_row(ctx, table, row, weight, elem, row_state);
}

/* A step with this scratch, poisoned, and the verdict on it. */
static bool check_with(struct measure *m, const struct kernel *k, int batch, struct buffer *scratch,
                       struct check_result *out) {
    buffer_poison(scratch);
    step(m, k, batch, scratch->data, NULL);
    struct check c = {.in = &m->workload->batches[batch],
                      .index = &m->index[batch],
                      .rules = m->rules,
                      .step = MEASURED_STEP,
                      .before = initial_row,
                      .before_ctx = &m->tables,
                      .after = m->tables.tables,
                      .exact = m->exact[batch],
                      .dense = k->traits & DENSE_STEP};
    *out = check_run(&c);
    if (out->ok && !(buffer_intact(scratch) && tables_intact(&m->tables))) {
        out->ok = false;
        strcpy(out->message, "wrote outside of its scratch or of the tables");
    }
    if (out->ok)
        restore(m, k, batch);
    else
        tables_reset(&m->tables); /* who knows what it wrote where */
    return out->ok;
}

bool measure_check(struct measure *m, const struct kernel *k, int batch, struct check_result *out) {
    return check_with(m, k, batch, &m->scratch, out);
}

int measure_admit(struct measure *m, const struct kernel *k, struct scratch_use *use,
                  struct check_result *out, struct error *err) {
    struct buffer scratch;
    if (scratch_for(m, k, &scratch, err)) return -1;
    struct memory_watch watch = memory_watch();
    step(m, k, 0, scratch.data, NULL);
    use->observed = memory_watch_peak(watch);
    use->declared = (int64_t)scratch.bytes;
    restore(m, k, 0);
    bool right = check_with(m, k, 0, &scratch, out); /* whose poison made all pages resident */
    if (right && scratch.bytes > m->scratch.bytes) {
        buffer_free(&m->scratch);
        m->scratch = scratch;
    } else {
        buffer_free(&scratch);
    }
    return right ? 0 : 1;
}

static long context_switches(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return r.ru_nivcsw;
}

void measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                    struct sample *out) {
    memset(out, 0, sizeof *out);
    out->batch = mode == MODE_COLD ? round % m->workload->ring : 0;
    double begin = clock_seconds();
    for (int try = 0; try < TRIES; try++) {
        memset(out->stage, 0, sizeof out->stage);
        out->rejected = try;
        out->ceiling = ceiling_measure(&m->ceilings);
        if (mode == MODE_COLD) {
            ceiling_flush_caches(&m->ceilings);
        } else {
            step(m, k, out->batch, m->scratch.data, NULL);
            restore(m, k, out->batch);
        }
        long before = context_switches();
        out->seconds = step(m, k, out->batch, m->scratch.data, out->stage);
        out->disturbed = context_switches() != before;
        restore(m, k, out->batch);
        if (!out->disturbed || clock_seconds() - begin > seconds_for_tries) break;
    }
}
