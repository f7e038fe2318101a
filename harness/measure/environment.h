/* SPDX-License-Identifier: MIT
 *
 * Where a result comes from: source, compiler, machine and its state. The record omits nothing:
 * what the system does not report is "unavailable".
 */
#pragma once

#include "harness/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls add(ctx, key, value) for every fact, as it is now: call it before a run to get the load
 * before the run. Keys begin with "emb_". device: NULL if the run measures no device kernel. */
void environment_describe(int threads, const struct device_facts *device,
                          void (*add)(void *ctx, const char *key, const char *value), void *ctx);

/* "0.1.0, commit 9a8dd21..., COMPILER": the program itself, in one line. */
const char *environment_version(void);

#ifdef __cplusplus
}
#endif
