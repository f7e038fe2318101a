/* SPDX-License-Identifier: MIT */
#include "harness/measure/measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"

/* Most tries for one undisturbed sample, and the time after which no further try starts. On a
 * machine that is never quiet the last try counts, and its sample counts the earlier tries. */
enum { TRIES = 4 };
static const double seconds_for_tries = 0.25;

/* So many pairs of a cold and a warm sample, about a round of the kernels, share the same ceilings. */
enum { CEILING_TURNS = 8 };

/* The forward of iterations: the fastest recorded one of a place. */
static const char *const forward_of[] = {
    [ON_HOST] = "cpu_lookup_ahead", [ON_DEVICE] = "cuda_lookup"};

int measure_open(struct measure *m, struct workload *w, enum operation operation,
                 enum grad_mode mode, int threads, struct error *err) {
    memset(m, 0, sizeof *m);
    m->workload = w;
    m->operation = operation;
    m->threads = threads;
    m->bytes = tables_bytes(w->tables, w->num_tables);
    char what[SPEC_NAME_MAX + 16];
    int64_t index_bytes = 0;
    snprintf(what, sizeof what, "indexing %s", w->name);
    for (int k = 0; k < w->ring; k++) index_bytes += row_index_bytes(w->batches[k].lookups);
    if (memory_require(index_bytes, what, err)) return -1;
    for (int k = 0; k < w->ring; k++)
        if (batch_validate(&w->batches[k], err)) return -1;
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < w->ring; k++) {
        m->index[k] = row_index_build(&w->batches[k]);
        m->stats[k] = id_stats(&w->batches[k], &m->index[k]);
        m->traffic[k] = traffic_of(operation, &w->batches[k], &m->index[k]);
        m->forward_traffic[k] = traffic_of(OP_FORWARD, &w->batches[k], &m->index[k]);
        m->exact[k] = batch_sums_exact(&w->batches[k], mode);
        m->right[k] = must_have(calloc((size_t)check_blocks(&w->batches[k]), sizeof *m->right[k]));
    }
    m->rules = must_have(calloc((size_t)w->num_tables, sizeof *m->rules));
    m->steps = must_have(calloc((size_t)w->num_tables, sizeof *m->steps));
    for (int32_t t = 0; t < w->num_tables; t++) {
        m->rules[t] = workload_rule(w, t);
        m->steps[t] = rule_step(m->rules[t], MEASURED_STEP);
    }
    return 0;
}

static bool has_ceilings(const struct measure *m, enum backend backend) {
    return m->once && m->once[backend].copy_gbs > 0;
}

static struct place_setup setup_of(const struct measure *m, enum backend backend) {
    const struct workload *w = m->workload;
    return (struct place_setup){.shapes = w->tables,
                                .num_tables = w->num_tables,
                                .batches = w->batches,
                                .index = m->index,
                                .ring = w->ring,
                                .threads = m->threads,
                                .seed = w->seed,
                                .tables = backend == ON_HOST ? m->tables : NULL,
                                .timed = !has_ceilings(m, backend),
                                .operation = m->operation};
}

static int open_output(struct measure *m, enum backend backend, enum operation operation,
                       struct error *err) {
    const struct place_setup setup = setup_of(m, backend);
    struct place_scratch *output = &m->at[backend].output;
    return output->data ? 0
                        : runner_output_open(m->at[backend].place, &setup, operation, output, err);
}

int measure_open_place(struct measure *m, enum backend backend, struct error *err) {
    const struct place_setup setup = setup_of(m, backend);
    struct place **place = &m->at[backend].place;
    if (!*place) *place = (m->open ? m->open : place_open)(backend, &setup, err);
    if (!*place) return -1;
    return open_output(m, backend, m->operation, err);
}

/* Makes iterations possible at the place of a kernel. */
static int open_forward(struct measure *m, const struct kernel *k, struct error *err) {
    const struct workload *w = m->workload;
    const struct kernel *forward = registry_find(OP_FORWARD, forward_of[k->place], err);
    if (!forward) return -1;
    if (k->operation != OP_STEP) return fail(err, "%s: only a step can run in iterations", k->name);
    for (int b = 0; b < w->ring; b++) {
        const char *why = kernel_refuses(forward, &w->batches[b]);
        if (why)
            return fail(err, "the forward of iterations, %s, refuses this batch: %s", forward->name,
                        why);
    }
    m->at[k->place].forward = forward;
    return open_output(m, k->place, OP_FORWARD, err);
}

void measure_close(struct measure *m) {
    for (int b = 0; b < 2; b++) {
        struct place *p = m->at[b].place;
        if (!p) continue;
        p->ops->scratch_close(p, &m->at[b].scratch);
        p->ops->scratch_close(p, &m->at[b].output);
        p->ops->close(p);
    }
    for (int k = 0; k < RING_MAX; k++) {
        row_index_free(&m->index[k]);
        free(m->right[k]);
    }
    free(m->rules);
    free(m->steps);
    memset(m, 0, sizeof *m);
}

static struct place *place_of(const struct measure *m, const struct kernel *k) {
    return m->at[k->place].place;
}

static struct place_job job_of(struct measure *m, const struct kernel *k, enum cache_mode mode,
                               int batch, struct place_scratch *scratch) {
    const bool iteration = mode == MODE_ITERATION, writes = iteration || k->operation != OP_STEP;
    return (struct place_job){.kernel = k,
                              .forward = iteration ? m->at[k->place].forward : NULL,
                              .batch = batch,
                              .steps = m->steps,
                              .scratch = scratch,
                              .output = writes ? &m->at[k->place].output : NULL};
}

/* Scratch of exactly the declared size. If memory is short, it first frees resident scratch. */
static int scratch_for(struct measure *m, const struct kernel *k, struct place_scratch *out,
                       struct error *err) {
    struct place *p = place_of(m, k);
    if (runner_scratch_open(p, k, out, err) == 0) return 0;
    if (kernel_refuses(k, &m->workload->batches[0])) return -1;
    p->ops->scratch_close(p, &m->at[k->place].scratch);
    return runner_scratch_open(p, k, out, err);
}

/* Keeps this scratch, or another of `least` bytes, for sampling. */
static int keep_scratch(struct measure *m, const struct kernel *k, struct place_scratch *mine,
                        bool fits, size_t least, struct error *err) {
    struct place *p = place_of(m, k);
    struct place_scratch *kept = &m->at[k->place].scratch;
    if (fits && mine->bytes > kept->bytes && mine->bytes >= least) {
        p->ops->scratch_close(p, kept);
        *kept = *mine;
        return 0;
    }
    p->ops->scratch_close(p, mine);
    if (kept->bytes >= least) return 0;
    p->ops->scratch_close(p, kept);
    return p->ops->scratch_open(p, kept, least, "scratch", err) ||
                   p->ops->scratch_fill(p, kept, POISON, err)
               ? -1
               : 0;
}

/* Undoes a step: restores the touched rows; or all rows, if a dense step moved untouched ones or a
 * wrong step may have written anywhere. Other operations changed none. */
static int restore(struct measure *m, const struct kernel *k, int b, bool all, struct error *err) {
    struct place *p = place_of(m, k);
    if (k->operation != OP_STEP && !all) return 0;
    for (int32_t t = 0; t < m->workload->num_tables; t++)
        all |= (k->traits & DENSE_STEP) && !rule_keeps_idle(&m->rules[t]);
    return p->ops->restore(p, all ? -1 : b, err);
}

/* Poisons this scratch, runs a step with it, and judges the step. */
static int check_with(struct measure *m, const struct kernel *k, enum cache_mode mode, int batch,
                      struct place_scratch *scratch, struct check_result *out, struct error *err) {
    struct workload *w = m->workload;
    struct table_set shapes = {.count = w->num_tables, .shapes = w->tables, .seed = w->seed};
    const struct place_job job = job_of(m, k, mode, batch, scratch);
    const struct check c = {.in = &w->batches[batch],
                            .index = &m->index[batch],
                            .rules = m->rules,
                            .step = MEASURED_STEP,
                            .before = tables_initial_row,
                            .before_ctx = &shapes,
                            .exact = m->exact[batch],
                            .right = m->right[batch]};
    memset(out, 0, sizeof *out);
    int status = runner_step(place_of(m, k), &job, POISON, err);
    if (status > 0) snprintf(out->message, sizeof out->message, "%.380s", err->text);
    if (status == 0) status = runner_check(place_of(m, k), &job, c, out, err);
    struct error later; /* if the step could not be judged, its own error matters more */
    if (restore(m, k, batch, status != 0, status < 0 ? &later : err)) return -1;
    return status;
}

int measure_check(struct measure *m, const struct kernel *k, enum cache_mode mode, int batch,
                  struct check_result *out, struct error *err) {
    return check_with(m, k, mode, batch, &m->at[k->place].scratch, out, err);
}

int measure_admit(struct measure *m, const struct kernel *k, enum cache_mode mode,
                  struct scratch_use *use, struct check_result *out, struct error *err) {
    struct place_scratch scratch = {0};
    struct step_parts parts = {0};
    size_t resident = m->at[k->place].scratch.bytes;
    memset(use, 0, sizeof *use);
    struct place *p = place_of(m, k);
    if (!p) return fail(err, "%s: its place is not open", k->name);
    int status = mode == MODE_ITERATION ? open_forward(m, k, err) : 0;
    if (status == 0) status = scratch_for(m, k, &scratch, err);
    if (status == 0) {
        const struct place_job job = job_of(m, k, mode, 0, &scratch);
        use->declared = (int64_t)scratch.bytes;
        status = p->ops->parts(p, &job, &parts, err);
        if (status == 0) status = restore(m, k, 0, false, err);
        if (status == 0)
            status = check_with(m, k, mode, 0, &scratch, out, err); /* makes it resident */
        use->observed = parts.appeared;
        use->graph = parts.graph;
    }
    struct error later;
    bool lost = keep_scratch(m, k, &scratch, status == 0, resident, status < 0 ? &later : err);
    return lost && status == 0 ? -1 : status;
}

int measure_admit_again(struct measure *m, const struct kernel *k, enum cache_mode mode,
                        struct error *err) {
    struct place *p = place_of(m, k);
    struct place_scratch none = {0};
    size_t bytes;
    if (!p) return fail(err, "%s: its place is not open", k->name);
    if (mode == MODE_ITERATION && open_forward(m, k, err)) return -1;
    if (p->ops->scratch_bytes(p, k, &bytes, err)) return -1;
    return keep_scratch(m, k, &none, false, bytes, err);
}

/* Measures the ceilings, or keeps the latest ones: the host's hold for as many samples as its kernels have in a round,
 * cold and warm. A device measures them every time: they tell whether a sample was disturbed. */
static int ceilings(struct measure *m, enum backend backend, struct ceiling *out,
                    struct error *err) {
    struct place *p = m->at[backend].place;
    struct held_ceiling *held = &m->at[backend].ceiling;
    if (has_ceilings(m, backend)) held->latest = m->once[backend], held->left = 1;
    if (held->left == 0) {
        if (p->ops->ceilings(p, &held->latest, err)) return -1;
        held->left = backend == ON_HOST ? CEILING_TURNS : 1;
    }
    held->left--;
    *out = held->latest;
    if (m->once) m->once[backend] = *out;
    return 0;
}

int measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                   const struct sample *after, struct sample *out, struct error *err) {
    struct place *p = place_of(m, k);
    memset(out, 0, sizeof *out);
    out->batch = after ? after->batch : mode == MODE_WARM ? 0 : round % m->workload->ring;
    out->iteration = mode == MODE_ITERATION;
    const struct place_job job = job_of(m, k, mode, out->batch, &m->at[k->place].scratch);
    double begin = clock_seconds();
    for (int try = 0; try < TRIES; try++) {
        out->rejected = try;
        const bool ran = after && try == 0;
        if (ran)
            out->ceiling = after->ceiling;
        else if (ceilings(m, k->place, &out->ceiling, err))
            return -1;
        if (mode == MODE_WARM && !ran &&
            (p->ops->run(p, &job, err) || restore(m, k, out->batch, false, err)))
            return -1;
        if (p->ops->time(p, &job, mode != MODE_WARM, &out->times, err) ||
            restore(m, k, out->batch, false, err))
            return -1;
        if (!out->times.disturbed || m->once || clock_seconds() - begin > seconds_for_tries) break;
    }
    return 0;
}
