/* SPDX-License-Identifier: MIT
 *
 * Shared by the files that call the CUDA runtime.
 */
#pragma once

#include <cuda_runtime_api.h>

#include "harness/device/device.h"

/* Describes the failed call and returns -1. Remembers an error that the device cannot recover from.
 * doing: what the caller tried, for the message. */
int device_failed(cudaError_t status, const char *doing, struct error *err);

#define TRY(call, doing)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) return device_failed(status_, doing, err);                     \
    } while (0)
