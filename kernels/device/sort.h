/* SPDX-License-Identifier: MIT
 *
 * The device-wide primitives of CUB that kernels use. sort.cu instantiates them once, because they
 * take most of the suite's compile time. All enqueue on a stream and return a cudaError_t.
 */
#pragma once

#include <stdint.h>

#include "kernels/device/launch.h"
#include "kernels/device/onesweep.h"

/* Stable radix sort by the lowest `bits` bits of the keys. temp NULL: only sets *temp_bytes. Flips
 * b->now if the result is in the other buffers. */
cudaError_t sort_pairs(void *temp, size_t *temp_bytes, struct sort_buffers *b, uint32_t count,
                       int bits, cudaStream_t stream);

/* For count sorted keys: the unique keys, the number of each, and the number of unique keys. */
cudaError_t run_lengths(void *temp, size_t *temp_bytes, const uint32_t *keys, uint32_t *distinct,
                        uint32_t *lengths, uint32_t *runs, uint32_t count, cudaStream_t stream);

/* Exclusive prefix sums. */
cudaError_t prefix_sums(void *temp, size_t *temp_bytes, const uint32_t *from, uint32_t *to,
                        uint32_t count, cudaStream_t stream);
