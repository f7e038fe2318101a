/* SPDX-License-Identifier: MIT */
#include "tests/support/device_case.h"

#include <stdlib.h>
#include <string.h>

#include "emulation/emulation.h"

void device_case_schedule(const struct kernel *k, int way) {
    static const enum emulation_order first[] = {EMULATION_RANDOM, EMULATION_ASCENDING,
                                                 EMULATION_DESCENDING};
    if (builder_emulates(k)) emulation_schedule(first[way < 3 ? way : 0], (uint64_t)way);
}

static size_t scratch_bytes(const struct kernel *k, const struct batch *in) {
    return k->scratch_bytes ? k->scratch_bytes(in, 1) : 0;
}

int device_case_create(struct device_case *d, struct builder *b, const struct kernel *k,
                       struct error *err) {
    *d = (struct device_case){.b = b};
    size_t steps = (size_t)b->in.num_tables * sizeof *d->host_steps;
    d->host_steps = malloc(steps);
    if (!d->host_steps) abort();
    if (device_open(err) || device_batch_create(&d->batch, &b->in, err) ||
        device_tables_create(&d->tables, b->in.tables, b->in.num_tables, err) ||
        device_alloc(&d->steps, steps, "steps", err) ||
        device_alloc(&d->scratch, scratch_bytes(k, &b->in), "scratch", err) ||
        (!getenv("UNPOISONED") && device_set(&d->scratch, POISON, err)) ||
        device_case_put(d, err)) {
        device_case_free(d);
        return -1;
    }
    d->job = (struct device_job){.kernel = k,
                                 .in = &d->batch.batch,
                                 .steps = d->steps.data,
                                 .io = d->tables.io.data,
                                 .scratch = d->scratch.data};
    return 0;
}

void device_case_free(struct device_case *d) {
    device_free(&d->scratch);
    device_free(&d->steps);
    device_tables_free(&d->tables);
    device_batch_free(&d->batch);
    free(d->host_steps);
    *d = (struct device_case){0};
}

int device_case_put(struct device_case *d, struct error *err) {
    for (int32_t t = 0; t < d->b->in.num_tables; t++)
        d->host_steps[t] = rule_step(d->b->rules[t], d->b->step);
    if (device_put(d->steps.data, d->host_steps, d->steps.bytes, err)) return -1;
    return device_tables_put(&d->tables, d->b->tables.tables, err);
}

int device_case_get(struct device_case *d, struct error *err) {
    if (!device_intact(&d->scratch)) return fail(err, "wrote outside of its scratch");
    if (!device_tables_intact(&d->tables)) return fail(err, "wrote outside of the tables");
    if (device_batch_unchanged(&d->batch, &d->b->in, err) ||
        device_unchanged(&d->tables.io, d->tables.tables, "table pointers", err) ||
        device_unchanged(&d->steps, d->host_steps, "steps", err))
        return -1;
    return device_tables_get(&d->tables, d->b->tables.tables, err);
}
