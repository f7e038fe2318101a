/* SPDX-License-Identifier: MIT
 *
 * The runtime calls, from C: their errors, capture, capacity, and injected failure.
 */
#include <cuda_runtime_api.h>

#include <math.h>
#include <string.h>

#include "emulation/selftest/selftest.h"

static void copies(void) {
    char in[100], out[100], *p;
    for (int i = 0; i < 100; i++) in[i] = (char)i;
    CHECK(!cudaMalloc((void **)&p, 100));
    CHECK(!cudaMemcpy(p, in, 100, cudaMemcpyHostToDevice));
    CHECK(!cudaMemcpy(out, p, 100, cudaMemcpyDefault));
    CHECK(memcmp(in, out, 100) == 0);
    CHECK(cudaMemcpy(out, p, 100, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(out, p, 101, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(!cudaMemsetAsync(p + 1, 7, 99, NULL));
    CHECK(cudaMemsetAsync(p + 1, 7, 100, NULL) == cudaErrorInvalidValue);
    CHECK(!cudaMemcpy(out, p, 2, cudaMemcpyDeviceToHost) && out[0] == 0 && out[1] == 7);
    CHECK(!cudaFree(p) && !cudaFree(NULL) && cudaFree(p) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue && !cudaGetLastError());
    CHECK(!cudaMallocHost((void **)&p, 100));
    p[99] = 1;
    CHECK(!cudaFreeHost(p));
}

static void capacity(void) {
    size_t free_bytes, total;
    void *p, *q;
    emulation_capacity(1 << 20);
    CHECK(!cudaMemGetInfo(&free_bytes, &total) && total == 1 << 20 && free_bytes == total);
    CHECK(!cudaMalloc(&p, 700 << 10));
    CHECK(!cudaMemGetInfo(&free_bytes, &total) && free_bytes == 324 << 10);
    CHECK(cudaMalloc(&q, 400 << 10) == cudaErrorMemoryAllocation && q == NULL);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(!cudaFree(p) && !cudaMalloc(&q, 400 << 10) && !cudaFree(q));
    /* An allocation larger than the arena of addresses fails. */
    emulation_capacity((size_t)1 << 40);
    CHECK(cudaMalloc(&p, (size_t)1 << 39) == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

static void device(void) {
    struct cudaDeviceProp p;
    int count, value;
    CHECK(!cudaGetDeviceCount(&count) && count == 1 && !cudaSetDevice(0));
    CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
    CHECK(!cudaGetDeviceProperties(&p, 0) && strstr(p.name, "emulated"));
    CHECK(!cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) && value == 132);
    CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
    CHECK(strcmp(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady") == 0);
}

static void events(void) {
    cudaEvent_t a = NULL, b = NULL;
    float ms = 0;
    CHECK(!cudaEventCreate(&a) && !cudaEventCreate(&b));
    CHECK(!cudaEventRecord(a, NULL));
    CHECK(cudaEventElapsedTime(&ms, a, b) == cudaErrorInvalidResourceHandle);
    CHECK(!cudaEventRecord(b, NULL) && !cudaEventSynchronize(b));
    CHECK(!cudaEventElapsedTime(&ms, a, b) && isnan(ms));
    CHECK(!cudaEventDestroy(a) && !cudaEventDestroy(b));
    CHECK(cudaEventRecord(a, NULL) == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
}

/* The result of a call during a capture, and the end of the capture after it. */
#define CAPTURED(call)                                                                             \
    do {                                                                                           \
        CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));                       \
        CHECK((call) == cudaErrorStreamCaptureUnsupported);                                        \
        CHECK(cudaStreamEndCapture(s, &graph) == cudaErrorStreamCaptureInvalidated && !graph);     \
    } while (0)

static void capture(void) {
    cudaStream_t s = NULL;
    cudaGraph_t graph;
    cudaEvent_t event = NULL;
    void *p, *device;
    char host = 0;
    CHECK(!cudaMalloc(&device, 1));
    CHECK(!cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking) && !cudaEventCreate(&event));
    CAPTURED(cudaMalloc(&p, 1));
    CAPTURED(cudaFree(device));
    CAPTURED(cudaStreamSynchronize(s));
    CAPTURED(cudaDeviceSynchronize());
    CAPTURED(cudaMemcpy(device, &host, 1, cudaMemcpyHostToDevice));
    CAPTURED((cudaEventRecord(event, s), cudaEventSynchronize(event)));
    CHECK(!cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    CHECK(!cudaMemcpyAsync(device, &host, 1, cudaMemcpyHostToDevice, s));
    CHECK(!cudaStreamEndCapture(s, &graph));
    cudaGraphNode_t node;
    enum cudaGraphNodeType type;
    size_t count = 1;
    CHECK(!cudaGraphGetNodes(graph, &node, &count) && count == 1);
    count = 0; /* as on an H200 with driver 580.159 */
    CHECK(cudaGraphGetNodes(graph, &node, &count) == cudaErrorInvalidValue && cudaGetLastError());
    CHECK(!cudaGraphNodeGetType(node, &type) && type == cudaGraphNodeTypeMemcpy);
    CHECK(!cudaGraphDestroy(graph) && !cudaStreamDestroy(s) && !cudaFree(device));
    CHECK(!cudaEventDestroy(event));
    CHECK(cudaStreamSynchronize(s) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

/* In good_kernels.cu */
void launch_nothing(unsigned blocks, unsigned threads, size_t shared_bytes);
cudaError_t allow_shared(size_t bytes);

static cudaError_t launch_error(unsigned blocks, unsigned threads, size_t shared_bytes) {
    launch_nothing(blocks, threads, shared_bytes);
    return cudaGetLastError();
}

static void launch_limits(void) {
    uint64_t before = emulation_launches();
    CHECK(launch_error(0, 32, 0) == cudaErrorInvalidConfiguration);
    CHECK(launch_error(1, 0, 0) == cudaErrorInvalidConfiguration);
    CHECK(launch_error(1, 1025, 0) == cudaErrorInvalidConfiguration);
    CHECK(launch_error(0x80000000u, 1, 0) == cudaErrorInvalidConfiguration);
    CHECK(!allow_shared(48 << 10));
    CHECK(launch_error(1, 1, (48 << 10) + 1) == cudaErrorInvalidValue);
    CHECK(allow_shared((227 << 10) + 1) == cudaErrorInvalidValue && cudaGetLastError());
    CHECK(emulation_launches() == before);
    CHECK(!allow_shared(227 << 10) && !launch_error(1, 1, 227 << 10));
    CHECK(emulation_launches() == before + 1);
}

static void injected_failure(void) {
    void *p;
    emulation_fail_launch("other");
    CHECK(!launch_error(1, 1, 0));
    emulation_fail_launch("noth");
    CHECK(launch_error(1, 1, 0) == cudaErrorIllegalAddress);
    CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
    CHECK(cudaMalloc(&p, 1) == cudaErrorIllegalAddress);
    CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
    CHECK(launch_error(1, 1, 0) == cudaErrorIllegalAddress);
    CHECK(!cudaDeviceReset() && !cudaGetLastError() && !launch_error(1, 1, 0));
}

const struct self_case good_host_calls[] = {
    {"copies", copies},
    {"capacity of the device", capacity},
    {"properties of the device", device},
    {"events have no time", events},
    {"calls that a capture forbids", capture},
    {"limits of a launch", launch_limits},
    {"injected failure is sticky", injected_failure},
    {NULL, NULL},
};
