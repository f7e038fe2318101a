/* SPDX-License-Identifier: MIT
 *
 * The emulated device reports the limits of an H100, for which the project's kernels are written.
 * An emulated launch must respect them, too.
 */
#include <algorithm>
#include <cstdio>
#include <vector>

#include "emulation/device_heap.h"
#include "emulation/runtime.h"
#include "emulation/shared_memory.h"
#include "emulation/stream.h"

namespace emulation {

enum { MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535, MAX_BLOCK = 1024, MAX_BLOCK_Z = 64 };

/* Kernels that may use more dynamic shared memory. */
struct Allowed {
    const void *function;
    int bytes;
};
static std::vector<Allowed> allowed;

static int dynamic_shared_limit(const void *function) {
    for (const Allowed &a : allowed)
        if (a.function == function) return a.bytes;
    return STATIC_SHARED_LIMIT;
}

cudaError_t launch_error(const Launch &l) {
    bool grid = l.grid.x && l.grid.y && l.grid.z && l.grid.x <= MAX_GRID_X &&
                l.grid.y <= MAX_GRID_YZ && l.grid.z <= MAX_GRID_YZ;
    bool block = l.block.x && l.block.y && l.block.z && l.block.x <= MAX_BLOCK &&
                 l.block.y <= MAX_BLOCK && l.block.z <= MAX_BLOCK_Z &&
                 l.block.x * l.block.y * l.block.z <= MAX_BLOCK;
    if (!grid || !block) return cudaErrorInvalidConfiguration;
    if (l.block.x * l.block.y * l.block.z > launch_bound(l.function, MAX_BLOCK))
        return cudaErrorInvalidValue;
    bool shared = l.shared_bytes <= size_t(dynamic_shared_limit(l.function));
    return shared ? cudaSuccess : cudaErrorInvalidValue;
}

static bool attribute(cudaDeviceAttr attr, int *value) {
    switch (attr) {
    case cudaDevAttrMaxGridDimX: *value = MAX_GRID_X; return true;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = STATIC_SHARED_LIMIT; return true;
    case cudaDevAttrMultiProcessorCount: *value = 132; return true;
    case cudaDevAttrL2CacheSize: *value = 50 << 20; return true;
    case cudaDevAttrUnifiedAddressing: *value = 1; return true;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; return true;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; return true;
    }
    return false;
}

} // namespace emulation

using namespace emulation;

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return returned(sticky_error());
}

cudaError_t cudaSetDevice(int device) {
    return returned(device == 0 ? sticky_error() : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device) {
    *device = 0;
    return returned(sticky_error());
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attr, int device) {
    if (device != 0) return returned(cudaErrorInvalidDevice);
    return returned(attribute(attr, value) ? sticky_error() : cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    *p = {"emulated (CPU, correctness only)"};
    return returned(device == 0 ? sticky_error() : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int device) {
    if (device != 0) return returned(cudaErrorInvalidDevice);
    return returned(snprintf(id, size_t(len), "0000:00:00.0") < len ? sticky_error()
                                                                    : cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    Turn turn;
    cudaError_t error = forbidden_in_capture();
    return returned(error ? error : sticky_error());
}

cudaError_t cudaDeviceReset(void) {
    Turn turn;
    heap_free_all();
    allowed.clear();
    set_sticky_error(cudaSuccess);
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attr, int value) {
    Turn turn;
    if (attr != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > SHARED_LIMIT)
        return returned(cudaErrorInvalidValue);
    auto i = std::find_if(allowed.begin(), allowed.end(),
                          [&](const Allowed &a) { return a.function == function; });
    if (i == allowed.end())
        allowed.push_back({function, value});
    else
        i->bytes = value;
    return returned(sticky_error());
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attr, const void *function) {
    Turn turn;
    *attr = {};
    attr->maxThreadsPerBlock = int(launch_bound(function, MAX_BLOCK));
    attr->numRegs = 32; /* any number: nothing is compiled for a GPU */
    attr->maxDynamicSharedSizeBytes = dynamic_shared_limit(function);
    return returned(sticky_error());
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *, int block_size,
                                                          size_t shared_bytes) {
    *blocks = 0;
    if (block_size < 1) return returned(cudaErrorInvalidValue);
    if (block_size > MAX_BLOCK) return returned(sticky_error());
    int by_shared = (SHARED_LIMIT + 1024) / (int(std::min(shared_bytes, size_t(1) << 30)) + 1024);
    *blocks = std::min({2048 / block_size, 32, by_shared});
    return returned(sticky_error());
}
