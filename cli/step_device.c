/* SPDX-License-Identifier: MIT */
#include "cli/step_device.h"

static int open_all(struct step_device *d, const struct step_inputs *in, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    const struct kernel *k = d->kernel;
    size_t scratch = k->scratch_bytes ? k->scratch_bytes(batch, 1) : 0;
    size_t steps = (size_t)batch->num_tables * sizeof(struct rule_step);
    if (device_batch_create(&d->batch, batch, err) || device_batch_validate(&d->batch, err) ||
        device_tables_create(&d->tables, batch->tables, batch->num_tables, err) ||
        device_tables_put(&d->tables, in->tables.tables, err) ||
        device_alloc(&d->steps, steps, "the rules", err))
        return -1;
    return device_alloc(&d->scratch, scratch, "scratch of the kernel", err);
}

int step_device_open(struct step_device *d, const struct kernel *k, const struct step_inputs *in,
                     struct error *err) {
    struct error why;
    *d = (struct step_device){.kernel = k};
    if (device_open(&why)) return fail(err, "%s runs on a device: %.400s", k->name, why.text);
    if (open_all(d, in, err) == 0) return 0;
    step_device_close(d);
    return -1;
}

void step_device_close(struct step_device *d) {
    if (!d->kernel) return;
    device_free(&d->scratch);
    device_free(&d->steps);
    device_tables_free(&d->tables);
    device_batch_free(&d->batch);
    *d = (struct step_device){0};
}

int step_device_run(struct step_device *d, const struct rule_step *steps, double *seconds,
                    struct error *err) {
    struct device_job job = {.kernel = d->kernel,
                             .in = &d->batch.batch,
                             .steps = d->steps.data,
                             .io = d->tables.io.data,
                             .scratch = d->scratch.data};
    struct device_times times;
    if (device_put(d->steps.data, steps, d->steps.bytes, err) || device_poison(&d->scratch, err) ||
        device_time(&job, false, &times, err))
        return -1;
    *seconds = times.seconds;
    return 0;
}

int step_device_get(const struct step_device *d, struct table_set *to, struct error *err) {
    return device_tables_get(&d->tables, to->tables, err);
}

bool step_device_intact(const struct step_device *d) {
    return device_intact(&d->scratch) && device_tables_intact(&d->tables);
}
