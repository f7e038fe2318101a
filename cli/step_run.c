/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/step.h"
#include "cli/step_device.h"
#include "cli/table_files.h"
#include "harness/measure/ceiling.h"
#include "harness/registry.h"

/* Is every gradient one that exact mode makes, and every weight? Then its stricter check holds,
 * wherever they come from. See batch_fill.c. */
static bool made_exact(const struct batch *in) {
    bool exact = true;
    for (int64_t i = 0; exact && i < in->grad_floats; i++) {
        float units = in->grad[i] * 64.0f;
        exact = units == rintf(units) && fabsf(units) <= 4.0f && !(units == 0 && signbit(units));
    }
    for (int64_t i = 0; exact && in->lookup_weights && i < in->lookups; i++) {
        float w = in->lookup_weights[i];
        exact = w == 0.5f || w == 1.0f || w == 2.0f;
    }
    return exact;
}

/* Where the kernel runs. */
struct runner {
    const struct kernel *kernel;
    int threads;
    struct buffer scratch;     /* on the host */
    struct step_device device; /* or on a device: all of it */
};

static int runner_open(struct runner *r, const struct kernel *k, const struct step_inputs *in,
                       int threads, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    const char *why = kernel_refuses(k, batch);
    *r = (struct runner){.kernel = k, .threads = threads};
    if (why) return fail(err, "%s refuses this batch: %s", k->name, why);
    if (k->place == ON_DEVICE) return step_device_open(&r->device, k, in, err);
    size_t bytes = k->scratch_bytes ? k->scratch_bytes(batch, threads) : 0;
    return buffer_alloc(&r->scratch, bytes, "scratch of the kernel", err);
}

static void runner_close(struct runner *r) {
    step_device_close(&r->device);
    buffer_free(&r->scratch);
}

static bool runner_intact(const struct runner *r, const struct table_set *tables) {
    if (r->kernel->place == ON_DEVICE) return step_device_intact(&r->device);
    return buffer_intact(&r->scratch) && tables_intact(tables);
}

/* One step, number t. */
static int run_one(struct runner *r, struct step_inputs *in, struct rule_step *steps, int64_t t,
                   double *seconds, struct error *err) {
    for (int32_t i = 0; i < in->what.num_tables; i++) steps[i] = rule_step(in->what.rules[i], t);
    if (r->kernel->place == ON_DEVICE) return step_device_run(&r->device, steps, seconds, err);
    const struct batch *batch = &in->workload.batches[0];
    struct launch how = {.threads = r->threads, .scratch = r->scratch.data};
    buffer_poison(&r->scratch);
    if (r->kernel->plan) r->kernel->plan(batch, &how);
    double begin = clock_seconds();
    r->kernel->run(batch, steps, in->tables.tables, &how);
    *seconds = clock_seconds() - begin;
    return 0;
}

/* The tables as they are now, in in->tables. */
static int fetch(const struct runner *r, struct step_inputs *in, struct error *err) {
    return r->kernel->place == ON_DEVICE ? step_device_get(&r->device, &in->tables, err) : 0;
}

/* What the oracle says of step t, that led from `before` to in->tables. */
static int check(const struct runner *r, const struct step_inputs *in,
                 const struct table_set *before, int64_t t, const struct row_index *index,
                 struct step_outcome *out, struct error *err) {
    const struct kernel *k = r->kernel;
    const struct batch *batch = &in->workload.batches[0];
    struct check c = {.in = batch,
                      .index = index,
                      .rules = in->what.rules,
                      .step = t,
                      .before = tables_copy_row,
                      .before_ctx = before,
                      .after = in->tables.tables,
                      .exact = out->exact,
                      .dense = k->traits & DENSE_STEP,
                      .per_lookup = k->traits & STEP_PER_LOOKUP};
    struct check_result result = check_run(&c);
    if (result.worst > out->worst) out->worst = result.worst;
    if (result.undecided) return fail(err, "step %lld: %s", (long long)t, result.message);
    if (!result.ok) {
        fail(err, "%s: wrong result at step %lld: %s", k->name, (long long)t, result.message);
        return 1;
    }
    if (runner_intact(r, &in->tables)) return 0;
    fail(err, "%s: wrong result at step %lld: wrote outside of its scratch or of the tables",
         k->name, (long long)t);
    return 1;
}

/* All steps, each checked: a wrong row of an early one could be right again in the last one's. */
static int run_all(const struct step_flags *f, struct runner *r, struct step_inputs *in,
                   struct table_set *before, const struct row_index *index,
                   struct step_outcome *out, struct error *err) {
    struct rule_step *steps = calloc((size_t)in->what.num_tables, sizeof *steps);
    int status = steps ? 0 : fail(err, "out of memory");
    for (int64_t t = f->first; status == 0 && t < f->first + f->steps; t++) {
        if (out->checked) table_set_copy(&in->tables, before);
        status = run_one(r, in, steps, t, &out->seconds, err);
        if (status == 0 && (out->checked || t + 1 == f->first + f->steps))
            status = fetch(r, in, err);
        if (status == 0 && out->checked) status = check(r, in, before, t, index, out, err);
    }
    free(steps);
    return status;
}

int step_run(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
             struct step_outcome *out, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    struct table_set before = {0};
    struct runner runner;
    *out = (struct step_outcome){.checked = !f->no_check};
    if (runner_open(&runner, k, in, (int)f->threads, err)) return -1;
    struct row_index index = row_index_build(batch);
    out->lookups = index.lookups;
    out->distinct = index.rows;
    out->exact = batch_sums_exact(batch, made_exact(batch) ? GRAD_EXACT : GRAD_REAL);
    bool bounded = false;
    for (int32_t t = 0; t < in->what.num_tables; t++) {
        enum rule_kind rule = batch->tables[t].rule;
        out->dense |= k->traits & DENSE_STEP && !rule_idle_is_identity(rule);
        bounded |= k->traits & STEP_PER_LOOKUP;
    }
    int status = 0;
    if (out->checked) status = tables_create(&before, in->tables.shapes, in->tables.count, 0, err);
    if (status == 0) status = run_all(f, &runner, in, &before, &index, out, err);
    out->exact &= !bounded;
    row_index_free(&index);
    tables_free(&before);
    runner_close(&runner);
    return status;
}
