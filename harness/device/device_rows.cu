/* SPDX-License-Identifier: MIT
 *
 * One warp per row, a lane per column; one row of CUDA blocks per block of rows.
 */
#include "kernels/device/launch.h"

extern "C" {
#include "harness/device/device_cuda.h"
#include "harness/device/device_rows.h"
}

namespace {

constexpr int THREADS = 256, ROWS_PER_BLOCK = THREADS / 32;
constexpr int64_t MOST_ACROSS = 1 << 12, MOST_DOWN = 65535;

/* Narrower parts are not added: ranks/member.c refuses them. */
template <class element> __device__ void add(element *to, element x) {
    if constexpr (sizeof x == sizeof(float)) *to += x;
}

template <class element>
__device__ void move_row(const row_block &b, element *array, element *message, int lane) {
    for (int32_t c = lane; c < b.columns; c += 32) {
        element *at = array + c;
        switch (b.how) {
        case ROWS_PACK: message[c] = *at; break;
        case ROWS_UNPACK: *at = message[c]; break;
        case ROWS_ADD: add(at, message[c]); break;
        case ROWS_CLEAR: *at = 0; break;
        }
    }
}

template <class element> __global__ void move_rows(const row_block *blocks, int32_t count) {
    int lane = threadIdx.x % 32;
    int64_t from = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / 32;
    for (int32_t k = (int32_t)blockIdx.y; k < count; k += (int32_t)gridDim.y) {
        row_block b = blocks[k];
        for (int64_t i = from; i < b.count; i += (int64_t)gridDim.x * ROWS_PER_BLOCK) {
            int64_t row = b.row ? b.row[i] : b.first + i;
            move_row(b, reinterpret_cast<element *>(b.array + row * b.array_stride),
                     reinterpret_cast<element *>(b.message + i * b.message_stride), lane);
        }
    }
}

int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

} // namespace

extern "C" int device_rows_move(void *stream, struct device_buffer *list,
                                const struct row_block *blocks, int32_t count, int64_t element,
                                struct error *err) {
    size_t bytes = (size_t)count * sizeof *blocks;
    int64_t most = 0;
    if (count == 0) return 0;
    if (list->bytes < bytes) {
        device_free(list);
        if (device_alloc(list, bytes, "the list of rows to move", err)) return -1;
    }
    if (device_put_on(stream, list->data, blocks, bytes, err)) return -1;
    for (int32_t k = 0; k < count; k++)
        if (blocks[k].count > most) most = blocks[k].count;
    dim3 grid((unsigned)least((most + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK, MOST_ACROSS),
              (unsigned)least(count, MOST_DOWN));
    auto *there = static_cast<const row_block *>(list->data);
    if (element == 4)
        LAUNCH((move_rows<float>), grid, THREADS, 0, static_cast<cudaStream_t>(stream), there,
               count);
    else if (element == 1)
        LAUNCH((move_rows<uint8_t>), grid, THREADS, 0, static_cast<cudaStream_t>(stream), there,
               count);
    else
        LAUNCH((move_rows<uint16_t>), grid, THREADS, 0, static_cast<cudaStream_t>(stream), there,
               count);
    TRY(cudaGetLastError(), "moving rows");
    return 0;
}
