/* SPDX-License-Identifier: MIT
 *
 * Adds the gradient row of every lookup atomically to a destination row, in no fixed order.
 *
 * A warp takes 32 lookups: every lane computes the metadata of one of them. Then the warp adds them
 * one after another, or several at a time if rows are narrow.
 */
#pragma once

#include "kernels/device/lookup.cuh"

/* Adds one float, or four aligned ones (from sm_90 on one request), to memory that others add to as well. */
static __device__ inline void reduce_add(float *to, float x) {
#if defined(__CUDA_ARCH__)
    asm volatile("red.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "f"(x)
                 : "memory");
#else
    atomicAdd(to, x);
#endif
}

static __device__ inline void reduce_add(float4 *to, float4 x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
        "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
        : "memory");
#else
    float *at = (float *)to;
    reduce_add(at, x.x), reduce_add(at + 1, x.y), reduce_add(at + 2, x.z), reduce_add(at + 3, x.w);
#endif
}

/* For a row that other groups also add to. */
static __device__ inline void quad_add_atomically(float *row, int32_t column, int32_t dim,
                                                  struct quad q) {
    float *at = row + column;
    if (is_whole(FP32, at, column, dim)) {
        reduce_add((float4 *)at, float4_of(q));
        return;
    }
    for (int c = 0; c < LANE_COLUMNS; c++)
        if (column + c < dim) reduce_add(&at[c], q.x[c]);
}

/* The row to which a lookup's gradient is added, and a factor for the gradient. */
struct destination {
    float *row;
    float factor;
};

/* An SM of sm_75 holds four blocks. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int WINNERS_BLOCKS = 4;
#else
constexpr int WINNERS_BLOCKS = 6;
#endif

/* A thread per lookup; to(lookup) returns its destination. MASKS: the batch has a max. To run eight blocks
 * at once, nvcc would then spill winners. */
template <bool MASKS, class To>
static __global__ void __launch_bounds__(LOOKUP_BLOCK, MASKS ? WINNERS_BLOCKS : 0)
    scatter(const struct batch in, const float *scale, int lanes, const To to) {
    const unsigned all = 0xffffffffu;
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x, last = in.lookups - 1;
    const struct lookup l = lookup_of_thread(in, scale, i);
    struct destination d = {NULL, 0};
    int32_t dim = 0;
    if (i <= last && !l.padding) {
        d = to(l);
        dim = in.device_tables[l.table].dim;
    }
    int lane = (int)threadIdx.x % WARP, group = lane / lanes;
    for (int k = group; k < WARP; k += WARP / lanes) {
        float *row = (float *)(uintptr_t)__shfl_sync(all, (unsigned long long)(uintptr_t)d.row, k);
        int64_t grad = __shfl_sync(all, (long long)l.grad, k);
        float factor = __shfl_sync(all, d.factor * l.coefficient, k);
        int32_t width = __shfl_sync(all, dim, k);
        const int32_t number = MASKS ? __shfl_sync(all, l.number, k) : -1;
        for (int32_t column = lane % lanes * LANE_COLUMNS; column < width;
             column += lanes * LANE_COLUMNS) {
            const void *from = (const char *)in.grad + grad * dtype_bytes(in.grad_type);
            struct quad q =
                quad_widen(in.grad_type, quad_fetch<true>(in.grad_type, from, column, width));
            if (MASKS && number >= 0 &&
                !max_mask_apply(&q, in.winners + grad, (uint32_t)number, column, width))
                continue;
            quad_add_atomically(row, column, width, quad_scale(q, factor));
        }
    }
}

template <class To>
static inline cudaError_t scatter_enqueue(const struct batch *in, const float *scale, const To &to,
                                          cudaStream_t stream) {
    if (in->lookups == 0) return cudaSuccess;
    auto kernel = has_pooling(in, POOL_MAX) ? scatter<true, To> : scatter<false, To>;
    LAUNCH(kernel, blocks_for(in->lookups, LOOKUP_BLOCK), LOOKUP_BLOCK, 0, stream, *in, scale,
           lanes_of_row(widest(in)), to);
    return cudaGetLastError();
}
