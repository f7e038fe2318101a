/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/step.h"
#include "cli/table_files.h"
#include "harness/ceiling.h"
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

static void copied_row(const void *ctx, int32_t table, int64_t row, float *weight,
                       float *const elem[RULE_ELEM_STATES], float *row_state) {
    const struct table_set *s = ctx;
    const struct table_shape *shape = &s->shapes[table];
    struct rule_info info = rule_info(shape->rule);
    struct row_memory m = row_memory(&s->tables[table], shape, row);
    size_t bytes = (size_t)shape->dim * sizeof(float);
    memcpy(weight, m.weight, bytes);
    for (int k = 0; k < info.elem_states; k++) memcpy(elem[k], m.elem[k], bytes);
    if (m.row) memcpy(row_state, m.row, (size_t)info.row_states * sizeof(float));
}

/* One step, number t; returns its seconds. */
static double run_one(const struct kernel *k, struct step_inputs *in, struct rule_step *steps,
                      int64_t t, const struct launch *how) {
    for (int32_t i = 0; i < in->what.num_tables; i++) steps[i] = rule_step(in->what.rules[i], t);
    double begin = clock_seconds();
    k->run(&in->workload.batches[0], steps, in->tables.tables, how);
    return clock_seconds() - begin;
}

static int check(const struct kernel *k, const struct step_inputs *in,
                 const struct table_set *before, const struct buffer *scratch, int64_t t,
                 const struct row_index *index, struct step_outcome *out, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    out->checked = true;
    out->exact = batch_sums_exact(batch, made_exact(batch) ? GRAD_EXACT : GRAD_REAL);
    struct check c = {.in = batch,
                      .index = index,
                      .rules = in->what.rules,
                      .step = t,
                      .before = copied_row,
                      .before_ctx = before,
                      .after = in->tables.tables,
                      .exact = out->exact,
                      .dense = k->traits & DENSE_STEP};
    out->result = check_run(&c);
    if (!out->result.ok) {
        fail(err, "%s: wrong result at step %lld: %s", k->name, (long long)t, out->result.message);
        return 1;
    }
    if (buffer_intact(scratch) && tables_intact(&in->tables)) return 0;
    fail(err, "%s: wrong result: wrote outside of its scratch or of the tables", k->name);
    return 1;
}

static int cannot_run(const struct kernel *k, const struct batch *in, struct error *err) {
    const char *why =
        k->place == ON_HOST ? kernel_refuses(k, in) : "runs on a device, step does not";
    return why ? fail(err, "%s refuses this batch: %s", k->name, why) : 0;
}

int step_run(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
             struct step_outcome *out, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    struct table_set before = {0};
    struct buffer scratch = {0};
    *out = (struct step_outcome){0};
    if (cannot_run(k, batch, err)) return -1;
    size_t bytes = k->scratch_bytes ? k->scratch_bytes(batch, (int)f->threads) : 0;
    if (buffer_alloc(&scratch, bytes, "scratch of the kernel", err)) return -1;
    struct rule_step *steps = calloc((size_t)in->what.num_tables, sizeof *steps);
    int status = steps ? 0 : fail(err, "out of memory");
    struct launch how = {.threads = (int)f->threads, .scratch = scratch.data};
    int64_t last = f->first + f->steps - 1;
    for (int64_t t = f->first; status == 0 && t <= last; t++) {
        if (t == last && !f->no_check) status = table_set_copy(&in->tables, &before, err);
        buffer_poison(&scratch);
        if (status == 0) out->seconds = run_one(k, in, steps, t, &how);
    }
    struct row_index index = {0};
    if (status == 0) index = row_index_build(batch);
    out->lookups = index.lookups;
    out->distinct = index.rows;
    for (int32_t t = 0; t < in->what.num_tables; t++)
        out->dense |= k->traits & DENSE_STEP && !rule_info(batch->tables[t].rule).idle_is_identity;
    if (status == 0 && !f->no_check)
        status = check(k, in, &before, &scratch, last, &index, out, err);
    row_index_free(&index);
    free(steps);
    tables_free(&before);
    buffer_free(&scratch);
    return status;
}
