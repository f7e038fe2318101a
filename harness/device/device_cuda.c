/* SPDX-License-Identifier: MIT */
#include "harness/device/device_cuda.h"

#include <stdio.h>
#include <string.h>

enum { GUARD = 4096, GUARD_BYTE = 0xc5 };

/* The one device of the process. */
static struct {
    cudaStream_t stream; /* NULL: not open */
    int number;
    struct device_facts facts;
    char lost[256]; /* why the device is lost, or "" */
} device;

int device_failed(cudaError_t status, const char *doing, struct error *err) {
    if (cudaGetLastError() == status && cudaDeviceSynchronize() == status && !device.lost[0])
        snprintf(device.lost, sizeof device.lost, "%s", cudaGetErrorString(status));
    return fail(err, "%s: %s (%s)", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

static int attribute(enum cudaDeviceAttr which) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, device.number);
    return value;
}

static void read_facts(struct device_facts *f) {
    static struct cudaDeviceProp properties;
    cudaGetDeviceProperties(&properties, device.number);
    snprintf(f->name, sizeof f->name, "%.127s", properties.name);
    cudaDeviceGetPCIBusId(f->pci_id, sizeof f->pci_id, device.number);
    f->emulated = strncmp(f->name, "emulated", 8) == 0;
    f->capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                    attribute(cudaDevAttrComputeCapabilityMinor);
    f->multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    f->l2_cache = attribute(cudaDevAttrL2CacheSize);
    cudaDriverGetVersion(&f->driver);
    cudaRuntimeGetVersion(&f->runtime);
}

void device_choose(int number) {
    if (!device.stream) device.number = number;
}

int device_open(struct error *err) {
    if (device.lost[0]) return fail(err, "the device is lost to an earlier error: %s", device.lost);
    if (device.stream) return 0;
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        int driver = 0;
        cudaDriverGetVersion(&driver);
        cudaGetLastError();
        return fail(err, "no CUDA device: %s",
                    driver == 0             ? "no NVIDIA driver is installed"
                    : status == cudaSuccess ? "the driver sees none"
                                            : cudaGetErrorString(status));
    }
    device.number %= count;
    TRY(cudaSetDevice(device.number), "opening the device");
    read_facts(&device.facts);
    if (device.facts.capability < OLDEST_CAPABILITY)
        return fail(err, "no CUDA device: %s has compute capability %d.%d, the kernels need %d.%d",
                    device.facts.name, device.facts.capability / 10, device.facts.capability % 10,
                    OLDEST_CAPABILITY / 10, OLDEST_CAPABILITY % 10);
    TRY(cudaStreamCreateWithFlags(&device.stream, cudaStreamNonBlocking), "opening the device");
    return 0;
}

struct device_facts device_facts(void) {
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    device.facts.memory = (int64_t)total;
    device.facts.free_memory = (int64_t)free_bytes;
    return device.facts;
}

bool device_lost(void) {
    return device.lost[0] != '\0';
}

void *device_stream(void) {
    return device.stream;
}

/* --- memory */

static size_t guard_bytes(void) {
    return device.facts.emulated ? 0 : GUARD;
}

int device_alloc(struct device_buffer *b, size_t bytes, const char *what, struct error *err) {
    *b = (struct device_buffer){0};
    if (bytes == 0) return 0;
    size_t guard = guard_bytes();
    int64_t have = device_facts().free_memory;
    if ((int64_t)(bytes + 2 * guard) > have)
        return fail(err, "%s: needs %.1f GiB of device memory, %.1f GiB are free", what,
                    (double)bytes / (1 << 30), (double)have / (1 << 30));
    char *p;
    TRY(cudaMalloc((void **)&p, bytes + 2 * guard), what);
    b->data = p + guard;
    b->bytes = bytes;
    if (guard == 0) return 0;
    TRY(cudaMemsetAsync(p, GUARD_BYTE, guard, device.stream), what);
    TRY(cudaMemsetAsync(p + guard + bytes, GUARD_BYTE, guard, device.stream), what);
    return 0;
}

void device_free(struct device_buffer *b) {
    if (b->data) cudaFree((char *)b->data - guard_bytes());
    *b = (struct device_buffer){0};
}

int device_set(const struct device_buffer *b, int byte, struct error *err) {
    if (b->data)
        TRY(cudaMemsetAsync(b->data, byte, b->bytes, device.stream), "filling device memory");
    return 0;
}

static bool zone_intact(const char *zone) {
    unsigned char copy[GUARD];
    struct error ignored;
    bool intact = device_get(copy, zone, GUARD, &ignored) == 0;
    for (int i = 0; i < GUARD; i++) intact &= copy[i] == GUARD_BYTE;
    return intact;
}

bool device_intact(const struct device_buffer *b) {
    if (!b->data || guard_bytes() == 0) return true;
    const char *p = b->data;
    return zone_intact(p - GUARD) && zone_intact(p + b->bytes);
}

/* Uses our stream: it and the default stream do not wait for each other. */
static int copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                const char *doing, struct error *err) {
    if (bytes == 0) return 0;
    TRY(cudaMemcpyAsync(to, from, bytes, kind, device.stream), doing);
    TRY(cudaStreamSynchronize(device.stream), doing);
    return 0;
}

int device_put(void *to, const void *from, size_t bytes, struct error *err) {
    return copy(to, from, bytes, cudaMemcpyHostToDevice, "copying to the device", err);
}

int device_get(void *to, const void *from, size_t bytes, struct error *err) {
    return copy(to, from, bytes, cudaMemcpyDeviceToHost, "copying from the device", err);
}

int device_put_on(void *stream, void *to, const void *from, size_t bytes, struct error *err) {
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "copying to the device");
    return 0;
}

int device_get_on(void *stream, void *to, const void *from, size_t bytes, struct error *err) {
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
        "copying from the device");
    return 0;
}

int device_wait(void *stream, struct error *err) {
    TRY(cudaStreamSynchronize(stream), "waiting for a stream");
    return 0;
}

int device_stream_open(void **stream, struct error *err) {
    cudaStream_t own;
    TRY(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), "opening a stream");
    *stream = own;
    return 0;
}

void device_stream_close(void *stream) {
    if (stream) cudaStreamDestroy(stream);
}

int device_pinned_alloc(void **p, size_t bytes, struct error *err) {
    *p = NULL;
    if (bytes) TRY(cudaMallocHost(p, bytes), "pinned memory of the host");
    return 0;
}

void device_pinned_free(void *p) {
    if (p) cudaFreeHost(p);
}
