/* SPDX-License-Identifier: MIT
 *
 * What a test may ask of the emulated device beyond CUDA's own calls.
 */
#ifndef EMBFUSE_TEST_EMULATION_H
#define EMBFUSE_TEST_EMULATION_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The order in which blocks, and the threads of a block, run. */
enum emulation_order { EMULATION_ASCENDING, EMULATION_DESCENDING, EMULATION_RANDOM };

/* A detected defect ends the process with this status, after a report on stderr. */
enum { EMULATION_DEFECT = 86 };

/* For all launches from now on. The default is the environment's EMULATION_ORDER (0, 1, 2) and
 * EMULATION_SEED, else random with seed 1. The launch number, from which the random order of a
 * launch follows too, starts again at 0. */
void emulation_schedule(int order, uint64_t seed);

/* Kernels run so far, and calls of CUB, each as one. Replays of a graph count. */
uint64_t emulation_launches(void);

/* Memory of the device in bytes, EMULATION_CAPACITY in the environment, else 8 GiB. cudaMalloc
 * fails beyond it. */
void emulation_capacity(size_t bytes);

/* The next launch whose kernel's name contains the text does not run and leaves
 * cudaErrorIllegalAddress, which all later calls return until cudaDeviceReset. NULL: none.
 * EMULATION_FAIL_LAUNCH in the environment does the same. */
void emulation_fail_launch(const char *kernel_substring);

#ifdef __cplusplus
}
#endif
#endif
