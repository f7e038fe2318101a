/* SPDX-License-Identifier: MIT
 *
 * Measuring on a device: tables, batches and scratch in its memory, events instead of a clock, and
 * a fixed computation before and after every sample instead of context switches.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device_ceiling.h"
#include "harness/device/device_fill.h"
#include "harness/measure/measure.h"

struct device_state {
    struct device_tables tables;
    struct device_batch batch[RING_MAX];
    struct device_buffer touched[RING_MAX]; /* the rows of each batch */
    struct device_buffer steps;
    struct device_fill fill;
    struct device_probe probe;
};

static double gib(int64_t bytes) {
    return (double)bytes / (1 << 30);
}

static int64_t batch_bytes(const struct batch *in) {
    int64_t words =
        in->num_features * in->bags + 1 + in->lookups * (in->id_type == ID_INT32 ? 0 : 1);
    int64_t halves = in->grad_floats + (in->lookup_weights ? in->lookups : 0) +
                     (in->id_type == ID_INT32 ? in->lookups : 0);
    return 8 * words + 4 * halves;
}

/* Nothing is allocated unless all of it fits. */
static int require(const struct measure *m, int64_t table_rows, struct error *err) {
    int64_t batches = 0, have = device_facts().free_memory;
    for (int k = 0; k < m->workload->ring; k++)
        batches += batch_bytes(&m->workload->batches[k]) +
                   m->index[k].rows * (int64_t)sizeof(struct device_row);
    int64_t need = m->bytes + batches + device_probe_bytes(table_rows);
    if (need <= have) return 0;
    return fail(err,
                "needs %.1f GiB of device memory (%.1f GiB of tables and state, %.1f GiB of "
                "batches), %.1f GiB are free; use smaller tables or batches",
                gib(need), gib(m->bytes), gib(batches), gib(have));
}

static void device_close(struct measure *m) {
    struct device_state *d = m->device;
    device_probe_close(&d->probe);
    device_fill_close(&d->fill);
    device_free(&d->steps);
    for (int k = 0; k < RING_MAX; k++) {
        device_free(&d->touched[k]);
        device_batch_free(&d->batch[k]);
    }
    device_tables_free(&d->tables);
    free(d);
    m->device = NULL;
}

static int open_all(struct measure *m, struct device_state *d, struct error *err) {
    struct workload *w = m->workload;
    int32_t large = measure_largest_table(w);
    size_t steps = (size_t)w->num_tables * sizeof *m->steps;
    if (device_tables_create(&d->tables, w->tables, w->num_tables, err) ||
        device_fill_open(&d->fill, &d->tables, w->seed, err) || device_fill_all(&d->fill, err) ||
        device_alloc(&d->steps, steps, "the rules", err) ||
        device_put(d->steps.data, m->steps, steps, err))
        return -1;
    for (int k = 0; k < w->ring; k++)
        if (device_batch_create(&d->batch[k], &w->batches[k], err) ||
            device_batch_validate(&d->batch[k], err) ||
            device_rows_create(&d->touched[k], &m->index[k], err))
            return -1;
    const struct array *weight = &d->tables.tables[large].weight;
    return device_probe_open(&d->probe, weight->data,
                             array_float_rows(weight, w->tables[large].rows),
                             array_row_floats(weight), err);
}

static int device_place_open(struct measure *m, struct error *err) {
    if (device_open(err) ||
        require(m, m->workload->tables[measure_largest_table(m->workload)].rows, err))
        return -1;
    m->device = calloc(1, sizeof *m->device);
    if (!m->device) return fail(err, "out of memory");
    if (open_all(m, m->device, err) == 0) return 0;
    device_close(m);
    return -1;
}

static int device_scratch_open(struct place_scratch *s, size_t bytes, const char *what,
                               struct error *err) {
    memset(s, 0, sizeof *s);
    if (device_open(err) || device_alloc(&s->device, bytes, what, err)) return -1;
    s->data = s->device.data;
    s->bytes = bytes;
    return 0;
}

static void device_scratch_close(struct place_scratch *s) {
    if (s->device.data) device_free(&s->device);
    memset(s, 0, sizeof *s);
}

static int device_scratch_poison(struct place_scratch *s, struct error *err) {
    return device_poison(&s->device, err);
}

static bool device_all_intact(struct measure *m, const struct place_scratch *s) {
    return device_intact(&s->device) && device_tables_intact(&m->device->tables);
}

static int flush(const void *ctx, struct error *err) {
    return device_probe_flush(ctx, err);
}

static int occupy(const void *ctx, struct error *err) {
    return device_probe_occupy(ctx, err);
}

static struct device_job job_of(struct measure *m, const struct kernel *k, int b, void *scratch) {
    struct device_state *d = m->device;
    return (struct device_job){.kernel = k,
                               .in = &d->batch[b].batch,
                               .steps = d->steps.data,
                               .io = d->tables.io.data,
                               .scratch = scratch,
                               .before_ctx = &d->probe};
}

static int device_step(struct measure *m, const struct kernel *k, int b, void *scratch,
                       struct error *err) {
    struct device_job job = job_of(m, k, b, scratch);
    return device_run(&job, NULL, NULL, err);
}

static int device_parts(struct measure *m, const struct kernel *k, int b, struct place_scratch *s,
                        struct step_parts *out, struct error *err) {
    struct device_job job = job_of(m, k, b, s->data);
    int64_t before = device_facts().free_memory;
    if (device_run(&job, NULL, NULL, err)) return -1;
    int64_t grown = before - device_facts().free_memory; /* local memory, say */
    out->appeared = (int64_t)s->bytes + (grown > 0 ? grown : 0);
    return device_replay(&job, 0, &out->graph, err);
}

static int device_restore(struct measure *m, int b, bool all, struct error *err) {
    const struct device_state *d = m->device;
    return all ? device_fill_all(&d->fill, err) : device_fill_rows(&d->fill, &d->touched[b], err);
}

static int fetch(const void *ctx, int32_t table, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    return device_tables_get_rows(ctx, table, begin, end, rows, err);
}

static void device_look(struct measure *m, struct check *c) {
    c->fetch = fetch;
    c->fetch_ctx = &m->device->tables;
}

static int device_ceilings(struct measure *m, struct ceiling *out, struct error *err) {
    if (device_open(err)) return -1;
    if (device_facts().emulated)
        return fail(err, "the device is emulated: it shows that a kernel is right, and has no time "
                         "that could be measured");
    return device_probe_measure(&m->device->probe, out, err);
}

static int device_timed(struct measure *m, const struct kernel *k, int b, bool cold,
                        struct sample *out, struct error *err) {
    struct device_state *d = m->device;
    struct device_job job = job_of(m, k, b, m->at[ON_DEVICE].scratch.data);
    struct device_times step, stages;
    double before, after;
    job.before_run = cold ? flush : occupy;
    if (device_probe_clock(&d->probe, &before, err) || device_time(&job, false, &step, err) ||
        device_probe_clock(&d->probe, &after, err))
        return -1;
    out->seconds = step.seconds;
    out->plan = step.plan;
    out->clocks = device_clocks();
    out->disturbed = out->clocks.throttled ||
                     device_probe_disturbed(&d->probe, before, after, out->ceiling.copy_gbs);
    /* The stages come from a second run on the same rows: an event between two stages costs little,
     * but keeps them apart, and the time of the whole step has to be without it. */
    if (device_restore(m, b, false, err) || device_time(&job, true, &stages, err)) return -1;
    memcpy(out->stage, stages.stage, sizeof out->stage);
    return 0;
}

const struct place_ops place_device = {.open = device_place_open,
                                       .close = device_close,
                                       .scratch_open = device_scratch_open,
                                       .scratch_close = device_scratch_close,
                                       .poison = device_scratch_poison,
                                       .intact = device_all_intact,
                                       .step = device_step,
                                       .parts = device_parts,
                                       .restore = device_restore,
                                       .look = device_look,
                                       .ceilings = device_ceilings,
                                       .timed = device_timed};
