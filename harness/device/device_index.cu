/* SPDX-License-Identifier: MIT
 *
 * A thread per lookup. The first lookup of a row in a batch is the one that sets the row's bit; lookups of hot rows read
 * the bit first, since an atomic write of thousands of threads to one word takes turns. Lanes of a warp add what they have
 * found by one atomic addition.
 */
#include "kernels/device/lanes.cuh"

extern "C" {
#include "harness/device/device_cuda.h"
#include "harness/device/device_index.h"
}

namespace {

constexpr int THREADS = 256, MOST_BLOCKS = 1 << 14;
constexpr unsigned WHOLE_WARP = 0xffffffffu;

enum { FOUND, MISSING_LOOKUPS, COUNTS };

struct look {
    struct index_lookups in;
    const int32_t *slot_of;
    unsigned *touched, *counts;
    struct index_found *found;
};

/* Device functions are inline: of others nvcc makes one for the host, which calls exit(). */

__device__ inline int64_t id_at(const struct index_lookups &in, int64_t i) {
    return in.type == ID_INT32 ? static_cast<const int32_t *>(in.ids)[i]
                               : static_cast<const int64_t *>(in.ids)[i];
}

/* Whether this is the first lookup of the row. */
__device__ inline bool touches_first(unsigned *touched, int64_t row) {
    unsigned *word = &touched[row / 32], bit = 1u << row % 32;
    return !(__ldcv(word) & bit) && !(atomicOr(word, bit) & bit);
}

/* Adds the number of lanes that want it; each of these gets a place of its own. */
__device__ inline unsigned count_lanes(unsigned *count, bool wants) {
    unsigned mask = __ballot_sync(WHOLE_WARP, wants), first = 0;
    int lane = threadIdx.x % WARP;
    if (lane == 0 && mask) first = atomicAdd(count, (unsigned)__popc(mask));
    first = __shfl_sync(WHOLE_WARP, first, 0);
    return first + (unsigned)__popc(mask & ((1u << lane) - 1));
}

/* All lanes of a warp take as many turns. */
__global__ void look_up(struct look a) {
    const struct index_lookups &in = a.in;
    for (int64_t at = in.begin + (int64_t)blockIdx.x * THREADS; at < in.end;
         at += (int64_t)gridDim.x * THREADS) {
        int64_t i = at + threadIdx.x, row = i < in.end ? id_at(in, i) : in.padding;
        bool is_row = i < in.end && row != in.padding;
        int32_t slot = is_row ? a.slot_of[row] : in.padding_slot;
        if (i < in.end) in.slot[i] = slot;
        bool first = is_row && touches_first(a.touched, row);
        unsigned place = count_lanes(&a.counts[FOUND], first);
        if (first) a.found[place] = index_found{(int32_t)row, slot};
        count_lanes(&a.counts[MISSING_LOOKUPS], is_row && slot < 0);
    }
}

__global__ void forget(unsigned *touched, const struct index_found *found, int64_t count) {
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < count;
         k += (int64_t)gridDim.x * THREADS)
        atomicAnd(&touched[found[k].row / 32], 0u);
}

__global__ void move_rows(int32_t *slot_of, const struct index_move *moves, int64_t count) {
    for (int64_t k = (int64_t)blockIdx.x * THREADS + threadIdx.x; k < count;
         k += (int64_t)gridDim.x * THREADS) {
        struct index_move m = moves[k];
        if (m.victim >= 0) slot_of[m.victim] = -1;
        slot_of[m.row] = m.slot;
    }
}

__global__ void settle(struct index_lookups in, const int32_t *slot_of) {
    for (int64_t i = in.begin + (int64_t)blockIdx.x * THREADS + threadIdx.x; i < in.end;
         i += (int64_t)gridDim.x * THREADS)
        if (in.slot[i] < 0) in.slot[i] = slot_of[id_at(in, i)];
}

unsigned blocks_for(int64_t count) {
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

template <class T> T *in_device(const struct device_buffer &b) {
    return static_cast<T *>(b.data);
}

cudaStream_t on(void *stream) {
    return static_cast<cudaStream_t>(stream);
}

} // namespace

extern "C" int device_index_open(struct device_index *x, void *stream, int64_t rows, int64_t most,
                                 struct error *err) {
    static const char what[] = "the index of rows in slots";
    *x = device_index{};
    x->rows = rows;
    if (device_alloc(&x->slot_of, (size_t)rows * sizeof(int32_t), what, err) ||
        device_alloc(&x->touched, (size_t)(rows + 31) / 32 * sizeof(unsigned), what, err) ||
        device_alloc(&x->found, (size_t)most * sizeof(struct index_found), what, err) ||
        device_alloc(&x->moves, (size_t)most * sizeof(struct index_move), what, err) ||
        device_alloc(&x->counts, COUNTS * sizeof(unsigned), what, err))
        return -1;
    TRY(cudaMemsetAsync(x->slot_of.data, 0xff, x->slot_of.bytes, on(stream)), what);
    TRY(cudaMemsetAsync(x->touched.data, 0, x->touched.bytes, on(stream)), what);
    TRY(cudaMemsetAsync(x->counts.data, 0, x->counts.bytes, on(stream)), what);
    return 0;
}

extern "C" void device_index_close(struct device_index *x) {
    device_free(&x->slot_of);
    device_free(&x->touched);
    device_free(&x->found);
    device_free(&x->counts);
    device_free(&x->moves);
}

extern "C" int64_t device_index_bytes(const struct device_index *x) {
    return (int64_t)(x->slot_of.bytes + x->touched.bytes + x->found.bytes + x->counts.bytes +
                     x->moves.bytes);
}

extern "C" int device_index_look(struct device_index *x, void *stream,
                                 const struct index_lookups *l, struct error *err) {
    if (l->end == l->begin) return 0;
    struct look a = {*l, in_device<int32_t>(x->slot_of), in_device<unsigned>(x->touched),
                     in_device<unsigned>(x->counts), in_device<struct index_found>(x->found)};
    LAUNCH(look_up, blocks_for(l->end - l->begin), THREADS, 0, on(stream), a);
    TRY(cudaGetLastError(), "looking up rows in slots");
    return 0;
}

extern "C" int device_index_found(struct device_index *x, void *stream, struct index_found *to,
                                  int64_t *count, int64_t *missing_lookups, struct error *err) {
    unsigned counts[COUNTS];
    if (device_get_on(stream, counts, x->counts.data, sizeof counts, err) ||
        device_wait(stream, err))
        return -1;
    *count = counts[FOUND];
    *missing_lookups = counts[MISSING_LOOKUPS];
    if (*count == 0) return 0;
    LAUNCH(forget, blocks_for(*count), THREADS, 0, on(stream), in_device<unsigned>(x->touched),
           in_device<struct index_found>(x->found), *count);
    TRY(cudaGetLastError(), "looking up rows in slots");
    TRY(cudaMemsetAsync(x->counts.data, 0, x->counts.bytes, on(stream)), "counting rows");
    return device_get_on(stream, to, x->found.data, (size_t)*count * sizeof *to, err) ||
                   device_wait(stream, err)
               ? -1
               : 0;
}

extern "C" int device_index_move(struct device_index *x, void *stream,
                                 const struct index_move *moves, int64_t count, struct error *err) {
    if (count == 0) return 0;
    if (device_put_on(stream, x->moves.data, moves, (size_t)count * sizeof *moves, err)) return -1;
    LAUNCH(move_rows, blocks_for(count), THREADS, 0, on(stream), in_device<int32_t>(x->slot_of),
           in_device<struct index_move>(x->moves), count);
    TRY(cudaGetLastError(), "moving rows to slots");
    return 0;
}

extern "C" int device_index_settle(struct device_index *x, void *stream,
                                   const struct index_lookups *l, struct error *err) {
    if (l->end == l->begin) return 0;
    LAUNCH(settle, blocks_for(l->end - l->begin), THREADS, 0, on(stream), *l,
           in_device<int32_t>(x->slot_of));
    TRY(cudaGetLastError(), "giving lookups their slots");
    return 0;
}
