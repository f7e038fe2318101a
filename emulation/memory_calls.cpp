/* SPDX-License-Identifier: MIT */
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "emulation/device_heap.h"
#include "emulation/emulation.h"
#include "emulation/runtime.h"
#include "emulation/stream.h"

namespace emulation {

static std::vector<void *> pinned; /* from cudaMallocHost */

static bool to_device(cudaMemcpyKind kind) {
    return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}

static bool from_device(cudaMemcpyKind kind) {
    return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

/* True if the bytes lie where the copy says: in one device allocation, or on the host. */
static bool lies(bool on_device, const void *p, size_t bytes) {
    return on_device ? heap_holds(p, bytes) : !heap_owns(p);
}

static cudaError_t check(const void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0) return cudaSuccess;
    if (!dst || !src) return cudaErrorInvalidValue;
    const bool by_address = kind == cudaMemcpyDefault;
    const bool to = by_address ? heap_owns(dst) : to_device(kind);
    const bool from = by_address ? heap_owns(src) : from_device(kind);
    return lies(to, dst, bytes) && lies(from, src, bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace emulation

using namespace emulation;

int emulation_holds(const void *p, size_t bytes) {
    return heap_holds(p, bytes);
}

cudaError_t cudaMalloc(void **p, size_t bytes) {
    Turn turn;
    *p = nullptr;
    cudaError_t error = forbidden_in_capture();
    if (!error) error = sticky_error();
    if (error || bytes == 0) return returned(error);
    *p = heap_allocate(bytes);
    return returned(*p ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void *p) {
    Turn turn;
    cudaError_t error = forbidden_in_capture();
    if (!error) error = sticky_error();
    if (error || !p) return returned(error);
    return returned(heap_free(p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMallocHost(void **p, size_t bytes) {
    Turn turn;
    *p = nullptr;
    cudaError_t error = forbidden_in_capture();
    if (!error) error = sticky_error();
    if (error || bytes == 0) return returned(error);
    if (posix_memalign(p, 256, bytes)) return returned(cudaErrorMemoryAllocation);
    pinned.push_back(*p);
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned) {
    return cudaMallocHost(p, bytes);
}

cudaError_t cudaFreeHost(void *p) {
    Turn turn;
    cudaError_t error = forbidden_in_capture();
    if (error || !p) return returned(error);
    auto i = std::find(pinned.begin(), pinned.end(), p);
    if (i == pinned.end()) return returned(cudaErrorInvalidValue);
    pinned.erase(i);
    free(p);
    return returned(sticky_error());
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    Turn turn;
    *total = settings().capacity;
    *free_bytes = *total - std::min(*total, heap_used());
    return returned(sticky_error());
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    Turn turn;
    const cudaError_t error = check(dst, src, bytes, kind);
    if (error) return returned(error);
    return returned(submit(stream, cudaGraphNodeTypeMemcpy, [=] {
        AllocationOpen to(dst), from(src);
        if (bytes) memmove(dst, src, bytes);
    }));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
    cudaError_t error = forbidden_in_capture();
    return error ? returned(error) : cudaMemcpyAsync(dst, src, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    Turn turn;
    if (bytes && !heap_holds(p, bytes)) return returned(cudaErrorInvalidValue);
    return returned(submit(stream, cudaGraphNodeTypeMemset, [p, value, bytes] {
        AllocationOpen to(p);
        memset(p, value, bytes);
    }));
}
