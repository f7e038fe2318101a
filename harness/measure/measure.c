/* SPDX-License-Identifier: MIT */
#include "harness/measure/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/record/environment.h"
#include "harness/registry.h"

/* Most tries for one undisturbed sample, and the time after which there is no further one: on a
 * machine that is never quiet the last try counts, and its sample says how many came before. */
enum { TRIES = 4 };
static const double seconds_for_tries = 0.25;

static const struct place_ops *const places[] = {
    [ON_HOST] = &place_host, [ON_DEVICE] = &place_device};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

static int64_t index_bytes(const struct workload *w) {
    int64_t bytes = 0;
    for (int k = 0; k < w->ring; k++) bytes += row_index_bytes(&w->batches[k]);
    return bytes;
}

int32_t measure_largest_table(const struct workload *w) {
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
    m->bytes = tables_bytes(w->tables, w->num_tables);
    char what[SPEC_NAME_MAX + 16];
    snprintf(what, sizeof what, "indexing %s", w->name);
    if (memory_require(index_bytes(w), what, err)) return -1;
    for (int k = 0; k < w->ring; k++)
        if (batch_validate(&w->batches[k], err)) return -1;
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < w->ring; k++) {
        m->index[k] = row_index_build(&w->batches[k]);
        m->stats[k] = id_stats(&w->batches[k], &m->index[k]);
        m->traffic[k] = traffic_of(&w->batches[k], &m->index[k]);
        m->exact[k] = batch_sums_exact(&w->batches[k], mode);
    }
    m->rules = must(calloc((size_t)w->num_tables, sizeof *m->rules));
    m->steps = must(calloc((size_t)w->num_tables, sizeof *m->steps));
    for (int32_t t = 0; t < w->num_tables; t++) {
        m->rules[t] = rule_default(w->tables[t].rule);
        m->steps[t] = rule_step(m->rules[t], MEASURED_STEP);
    }
    return 0;
}

int measure_open_place(struct measure *m, enum place place, struct error *err) {
    if (!m->at[place].open && places[place]->open(m, err)) return -1;
    m->at[place].open = true;
    return 0;
}

void measure_close(struct measure *m) {
    for (int p = 0; p < 2; p++) {
        if (!m->at[p].open) continue;
        places[p]->scratch_close(&m->at[p].scratch);
        places[p]->close(m);
    }
    for (int k = 0; k < RING_MAX; k++) row_index_free(&m->index[k]);
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

/* Scratch of exactly the declared size. What other kernels left resident makes room if it must. */
static int scratch_for(struct measure *m, const struct kernel *k, struct place_scratch *out,
                       struct error *err) {
    const char *why = kernel_refuses(k, &m->workload->batches[0]);
    if (why) return fail(err, "%s: %s", k->name, why);
    char what[96];
    snprintf(what, sizeof what, "scratch of %s", k->name);
    size_t bytes = declared_scratch(m, k);
    if (place_of(k)->scratch_open(out, bytes, what, err) == 0) return 0;
    place_of(k)->scratch_close(&m->at[k->place].scratch);
    return place_of(k)->scratch_open(out, bytes, what, err);
}

/* Keeps this scratch, or another of `least` bytes, for sampling. */
static int keep_scratch(struct measure *m, const struct kernel *k, struct place_scratch *mine,
                        bool fits, size_t least, struct error *err) {
    const struct place_ops *p = place_of(k);
    struct place_scratch *kept = &m->at[k->place].scratch;
    if (fits && mine->bytes > kept->bytes && mine->bytes >= least) {
        p->scratch_close(kept);
        *kept = *mine;
        return 0;
    }
    p->scratch_close(mine);
    if (kept->bytes >= least) return 0;
    p->scratch_close(kept);
    return p->scratch_open(kept, least, "scratch", err) || p->poison(kept, err) ? -1 : 0;
}

/* Undoes a step: the touched rows, or all rows after a dense step that moves idle ones, or after
 * one that wrote who knows what where. */
static int restore(struct measure *m, const struct kernel *k, int b, bool all, struct error *err) {
    for (int32_t t = 0; t < m->workload->num_tables; t++)
        all |= (k->traits & DENSE_STEP) && !rule_idle_is_identity(m->rules[t].kind);
    return place_of(k)->restore(m, b, all, err);
}

/* A step with this scratch, poisoned, and the verdict on it. */
static int check_with(struct measure *m, const struct kernel *k, int batch,
                      struct place_scratch *scratch, struct check_result *out, struct error *err) {
    const struct place_ops *p = place_of(k);
    struct workload *w = m->workload;
    struct table_set shapes = {.count = w->num_tables, .shapes = w->tables, .seed = w->seed};
    memset(out, 0, sizeof *out);
    if (p->poison(scratch, err) || p->step(m, k, batch, scratch->data, err)) return -1;
    struct check c = {.in = &w->batches[batch],
                      .index = &m->index[batch],
                      .rules = m->rules,
                      .step = MEASURED_STEP,
                      .before = tables_initial_row,
                      .before_ctx = &shapes,
                      .exact = m->exact[batch],
                      .dense = k->traits & DENSE_STEP,
                      .per_lookup = k->traits & STEP_PER_LOOKUP};
    p->look(m, &c);
    *out = check_run(&c);
    if (out->unseen || out->undecided) return fail(err, "%s: %s", k->name, out->message);
    if (out->ok && !p->intact(m, scratch)) {
        out->ok = false;
        strcpy(out->message, "wrote outside of its scratch or of the tables");
    }
    if (restore(m, k, batch, !out->ok, err)) return -1;
    return out->ok ? 0 : 1;
}

int measure_check(struct measure *m, const struct kernel *k, int batch, struct check_result *out,
                  struct error *err) {
    return check_with(m, k, batch, &m->at[k->place].scratch, out, err);
}

int measure_admit(struct measure *m, const struct kernel *k, struct scratch_use *use,
                  struct check_result *out, struct error *err) {
    struct place_scratch scratch;
    struct step_parts parts = {0};
    size_t resident = m->at[k->place].scratch.bytes;
    memset(use, 0, sizeof *use);
    if (!m->at[k->place].open) return fail(err, "%s: its place is not open", k->name);
    int status = scratch_for(m, k, &scratch, err);
    if (status == 0) {
        use->declared = (int64_t)scratch.bytes;
        status = place_of(k)->parts(m, k, 0, &scratch, &parts, err);
        if (status == 0) status = restore(m, k, 0, false, err);
        if (status == 0) status = check_with(m, k, 0, &scratch, out, err); /* makes it resident */
        use->observed = parts.appeared;
        use->graph = parts.graph;
    }
    struct error later;
    bool lost = keep_scratch(m, k, &scratch, status == 0, resident, status < 0 ? &later : err);
    return lost && status == 0 ? -1 : status;
}

int measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                   struct sample *out, struct error *err) {
    const struct place_ops *p = place_of(k);
    void *scratch = m->at[k->place].scratch.data;
    memset(out, 0, sizeof *out);
    out->batch = mode == MODE_COLD ? round % m->workload->ring : 0;
    double begin = clock_seconds();
    for (int try = 0; try < TRIES; try++) {
        out->rejected = try;
        if (p->ceilings(m, &out->ceiling, err)) return -1;
        if (mode == MODE_WARM &&
            (p->step(m, k, out->batch, scratch, err) || restore(m, k, out->batch, false, err)))
            return -1;
        if (p->timed(m, k, out->batch, mode == MODE_COLD, out, err) ||
            restore(m, k, out->batch, false, err))
            return -1;
        if (!out->disturbed || clock_seconds() - begin > seconds_for_tries) break;
    }
    out->others = environment_others();
    return 0;
}
