/* SPDX-License-Identifier: MIT
 *
 * The calls that the emulation offers tests beyond CUDA's own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which blocks, and the threads of a block, run. */
enum emulation_order { EMULATION_ASCENDING, EMULATION_DESCENDING, EMULATION_RANDOM };

/* A detected defect ends the process with this status, after a report on stderr. */
enum { EMULATION_DEFECT = 86 };

/* Sets the order for all later launches. The default is EMULATION_ORDER (0, 1, 2) and
 * EMULATION_SEED in the environment, else random with seed 1. The launch number, on which a random
 * order also depends, restarts at 0. */
void emulation_schedule(int order, uint64_t seed);

/* Sets how many blocks of a launch take turns in random order: at most 4, and together at most 1024 threads. 0 draws 2
 * to 4 for each launch. The default is EMULATION_RESIDENT in the environment, otherwise 0. */
void emulation_resident(int blocks);

/* The number of kernels and CUB calls that have run. A CUB call counts as one, and replays of a graph count, too. */
uint64_t emulation_launches(void);

/* Sets the size of device memory. A cudaMalloc that would exceed it fails. The default is EMULATION_CAPACITY in the
 * environment, else 8 GiB. */
void emulation_capacity(size_t bytes);

/* The next launch of a kernel whose name contains the text fails with cudaErrorIllegalAddress. All
 * later calls return this error until cudaDeviceReset. NULL: none. EMULATION_FAIL_LAUNCH in the
 * environment does the same. */
void emulation_fail_launch(const char *kernel_substring);

/* Do the bytes lie in one allocation of device memory? */
int emulation_holds(const void *p, size_t bytes);

#ifdef __cplusplus
}
#endif
