/* SPDX-License-Identifier: MIT
 *
 * What the models know of a device, and how many blocks of a kernel it holds at once.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct device_model {
    const char *name;
    int arch; /* of the lines with its registers in extras/cuda/tests/golden/cuda_sass.txt */
    int sms;
    double l2_mib;
    int l2_ways;
    uint64_t late;  /* requests of 512 bytes that memory serves in its latency: see l2_open() */
    int shared_kib; /* for blocks, of an SM */
};

/* NULL: no such device. */
const struct device_model *device_model_find(const char *name);

/* Blocks of that many threads, registers per thread and bytes of shared memory that an SM holds; at
 * least 1. */
int device_model_blocks(const struct device_model *d, int threads, int registers, uint64_t shared);

#ifdef __cplusplus
}
#endif
