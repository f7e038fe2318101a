/* SPDX-License-Identifier: MIT
 *
 * The steps of embfuse step on a device: batch and tables go there once, and come back to be checked
 * and written.
 */
#ifndef EMBFUSE_CLI_STEP_DEVICE_H
#define EMBFUSE_CLI_STEP_DEVICE_H

#include "cli/step.h"
#include "harness/device/device.h"

struct step_device {
    const struct kernel *kernel;
    struct device_batch batch;
    struct device_tables tables;
    struct device_buffer steps, scratch;
};

/* Fails in one line without a device, and where it is too small. */
int step_device_open(struct step_device *d, const struct kernel *k, const struct step_inputs *in,
                     struct error *err);
void step_device_close(struct step_device *d);

/* One step with poisoned scratch; *seconds by events, without the kernel's plan. */
int step_device_run(struct step_device *d, const struct rule_step *steps, double *seconds,
                    struct error *err);

/* All rows, to host tables of the same shapes. */
int step_device_get(const struct step_device *d, struct table_set *to, struct error *err);

bool step_device_intact(const struct step_device *d);

#endif
