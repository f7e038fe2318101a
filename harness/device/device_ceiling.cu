/* SPDX-License-Identifier: MIT
 *
 * Copy: a thread per 16 bytes. Random rows: a group of lanes per row, 16 bytes a lane where the row
 * allows it, so that all of the device's threads have a load in flight. Clock: multiplications that
 * wait for each other.
 */
#include "kernels/device/launch.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/kernel.h"

extern "C" {
#include "harness/device/device_ceiling.h"
#include "harness/device/device_cuda.h"
#include "harness/workload/permute.h"
}

namespace {

constexpr int THREADS = 256, BEST_OF = 3, CHAIN = 50000;
constexpr int64_t COPY_LEAST = 256 << 20, ROWS_MOST = 1 << 20;

__global__ void copy_all(const float4 *from, float4 *to, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i];
}

__global__ void add_to_all(float4 *x, int64_t count) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i].x += 1;
}

/* factor is 1, but the compiler does not know it. */
__global__ void scale_rows4(float4 *table, const int64_t *rows, int64_t count, int32_t width,
                            int32_t lanes, float factor) {
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = thread / lanes;
    if (i >= count) return;
    float4 *row = table + rows[i] * width;
    for (int32_t d = (int32_t)(thread % lanes); d < width; d += lanes) {
        float4 x = row[d];
        row[d] = make_float4(x.x * factor, x.y * factor, x.z * factor, x.w * factor);
    }
}

__global__ void scale_rows1(float *table, const int64_t *rows, int64_t count, int32_t width,
                            int32_t lanes, float factor) {
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, i = thread / lanes;
    if (i >= count) return;
    float *row = table + rows[i] * width;
    for (int32_t d = (int32_t)(thread % lanes); d < width; d += lanes) row[d] *= factor;
}

__global__ void chain(float *to, float factor, int length) {
    float x = (float)threadIdx.x;
    for (int i = 0; i < length; i++) x *= factor;
    if (x < 0) *to = x; /* never true, but the compiler does not know it */
}

cudaStream_t stream() {
    return static_cast<cudaStream_t>(device_stream());
}

unsigned blocks_for(int64_t threads) {
    return (unsigned)((threads + THREADS - 1) / THREADS);
}

void enqueue_copy(const device_probe *p) {
    int64_t count = (int64_t)(p->from.bytes / sizeof(float4));
    LAUNCH(copy_all, blocks_for(count), THREADS, 0, stream(),
           static_cast<const float4 *>(p->from.data), static_cast<float4 *>(p->to.data), count);
}

void enqueue_rows(const device_probe *p) {
    auto *rows = static_cast<const int64_t *>(p->rows.data);
    int32_t width = p->dim % 4 == 0 ? p->dim / 4 : p->dim, lanes = 1;
    while (lanes < 32 && lanes < width) lanes *= 2;
    unsigned blocks = blocks_for(p->num_rows * lanes);
    if (p->dim % 4 == 0)
        LAUNCH(scale_rows4, blocks, THREADS, 0, stream(), reinterpret_cast<float4 *>(p->table),
               rows, p->num_rows, width, lanes, 1.0f);
    else
        LAUNCH(scale_rows1, blocks, THREADS, 0, stream(), p->table, rows, p->num_rows, width, lanes,
               1.0f);
}

void enqueue_chain(const device_probe *p) {
    LAUNCH(chain, (unsigned)p->multiprocessors, THREADS, 0, stream(),
           static_cast<float *>(p->to.data), 1.0f, p->chain);
}

int seconds_between(cudaEvent_t begin, cudaEvent_t end, void (*enqueue)(const device_probe *),
                    const device_probe *p, double *seconds, struct error *err) {
    float ms = 0;
    TRY(cudaEventRecord(begin, stream()), "measuring ceilings");
    enqueue(p);
    TRY(cudaGetLastError(), "measuring ceilings");
    TRY(cudaEventRecord(end, stream()), "measuring ceilings");
    TRY(cudaEventSynchronize(end), "measuring ceilings");
    TRY(cudaEventElapsedTime(&ms, begin, end), "measuring ceilings");
    *seconds = 1e-3 * ms;
    return 0;
}

/* The best of a few tries: disturbances can only slow a try. */
int best_seconds(void (*enqueue)(const device_probe *), const device_probe *p, int tries,
                 double *best, struct error *err) {
    cudaEvent_t begin, end;
    TRY(cudaEventCreate(&begin), "measuring ceilings");
    TRY(cudaEventCreate(&end), "measuring ceilings");
    int status = 0;
    for (int k = 0; k < tries && status == 0; k++) {
        double now = 0;
        status = seconds_between(begin, end, enqueue, p, &now, err);
        if (k == 0 || now < *best) *best = now;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return status;
}

int64_t copy_bytes() {
    if (device_facts().emulated) return 1 << 20; /* it has no caches and no clock */
    return std::max<int64_t>(COPY_LEAST, 4 * device_facts().l2_cache) / 4096 * 4096;
}

int fill_probe(struct device_probe *p, int64_t table_rows, struct error *err) {
    int64_t *list = permute_some(table_rows, p->num_rows);
    if (!list) return fail(err, "out of memory");
    size_t bytes = (size_t)p->num_rows * sizeof *list;
    int status = device_alloc(&p->rows, bytes, "the random-row ceiling", err);
    if (status == 0) status = device_put(p->rows.data, list, bytes, err);
    std::free(list);
    if (status) return -1;
    for (struct device_buffer *b : {&p->from, &p->to}) {
        if (device_alloc(b, (size_t)copy_bytes(), "the copy ceiling", err)) return -1;
        TRY(cudaMemsetAsync(b->data, 1, b->bytes, stream()), "the copy ceiling");
    }
    return 0;
}

} // namespace

extern "C" {

int64_t device_probe_bytes(int64_t table_rows) {
    return 2 * copy_bytes() + 8 * std::min(table_rows, ROWS_MOST);
}

int device_probe_open(struct device_probe *p, float *table, int64_t table_rows, int32_t dim,
                      struct error *err) {
    *p = {};
    p->table = table;
    p->dim = dim;
    p->num_rows = std::min(table_rows, ROWS_MOST);
    p->multiprocessors = device_facts().multiprocessors;
    p->chain = device_facts().emulated ? 10 : CHAIN;
    if (fill_probe(p, table_rows, err) == 0) return 0;
    device_probe_close(p);
    return -1;
}

void device_probe_close(struct device_probe *p) {
    device_free(&p->from);
    device_free(&p->to);
    device_free(&p->rows);
    *p = {};
}

int device_probe_measure(struct device_probe *p, struct ceiling *out, struct error *err) {
    double copy = 0, rows = 0;
    if (best_seconds(enqueue_rows, p, BEST_OF, &rows, err) ||
        best_seconds(enqueue_copy, p, BEST_OF, &copy, err))
        return -1;
    *out = {};
    out->copy_gbs = 2e-9 * (double)p->from.bytes / copy;
    out->rmw_gbs = 1e-9 * 2 * sizeof(float) * (double)(p->num_rows * p->dim) / rows;
    out->pingpong_ns = -1;
    p->copies[p->measured++ % COPIES_REMEMBERED] = out->copy_gbs;
    return 0;
}

int device_probe_clock(const struct device_probe *p, double *seconds, struct error *err) {
    return best_seconds(enqueue_chain, p, 1, seconds, err);
}

bool device_probe_disturbed(const struct device_probe *p, double before, double after,
                            double copy_gbs) {
    double sorted[COPIES_REMEMBERED];
    int64_t count = std::min<int64_t>(p->measured, COPIES_REMEMBERED);
    std::copy(p->copies, p->copies + count, sorted);
    std::sort(sorted, sorted + count);
    bool moved = after > 1.05 * before || before > 1.05 * after;
    return moved || (count > 0 && copy_gbs < 0.9 * sorted[count / 2]);
}

int device_probe_flush(const struct device_probe *p, struct error *err) {
    int64_t count = (int64_t)(p->to.bytes / sizeof(float4));
    LAUNCH(add_to_all, blocks_for(count), THREADS, 0, stream(), static_cast<float4 *>(p->to.data),
           count);
    TRY(cudaGetLastError(), "flushing the cache");
    return 0;
}

int device_probe_occupy(const struct device_probe *p, struct error *err) {
    enqueue_chain(p);
    TRY(cudaGetLastError(), "keeping the device busy");
    return 0;
}
}
