/* SPDX-License-Identifier: MIT
 *
 * A device array with a host copy, for the cases.
 */
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "emulation/selftest/selftest.h"

template <class T> struct DeviceArray {
    T *device = nullptr;
    std::vector<T> host;

    explicit DeviceArray(size_t n, T value = T()) : host(n, value) {
        CHECK(cudaMalloc(&device, n * sizeof(T)) == cudaSuccess);
        put();
    }
    explicit DeviceArray(const std::vector<T> &values) : DeviceArray(values.size()) {
        host = values;
        put();
    }
    ~DeviceArray() {
        cudaFree(device);
    }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;

    void put() {
        CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice) ==
              cudaSuccess);
    }
    /* Copies back what the kernels wrote. */
    const std::vector<T> &get() {
        CHECK(cudaGetLastError() == cudaSuccess);
        CHECK(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost) ==
              cudaSuccess);
        return host;
    }
};
