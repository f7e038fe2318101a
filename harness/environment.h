/* SPDX-License-Identifier: MIT
 *
 * Where a result comes from: source, compiler, machine and its state. Nothing is left out: what the
 * system does not tell is "unavailable".
 */
#ifndef EMBFUSE_ENVIRONMENT_H
#define EMBFUSE_ENVIRONMENT_H

#include "harness/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls add(ctx, key, value) for every fact; keys begin with "emb_". device: NULL where no kernel
 * of a device was measured. */
void environment_describe(int threads, const struct device_facts *device,
                          void (*add)(void *ctx, const char *key, const char *value), void *ctx);

/* "0.1.0, commit 9a8dd21..., COMPILER": the program itself, in one line. */
const char *environment_version(void);

#ifdef __cplusplus
}
#endif

#endif
