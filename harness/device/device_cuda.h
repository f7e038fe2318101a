/* SPDX-License-Identifier: MIT
 *
 * What the files that call the CUDA runtime share.
 */
#ifndef EMBFUSE_DEVICE_CUDA_H
#define EMBFUSE_DEVICE_CUDA_H

#include <cuda_runtime_api.h>

#include "harness/device/device.h"

/* Says what a failed call means and returns -1; remembers an error that the device does not recover
 * from. doing: what was tried, for the message. */
int device_failed(cudaError_t status, const char *doing, struct error *err);

#define TRY(call, doing)                                                                           \
    do {                                                                                           \
        cudaError_t status_ = (call);                                                              \
        if (status_ != cudaSuccess) return device_failed(status_, doing, err);                     \
    } while (0)

#endif
