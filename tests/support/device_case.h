/* SPDX-License-Identifier: MIT
 *
 * A builder's batch in device memory, with its tables, steps and scratch: everything that a
 * device_job needs, in arrays of exactly the right size.
 */
#pragma once

#include "harness/device/device.h"
#include "harness/measure/runner.h"
#include "tests/support/batch_builder.h"

struct device_case {
    struct builder *b;
    struct rule_step *host_steps;
    struct device_batch batch;
    struct device_tables tables;
    struct device_buffer steps, scratch;
    struct device_job job;
};

/* Copies the builder's current tables and steps. Call it after builder_start. */
int device_case_create(struct device_case *d, struct builder *b, const struct kernel *k,
                       struct error *err);
void device_case_free(struct device_case *d);

/* Copies the builder's rules, step number and tables once more. */
int device_case_put(struct device_case *d, struct error *err);

/* Copies the tables back to the builder's. Fails if anything else was written. */
int device_case_get(struct device_case *d, struct error *err);

/* The order in which an emulated device runs blocks and threads; see builder_way. */
void device_case_schedule(const struct kernel *k, int way);
