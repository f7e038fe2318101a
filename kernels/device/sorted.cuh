/* SPDX-License-Identifier: MIT
 *
 * Entries sorted by row: one kernel writes them, and a stable radix sort orders them by as many bits as the keys need.
 * So a row's entries stay in the order of the lookups. onesweep.h sorts them, and the kernel that
 * writes them counts their digits; CUB sorts 2^30 entries and more. struct cub_sorted leaves all to CUB.
 *
 * Who owns what: a warp writes the entries of up to 2048 consecutive lookups, a lane one of each 32. So it knows their
 * feature, and looks for the bag of the next 32 among the 32 bags from the last one on.
 *
 * Operations on the stream for three digits of 8 bits: a memset and 4 kernels; by CUB 5 memsets and 6 kernels (read in
 * the sources). Traffic per lookup, 32-bit keys and values: reads the id, writes 8 bytes, moves 16 for each 8 bits of
 * row number: 64 bytes for 24 bits and 64-bit ids, and 5 of words that the sort's blocks share. CUB reads the keys once
 * more, 68 bytes. What distinct sectors of a small batch come to: onesweep.h. Scratch: 16 bytes (24 with 64-bit
 * values), and the sort's.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/sort.h"

enum { TURNS_MOST = 64 };

/* How many lookups a lane writes in turn: enough blocks fill a device, and more would only add up more counts. */
static inline int turns_of(int64_t lookups) {
    const int64_t full = (int64_t)BLOCKS_ENOUGH * LOOKUP_BLOCK;
    return (int)min64(max64((lookups + full - 1) / full, 1), TURNS_MOST);
}

/* The words of an id whose load is in flight: the first use waits for it. */
struct loaded_id {
    uint32_t low, high;
};

static __device__ inline struct loaded_id id_load(const struct batch &in, int64_t i) {
    const int wide = in.id_type != ID_INT32;
    const uint32_t *at = (const uint32_t *)in.ids + (i << wide);
    return {at[0], at[wide]};
}

static __device__ inline int64_t id_of(const struct batch &in, struct loaded_id id) {
    return in.id_type == ID_INT32 ? (int32_t)id.low : (int64_t)((uint64_t)id.high << 32 | id.low);
}

/* Writes the entries in the order of the lookups, adds the digits of their keys to counts[passes][DIGITS], and clears
 * zeros[]. A lane has the id of its next lookup in flight. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    write_entries(const struct batch in, const struct entries e, const float *scale, int turns,
                  int passes, uint32_t *counts, uint32_t *zeros, int64_t num_zeros) {
    SHARED(uint32_t, mine, PASSES_MOST * DIGITS);
    const int64_t thread = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x,
                  threads = (int64_t)gridDim.x * LOOKUP_BLOCK, last = in.lookups - 1,
                  first = thread / WARP * turns * WARP, lane = threadIdx.x % WARP;
#pragma unroll 1 /* else nvcc divides to know how often */
    for (int64_t k = thread; k < num_zeros; k += threads) zeros[k] = 0;
    for (int k = (int)threadIdx.x; k < passes * DIGITS; k += LOOKUP_BLOCK) mine[k] = 0;
    __syncthreads();
    const int64_t end = min(first + turns * WARP, last + 1);
    if (first < end) {
        struct nearby near = nearby_of(in, first, end - 1);
        struct loaded_id id = id_load(in, min(first + lane, last));
        for (int64_t from = first; from < end; from += WARP) {
            const int64_t i = from + lane;
            const struct loaded_id next = id_load(in, min(i + WARP, last));
            const struct lookup l =
                lookup_of(in, scale, min(i, last), &near, [&] { return id_of(in, id); });
            id = next;
            if (i > last) continue;
            const struct entry made = entry_of(in, e, l);
            entry_put(e, i, made.key, made.value);
            for (int p = 0; p < passes; p++)
                atomicAdd(mine + p * DIGITS + (made.key >> p * DIGIT_BITS) % DIGITS, 1u);
        }
    }
    __syncthreads();
    for (int k = (int)threadIdx.x; k < passes * DIGITS; k += LOOKUP_BLOCK)
        if (mine[k]) atomicAdd(&counts[k], mine[k]);
}

struct sorted {
    struct entries entries;
    struct sort_buffers buffers;
    struct onesweep sort; /* passes 0: CUB sorts, if there are bits */
    void *temp;           /* of CUB */
    size_t temp_bytes;
    int bits;
    float *scale;
};

/* largest: key. */
static inline void index_lay_out(struct sorted *x, struct scratch *s, const struct batch *in,
                                 int64_t largest, bool by_cub = false) {
    const int64_t entries = in->lookups;
    x->entries = entries_of(in);
    x->bits = bits_for(largest + 1);
    x->scale = mean_scales_take(s, in);
    x->buffers = (struct sort_buffers){};
    x->buffers.wide_values = x->entries.wide_values;
    for (int k = 0; k < 2; k++) {
        x->buffers.key[k] =
            (uint32_t *)scratch_take(s, entries + 1, sizeof(uint32_t)); /* sums look one ahead */
        x->buffers.value[k] = scratch_take(s, entries, value_bytes(&x->entries));
    }
    by_cub |= entries > ONESWEEP_MOST;
    x->sort = onesweep_of(entries, by_cub ? 0 : x->bits, x->entries.wide_values);
    x->temp = NULL;
    x->temp_bytes = 0;
    if (!by_cub) {
        onesweep_lay_out(&x->sort, s);
        return;
    }
    sort_pairs(NULL, &x->temp_bytes, &x->buffers, (uint32_t)entries, x->bits, NULL);
    x->temp = scratch_take(s, (int64_t)x->temp_bytes, 1);
}

/* The same, sorted by CUB. */
struct cub_sorted : sorted {};

static inline void index_lay_out(struct cub_sorted *x, struct scratch *s, const struct batch *in,
                                 int64_t largest) {
    index_lay_out((struct sorted *)x, s, in, largest, true);
}

/* The entries in the current buffers: before the sort unsorted, after it sorted. */
static inline struct entries index_entries(const struct sorted *x) {
    struct entries e = x->entries;
    e.key = x->buffers.key[x->buffers.now];
    e.value = x->buffers.value[x->buffers.now];
    return e;
}

/* Enqueues the write of the entries and the sort, and clears zeros[num_zeros]. Unless CUB sorts, the result is in the
 * first buffers. */
static inline cudaError_t index_fill(struct sorted *x, const struct batch *in, uint32_t *zeros,
                                     int64_t num_zeros, cudaStream_t stream) {
    const int turns = turns_of(in->lookups), passes = x->sort.passes;
    if (x->entries.count == 0) return cudaSuccess;
    cudaError_t status = (cudaError_t)onesweep_clear(&x->sort, stream);
    if (status != cudaSuccess) return status;
    x->buffers.now = passes % 2;
    LAUNCH(write_entries, blocks_for(in->lookups, LOOKUP_BLOCK * turns), LOOKUP_BLOCK, 0, stream,
           *in, index_entries(x), x->scale, turns, passes,
           passes ? onesweep_counts(&x->sort) : NULL, zeros, num_zeros);
    if (passes > 0)
        status = (cudaError_t)onesweep_sort(&x->sort, &x->buffers, stream);
    else if (x->bits > 0)
        status = sort_pairs(x->temp, &x->temp_bytes, &x->buffers, (uint32_t)x->entries.count,
                            x->bits, stream);
    return status == cudaSuccess ? cudaGetLastError() : status;
}
