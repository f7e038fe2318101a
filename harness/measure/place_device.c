/* SPDX-License-Identifier: MIT
 *
 * A device holds tables, batches and scratch in its memory. Events replace the clock, and a fixed
 * computation before and after every sample replaces the waiting time of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device_ceiling.h"
#include "harness/device/device_fill.h"
#include "harness/measure/place.h"
#include "harness/workload/workload.h"

struct on_device {
    struct place place;
    struct place_setup setup;
    struct device_tables tables;
    struct device_batch batch[PLACE_RING_MAX];
    struct device_buffer touched[PLACE_RING_MAX]; /* the rows of each batch */
    struct device_buffer steps;
    struct rule_step *host_steps; /* the same in host memory */
    struct device_fill fill;
    struct device_probe probe;
    double copy_gbs; /* the latest ceiling */
};

static struct on_device *device_of(struct place *p) {
    return (struct on_device *)p;
}

static double gib(int64_t bytes) {
    return (double)bytes / (1 << 30);
}

static int64_t batch_bytes(const struct batch *in) {
    int64_t words = in->flat_bags + 1 + in->lookups * (in->id_type == ID_INT32 ? 0 : 1);
    int64_t halves = in->grad_elements + (in->lookup_weights ? in->lookups : 0) +
                     (in->winners ? in->grad_elements : 0) +
                     (in->id_type == ID_INT32 ? in->lookups : 0);
    return 8 * words + 4 * halves;
}

/* Fails before it allocates anything if not all of it fits. */
static int require(const struct place_setup *s, int64_t probe_rows, struct error *err) {
    const int64_t have = device_facts().free_memory,
                  tables = tables_bytes(s->shapes, s->num_tables);
    int64_t batches = 0;
    for (int k = 0; k < s->ring; k++)
        batches +=
            batch_bytes(&s->batches[k]) + s->index[k].rows * (int64_t)sizeof(struct device_row);
    const int64_t need = tables + batches + (s->timed ? device_probe_bytes(probe_rows) : 0);
    if (need <= have) return 0;
    return fail(err,
                "needs %.1f GiB of device memory (%.1f GiB of tables and state, %.1f GiB of "
                "batches), %.1f GiB are free; use smaller tables or batches",
                gib(need), gib(tables), gib(batches), gib(have));
}

static void close_place(struct place *p) {
    struct on_device *d = device_of(p);
    if (d->setup.timed) device_probe_close(&d->probe);
    device_fill_close(&d->fill);
    device_free(&d->steps);
    for (int k = 0; k < PLACE_RING_MAX; k++) {
        device_free(&d->touched[k]);
        device_batch_free(&d->batch[k]);
    }
    device_tables_free(&d->tables);
    free(d->host_steps);
    free(d);
}

static int open_all(struct on_device *d, struct error *err) {
    const struct place_setup *s = &d->setup;
    const int32_t large = tables_largest(s->shapes, s->num_tables);
    d->host_steps = calloc((size_t)s->num_tables, sizeof *d->host_steps);
    if (!d->host_steps) return fail(err, "out of memory");
    const struct array weight_rows = {NULL, table_memory_stride(&s->shapes[large], TABLE_WEIGHT)};
    if (require(s, array_float_rows(&weight_rows, s->shapes[large].rows), err) ||
        device_tables_create(&d->tables, s->shapes, s->num_tables, err) ||
        device_fill_open(&d->fill, &d->tables, s->seed, err) ||
        (s->tables ? device_tables_put(&d->tables, s->tables->tables, err)
                   : device_fill_all(&d->fill, err)) ||
        device_alloc(&d->steps, (size_t)s->num_tables * sizeof(struct rule_step), "the rules", err))
        return -1;
    for (int k = 0; k < s->ring; k++)
        if (device_batch_create(&d->batch[k], &s->batches[k], err) ||
            device_batch_validate(&d->batch[k], err) ||
            device_rows_create(&d->touched[k], &s->index[k], err))
            return -1;
    if (!s->timed) return 0;
    const struct array *weight = &d->tables.tables[large].weight;
    return device_probe_open(&d->probe, weight->data,
                             array_float_rows(weight, s->shapes[large].rows),
                             array_row_floats(weight), err);
}

static int scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    return setup_scratch_bytes(&device_of(p)->setup, k, bytes, err);
}

static int scratch_open(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                        struct error *err) {
    (void)p;
    memset(s, 0, sizeof *s);
    if (device_alloc(&s->device, bytes, what, err)) return -1;
    s->data = s->device.data;
    s->bytes = bytes;
    return 0;
}

static void scratch_close(struct place *p, struct place_scratch *s) {
    (void)p;
    if (s->device.data) device_free(&s->device);
    memset(s, 0, sizeof *s);
}

static int scratch_fill(struct place *p, struct place_scratch *s, int byte, struct error *err) {
    (void)p;
    return device_set(&s->device, byte, err);
}

static int scratch_get(struct place *p, const struct place_scratch *s, void *to,
                       struct error *err) {
    (void)p;
    return device_get(to, s->data, s->bytes, err);
}

static int flush(const void *ctx, struct error *err) {
    return device_probe_flush(ctx, err);
}

static int occupy(const void *ctx, struct error *err) {
    return device_probe_occupy(ctx, err);
}

/* The job with its steps in device memory. */
static int job_of(struct on_device *d, const struct place_job *job, struct device_job *out,
                  struct error *err) {
    *out = (struct device_job){.kernel = job->kernel,
                               .forward = job->forward,
                               .planned = job->planned,
                               .in = &d->batch[job->batch].batch,
                               .steps = d->steps.data,
                               .io = d->tables.io.data,
                               .scratch = job->scratch->data,
                               .output = job->output ? job->output->data : NULL,
                               .before_ctx = &d->probe};
    memcpy(d->host_steps, job->steps, d->steps.bytes);
    return device_put(d->steps.data, job->steps, d->steps.bytes, err);
}

static int run(struct place *p, const struct place_job *job, struct error *err) {
    struct device_job here;
    if (job_of(device_of(p), job, &here, err)) return -1;
    return device_run(&here, job->mark, job->mark_ctx, err);
}

static int parts(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err) {
    struct device_job here;
    if (job_of(device_of(p), job, &here, err)) return -1;
    int64_t before = device_facts().free_memory;
    if (device_run(&here, NULL, NULL, err)) return -1;
    int64_t grown = before - device_facts().free_memory; /* local memory, say */
    out->appeared = (int64_t)job->scratch->bytes + (grown > 0 ? grown : 0);
    return device_replay(&here, 0, &out->graph, err);
}

static int plan(struct place *p, const struct place_job *job, struct error *err) {
    struct device_job here;
    return job_of(device_of(p), job, &here, err) || device_plan(&here, err) ? -1 : 0;
}

static int evict(struct place *p, struct error *err) {
    return device_probe_flush(&device_of(p)->probe, err);
}

static int renew(struct place *p, int batch, struct error *err) {
    struct on_device *d = device_of(p);
    return device_batch_put(&d->batch[batch], &d->setup.batches[batch], err);
}

static int ceilings(struct place *p, struct ceiling *out, struct error *err) {
    if (device_open(err)) return -1;
    if (device_facts().emulated)
        return fail(err, "the device is emulated: it shows that a kernel is right, and has no time "
                         "that could be measured");
    struct on_device *d = device_of(p);
    if (device_probe_measure(&d->probe, out, err)) return -1;
    d->copy_gbs = out->copy_gbs;
    return 0;
}

static int restore(struct place *p, int batch, struct error *err) {
    const struct on_device *d = device_of(p);
    if (batch < 0) return device_fill_all(&d->fill, err);
    return device_fill_rows(&d->fill, &d->touched[batch], err);
}

/* The step in stream order, then as a graph on the same rows; and whether the clock or the copy ceiling
 * moved meanwhile. */
static int time_watched(struct on_device *d, struct device_job *job, int batch, bool cold,
                        struct device_times *step, struct step_times *out, struct error *err) {
    const bool changes = job->kernel->operation == OP_STEP;
    struct device_times replay;
    double before, after;
    job->before_run = cold ? flush : occupy;
    if (device_probe_clock(&d->probe, &before, err) || device_time(job, TIMED_WHOLE, step, err) ||
        (changes && restore(&d->place, batch, err)) ||
        device_time(job, TIMED_REPLAY, &replay, err) || device_probe_clock(&d->probe, &after, err))
        return -1;
    out->replay = replay.seconds;
    out->disturbed = device_probe_disturbed(&d->probe, before, after, d->copy_gbs);
    return 0;
}

static int time_step(struct place *p, const struct place_job *job, bool cold,
                     struct step_times *out, struct error *err) {
    struct on_device *d = device_of(p);
    struct device_job here;
    struct device_times step, stages;
    *out = (struct step_times){0};
    if (job_of(d, job, &here, err)) return -1;
    if (d->setup.timed ? time_watched(d, &here, job->batch, cold, &step, out, err)
                       : device_time(&here, TIMED_WHOLE, &step, err))
        return -1;
    out->seconds = step.seconds;
    out->plan = step.plan;
    if (!d->setup.timed) return 0;
    out->clocks = device_clocks();
    out->disturbed |= out->clocks.throttled;
    /* A third run on the same rows times the stages: an event between two stages costs little but
     * separates them, and must not count in the time of the whole step. */
    if (restore(p, job->batch, err) || device_time(&here, TIMED_STAGES, &stages, err)) return -1;
    memcpy(out->stage, stages.stage, sizeof out->stage);
    if (!job->forward) return 0;
    out->forward = stages.forward;
    out->plan = stages.plan;
    return 0;
}

static int get_rows(struct place *p, int32_t t, int64_t begin, int64_t end, struct table *rows,
                    struct error *err) {
    return device_tables_get_rows(&device_of(p)->tables, t, begin, end, rows, err);
}

static const struct device_batch *batch_of(struct place *p, int batch) {
    return &device_of(p)->batch[batch];
}

static const struct device_tables *tables_of(struct place *p) {
    return &device_of(p)->tables;
}

static int intact(struct place *p, int batch, const struct place_scratch *s, struct error *err) {
    const struct on_device *d = device_of(p);
    if (!device_intact(&s->device)) return fail(err, "wrote outside of its scratch"), 1;
    if (!device_tables_intact(&d->tables)) return fail(err, "wrote outside of the tables"), 1;
    int status = device_batch_unchanged(&d->batch[batch], &d->setup.batches[batch], err);
    if (status == 0)
        status = device_unchanged(&d->tables.io, d->tables.tables, "table pointers", err);
    if (status == 0) status = device_unchanged(&d->steps, d->host_steps, "steps", err);
    return status;
}

static const struct place_ops device_ops = {.close = close_place,
                                            .scratch_bytes = scratch_bytes,
                                            .scratch_open = scratch_open,
                                            .scratch_close = scratch_close,
                                            .scratch_fill = scratch_fill,
                                            .scratch_get = scratch_get,
                                            .plan = plan,
                                            .flush = evict,
                                            .renew = renew,
                                            .run = run,
                                            .parts = parts,
                                            .time = time_step,
                                            .ceilings = ceilings,
                                            .restore = restore,
                                            .tables = place_tables_elsewhere,
                                            .get_rows = get_rows,
                                            .device_batch = batch_of,
                                            .device_tables = tables_of,
                                            .intact = intact};

struct place *place_device_open(const struct place_setup *setup, struct error *err) {
    if (device_open(err)) return NULL;
    struct on_device *d = calloc(1, sizeof *d);
    if (!d) return fail(err, "out of memory"), NULL;
    d->place.ops = &device_ops;
    d->setup = *setup;
    if (open_all(d, err) == 0) return &d->place;
    close_place(&d->place);
    return NULL;
}
