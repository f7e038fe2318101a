/* SPDX-License-Identifier: MIT
 *
 * Prefix sums in one block, over items of a type T that + adds and {} clears.
 */
#pragma once

#include "kernels/device/launch.h"

enum { SCAN_BLOCK = 256 };

/* The sum of x over the threads before this one. *total becomes the sum over all threads. All SCAN_BLOCK threads call
 * this. */
template <class T> static __device__ inline T block_before(T x, T *total) {
    SHARED(T, sums, SCAN_BLOCK);
    const int t = (int)threadIdx.x;
    for (int step = 1; step < SCAN_BLOCK; step *= 2) {
        sums[t] = x;
        __syncthreads();
        if (t >= step) x = x + sums[t - step];
        __syncthreads();
    }
    sums[t] = x;
    __syncthreads();
    *total = sums[SCAN_BLOCK - 1];
    const T before = t > 0 ? sums[t - 1] : T{};
    __syncthreads();
    return before;
}

/* Calls put(i, sum of get() over the items before i) for each item 0 .. count-1. One block calls this. Returns
 * the sum of all. */
template <class T, class Get, class Put>
static __device__ inline T items_before(int32_t count, const Get &get, const Put &put) {
    T all = {};
    for (int32_t first = 0; first < count; first += SCAN_BLOCK) {
        const int32_t i = first + (int32_t)threadIdx.x;
        T total;
        const T before = block_before(i < count ? get(i) : T{}, &total);
        if (i < count) put(i, all + before);
        all = all + total;
    }
    return all;
}
