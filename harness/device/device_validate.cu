/* SPDX-License-Identifier: MIT
 *
 * Checks ids and offsets in device memory: first a thread per offset, then a thread per lookup,
 * because only ordered offsets allow a walk over the ids. The device answers yes or no; after a no
 * the host finds the first mistake and describes it.
 */
#include "kernels/device/launch.h"

#include <cstdlib>

#include "kernels/shape.h"

extern "C" {
#include "harness/device/device_cuda.h"
#include "harness/workload/workload.h"
}

namespace {

constexpr int THREADS = 256, MOST_BLOCKS = 1 << 14;

unsigned blocks_for(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : blocks);
}

__global__ void check_offsets(const int64_t *offsets, int64_t flat_bags, int64_t lookups,
                              int *bad) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t q = first; q < flat_bags; q += step)
        if (offsets[q + 1] < offsets[q]) atomicExch(bad, 1);
    if (first == 0 && (offsets[0] != 0 || offsets[flat_bags] != lookups)) atomicExch(bad, 1);
}

/* Does not read in.tables and in.features: they are host pointers. */
__global__ void check_ids(struct batch in, int *bad) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < in.lookups; i += step) {
        const int32_t feature = feature_of_lookup(in.device_features, in.num_features, i);
        int64_t rows = in.device_tables[in.device_features[feature].table].rows;
        int64_t id = in.id_type == ID_INT32 ? static_cast<const int32_t *>(in.ids)[i]
                                            : static_cast<const int64_t *>(in.ids)[i];
        if (id < 0 || id >= rows) atomicExch(bad, 1);
    }
}

/* Describes the mistake from a copy on the host. */
int explain(const struct device_batch *d, struct error *err) {
    void *ids = std::malloc(d->ids.bytes + 1);
    auto *offsets = static_cast<int64_t *>(std::malloc(d->offsets.bytes));
    int status = ids && offsets ? 0 : fail(err, "out of memory");
    if (status == 0) status = device_get(ids, d->batch.ids, d->ids.bytes, err);
    if (status == 0) status = device_get(offsets, d->batch.offsets, d->offsets.bytes, err);
    if (status == 0) {
        struct batch copy = d->batch;
        copy.ids = ids;
        copy.offsets = offsets;
        copy.winners = NULL; /* the host has checked them */
        status = batch_validate(&copy, err);
        if (status == 0) status = fail(err, "ids or offsets changed while they were checked");
    }
    std::free(ids);
    std::free(offsets);
    return status;
}

int found_bad(int *bad, const char *doing, int *answer, struct error *err) {
    TRY(cudaGetLastError(), doing);
    TRY(cudaStreamSynchronize(static_cast<cudaStream_t>(device_stream())), doing);
    return device_get(answer, bad, sizeof *bad, err);
}

int validate(const struct device_batch *d, int *bad, struct error *err) {
    const struct batch *in = &d->batch;
    auto stream = static_cast<cudaStream_t>(device_stream());
    int wrong = 0;
    if (device_put(bad, &wrong, sizeof wrong, err)) return -1;
    LAUNCH(check_offsets, blocks_for(in->flat_bags), THREADS, 0, stream, in->offsets, in->flat_bags,
           in->lookups, bad);
    if (found_bad(bad, "checking offsets", &wrong, err)) return -1;
    if (wrong) return explain(d, err);
    LAUNCH(check_ids, blocks_for(in->lookups), THREADS, 0, stream, *in, bad);
    if (found_bad(bad, "checking ids", &wrong, err)) return -1;
    return wrong ? explain(d, err) : 0;
}

} // namespace

extern "C" int device_batch_validate(const struct device_batch *d, struct error *err) {
    struct device_buffer bad;
    if (device_alloc(&bad, sizeof(int), "checking a batch", err)) return -1;
    int status = validate(d, static_cast<int *>(bad.data), err);
    device_free(&bad);
    return status;
}
