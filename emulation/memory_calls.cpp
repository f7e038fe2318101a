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

/* A rectangle of bytes; a plain copy has one row. */
struct Copy {
    char *dst;
    size_t dst_pitch;
    const char *src;
    size_t src_pitch;
    size_t width, height;
};

/* Whether the rows at p lie in one device allocation, or on the host, as the copy says. */
static bool lies(bool on_device, const char *p, size_t pitch, const Copy &c) {
    return on_device ? heap_holds(p, (c.height - 1) * pitch + c.width) : !heap_owns(p);
}

static cudaError_t check(const Copy &c, cudaMemcpyKind kind) {
    if (c.width > c.dst_pitch || c.width > c.src_pitch) return cudaErrorInvalidPitchValue;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (c.width == 0 || c.height == 0) return cudaSuccess;
    if (!c.dst || !c.src) return cudaErrorInvalidValue;
    bool to = kind == cudaMemcpyDefault
                  ? heap_owns(c.dst)
                  : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from = kind == cudaMemcpyDefault
                    ? heap_owns(c.src)
                    : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    bool right = lies(to, c.dst, c.dst_pitch, c) && lies(from, c.src, c.src_pitch, c);
    return right ? cudaSuccess : cudaErrorInvalidValue;
}

static void run(const Copy &c) {
    AllocationOpen to(c.dst), from(c.src);
    for (size_t i = 0; i < c.height; i++)
        memmove(c.dst + i * c.dst_pitch, c.src + i * c.src_pitch, c.width);
}

static cudaError_t copy(const Copy &c, cudaMemcpyKind kind, cudaStream_t stream) {
    Turn turn;
    cudaError_t error = check(c, kind);
    if (!error) error = submit(stream, cudaGraphNodeTypeMemcpy, [c] { run(c); });
    return returned(error);
}

static Copy plain(void *dst, const void *src, size_t bytes) {
    return {static_cast<char *>(dst), bytes, static_cast<const char *>(src), bytes, bytes, 1};
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

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind) {
    cudaError_t error = forbidden_in_capture();
    return error ? returned(error) : copy(plain(dst, src, bytes), kind, nullptr);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return copy(plain(dst, src, bytes), kind, stream);
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream) {
    return copy({static_cast<char *>(dst), dst_pitch, static_cast<const char *>(src), src_pitch,
                 width, height},
                kind, stream);
}

cudaError_t cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
    cudaError_t error = forbidden_in_capture();
    return error ? returned(error)
                 : cudaMemcpy2DAsync(dst, dst_pitch, src, src_pitch, width, height, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    Turn turn;
    if (bytes && !heap_holds(p, bytes)) return returned(cudaErrorInvalidValue);
    return returned(submit(stream, cudaGraphNodeTypeMemset, [p, value, bytes] {
        AllocationOpen to(p);
        memset(p, value, bytes);
    }));
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    cudaError_t error = forbidden_in_capture();
    return error ? returned(error) : cudaMemsetAsync(p, value, bytes, nullptr);
}
