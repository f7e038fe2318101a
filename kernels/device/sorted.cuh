/* SPDX-License-Identifier: MIT
 *
 * Entries sorted by row: one kernel writes them, CUB sorts them by as many bits as the keys need.
 * The sort is stable, so a row's entries stay in the order of the lookups.
 *
 * Traffic per lookup, 32-bit keys and values: reads the id, writes 8 bytes, reads 4 for all
 * histograms of the sort, moves 16 for each 8 bits of row number. 68 bytes for 24 bits, 64-bit ids.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/sort.h"

/* A thread per lookup. Writes the entries in the order of the lookups, and clears zeros[]. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    write_entries(const struct batch in, const struct entries e, const float *scale,
                  const struct before *before, uint32_t *zeros, int64_t num_zeros) {
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x, last = in.lookups - 1;
    if (i < num_zeros) zeros[i] = 0;
    const struct lookup l = lookup_of_thread(in, scale, i);
    if (i > last) return;
    struct entry made = entry_of(in, e, l);
    int64_t at = i;
    if (before) {
        if (before[l.feature].lookups < 0) return;
        at = before[l.feature].lookups + i - in.offsets[l.feature * in.bags];
    }
    entry_put(e, at, made.key, made.value);
}

struct sorted {
    struct entries entries;
    struct sort_buffers buffers;
    void *temp;
    size_t temp_bytes;
    int bits;
    float *scale;
};

/* entries: the number of lookups that become entries. largest: key. */
static inline void index_lay_out(struct sorted *x, struct scratch *s, const struct batch *in,
                                 int64_t entries, int64_t largest) {
    x->entries = entries_of(in);
    x->entries.count = entries;
    x->entries.wide_keys = keys_are_wide((uint64_t)largest);
    x->bits = bits_for(largest + 1);
    x->scale = mean_scales_take(s, in);
    x->buffers = (struct sort_buffers){};
    x->buffers.wide_keys = x->entries.wide_keys;
    x->buffers.wide_values = x->entries.wide_values;
    for (int k = 0; k < 2; k++) {
        x->buffers.key[k] = scratch_take(s, entries + 1, key_bytes(&x->entries)); /* sums look one ahead */
        x->buffers.value[k] = scratch_take(s, entries, value_bytes(&x->entries));
    }
    x->temp_bytes = 0;
    sort_pairs(NULL, &x->temp_bytes, &x->buffers, (uint32_t)entries, x->bits, NULL);
    x->temp = scratch_take(s, (int64_t)x->temp_bytes, 1);
}

/* The entries in the current buffers: before the sort unsorted, after it sorted. */
static inline struct entries index_entries(const struct sorted *x) {
    struct entries e = x->entries;
    e.key = x->buffers.key[x->buffers.now];
    e.value = x->buffers.value[x->buffers.now];
    return e;
}

/* Enqueues the write of the entries and the sort, and clears zeros[num_zeros]. before:
 * [num_features], or NULL if all lookups become entries. */
static inline cudaError_t index_fill(struct sorted *x, const struct batch *in,
                                     const struct before *before, uint32_t *zeros,
                                     int64_t num_zeros, cudaStream_t stream) {
    if (x->entries.count == 0) return cudaSuccess;
    LAUNCH(write_entries, blocks_for(in->lookups, LOOKUP_BLOCK), LOOKUP_BLOCK, 0, stream, *in,
           index_entries(x), x->scale, before, zeros, num_zeros);
    if (x->bits == 0) return cudaGetLastError();
    cudaError_t status = sort_pairs(x->temp, &x->temp_bytes, &x->buffers,
                                    (uint32_t)x->entries.count, x->bits, stream);
    return status == cudaSuccess ? cudaGetLastError() : status;
}
