/* SPDX-License-Identifier: MIT
 *
 * Watches kernels on the PTX lane between counts_begin() and counts_end(), and writes what it counted
 * as JSON, one object per function and line.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whose caches to model: a device of devices.h, with 1/part of its SMs and of its L2, for a workload
 * that stands for one `part` times as large. seed: of the order of warps; 0: in turn. mib: of the whole
 * L2; 0: that of the device. -1: unknown device. */
int counts_model(const char *device, int part, uint64_t seed, double mib);

/* Registers of every kernel, which limit the blocks on an SM: tests/golden/cuda_sass.txt.
 * -1: cannot be read. */
int counts_registers(const char *path);

/* Also counts by lines of the source. */
void counts_by_line(void);

/* Caches are cold. */
void counts_begin(void);

/* labels: the begin of each object, "\"key\": \"value\", ...". */
void counts_end(FILE *out, const char *labels);

#ifdef __cplusplus
}
#endif
