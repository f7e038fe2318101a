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

static int attribute(cudaDeviceAttr attr, bool *known) {
    switch (attr) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return MAX_BLOCK;
    case cudaDevAttrMaxBlockDimZ: return MAX_BLOCK_Z;
    case cudaDevAttrMaxGridDimX: return MAX_GRID_X;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return MAX_GRID_YZ;
    case cudaDevAttrMaxSharedMemoryPerBlock: return STATIC_SHARED_LIMIT;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return SHARED_LIMIT;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return SHARED_LIMIT + 1024;
    case cudaDevAttrReservedSharedMemoryPerBlock: return 1024;
    case cudaDevAttrTotalConstantMemory: return 64 << 10;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrClockRate: /* in kHz; the emulation has no clock */
    case cudaDevAttrMemoryClockRate:
    case cudaDevAttrIntegrated:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCooperativeLaunch: return 0;
    case cudaDevAttrMultiProcessorCount: return 132;
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrEccEnabled:
    case cudaDevAttrUnifiedAddressing: return 1;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrL2CacheSize: return 50 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return 32;
    case cudaDevAttrAsyncEngineCount: return 3;
    case cudaDevAttrComputeCapabilityMajor: return 9;
    case cudaDevAttrComputeCapabilityMinor: return 0;
    }
    *known = false;
    return 0;
}

static int known_attribute(cudaDeviceAttr attr) {
    bool known = true;
    return attribute(attr, &known);
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
    bool known = true;
    *value = attribute(attr, &known);
    if (device != 0) return returned(cudaErrorInvalidDevice);
    return returned(known ? sticky_error() : cudaErrorInvalidValue);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    *p = {};
    if (device != 0) return returned(cudaErrorInvalidDevice);
    snprintf(p->name, sizeof p->name, "emulated (CPU, correctness only)");
    p->totalGlobalMem = settings().capacity;
    p->sharedMemPerBlock = STATIC_SHARED_LIMIT;
    p->sharedMemPerBlockOptin = SHARED_LIMIT;
    p->sharedMemPerMultiprocessor = SHARED_LIMIT + 1024;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = MAX_BLOCK;
    p->maxThreadsDim[2] = MAX_BLOCK_Z;
    p->maxGridSize[0] = MAX_GRID_X;
    p->maxGridSize[1] = p->maxGridSize[2] = MAX_GRID_YZ;
    p->totalConstMem = 64 << 10;
    p->major = known_attribute(cudaDevAttrComputeCapabilityMajor);
    p->multiProcessorCount = known_attribute(cudaDevAttrMultiProcessorCount);
    p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = p->canMapHostMemory = 1;
    p->asyncEngineCount = known_attribute(cudaDevAttrAsyncEngineCount);
    p->memoryBusWidth = known_attribute(cudaDevAttrGlobalMemoryBusWidth);
    p->l2CacheSize = known_attribute(cudaDevAttrL2CacheSize);
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    return returned(sticky_error());
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
    if (attr == cudaFuncAttributePreferredSharedMemoryCarveout)
        return returned(value <= 100 ? sticky_error() : cudaErrorInvalidValue);
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
    attr->ptxVersion = attr->binaryVersion = 90;
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
