/* SPDX-License-Identifier: MIT
 *
 * Entries sorted by row, as sorted.cuh makes them, by a sample sort: one distribution of all lookups to buckets of
 * keys, then a sort of each bucket inside of a block.
 *
 *   sample     a block sorts its part of a sample of the keys. Equally spaced ones are the borders of buckets
 *   count      each block counts the lookups of its tile in every bucket
 *   scan       over the tiles, for each bucket
 *   distribute writes the entries, bucket by bucket, in the order of the lookups
 *   sort       a block a bucket: digits of 8 bits, from the lowest, in shared memory
 *
 * A key that takes more than a bucket's share fills two borders: then it has a bucket of its own, which needs no
 * sort, and the tree of runs.cuh takes its run. So neither a hot row nor a region of hot rows makes a bucket that does
 * not fit in shared memory. From about 1.5 million entries on (half of that with weights, means or a max) more and more
 * buckets do not: there are no more than 1024. Then the block distributes its bucket once more, by the highest 8 bits.
 * The result depends only on the batch: the same entries in the same places as CUB's stable sort.
 *
 * Traffic per lookup, 32-bit keys and values: count and distribute read the id, distribute writes 8 bytes, sort moves
 * 16. 40 bytes for 64-bit ids, beside offsets, and 16 bytes for each 6 lookups of counts. Keys of more bits move no
 * more. A bucket that does not fit moves 32 bytes more. Scratch: 16 bytes (32 with 64-bit keys or values), and 4 for
 * each 6 lookups.
 *
 * Source: sample sort with buckets of equal keys (Sanders and Winkel 2004), on GPUs Leischner, Osipov and Sanders 2010
 * (arXiv:0909.5649).
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/ranks.cuh"
#include "kernels/device/sample.h"

constexpr int TILE_ITEMS = 16;                /* of a thread */
constexpr int TILE = RANK_BLOCK * TILE_ITEMS; /* lookups that a block distributes at once */

/* A key and a value of 32 or of 64 bits, in distributed buckets. */
struct alignas(8) narrow_entry {
    uint32_t key, value;
};
struct alignas(16) wide_entry {
    uint64_t key, value;
};

struct partition {
    struct entries entries; /* sorted */
    bool wide;              /* distributed entries are wide_entry */
    uint64_t largest;       /* key */
    int buckets, samples;   /* samples 0: one bucket needs none */
    int tiles;              /* of lookups, a block each */
    void *distributed;      /* [entries] */
    void *sample;     /* [samples] sorted keys; ~0, after them: of lookups that become no entries */
    uint32_t *counts; /* [tiles][buckets], after the scan of the tiles before */
    uint32_t *totals; /* [buckets] */
    uint32_t *begin;  /* [buckets + 1] first entry of each */
    uint32_t *sampled; /* samples that are keys */
    float *scale;      /* as in struct sorted */
};

/* As for struct sorted. */
static inline void index_lay_out(struct partition *x, struct scratch *s, const struct batch *in,
                                 int64_t entries, int64_t largest) {
    *x = {};
    x->entries = entries_of(in);
    x->entries.count = entries;
    x->entries.wide_keys = keys_are_wide((uint64_t)largest);
    x->wide = x->entries.wide_keys || x->entries.wide_values;
    x->largest = (uint64_t)largest;
    const size_t entry_bytes = x->wide ? sizeof(struct wide_entry) : sizeof(struct narrow_entry);
    const struct sampling sampling = sampling_of(in->lookups, entries, (int64_t)entry_bytes);
    x->buckets = sampling.buckets;
    x->samples = sampling.samples;
    x->tiles = (int)blocks_for(in->lookups, TILE);
    x->scale = mean_scales_take(s, in);
    x->entries.key = scratch_take(s, entries, key_bytes(&x->entries));
    x->entries.value = scratch_take(s, entries, value_bytes(&x->entries));
    x->distributed = scratch_take(s, entries, entry_bytes);
    x->sample = scratch_take(s, x->samples, x->wide ? sizeof(uint64_t) : sizeof(uint32_t));
    x->counts = (uint32_t *)scratch_take(s, (int64_t)x->tiles * x->buckets, sizeof *x->counts);
    x->totals = (uint32_t *)scratch_take(s, x->buckets, sizeof *x->totals);
    x->begin = (uint32_t *)scratch_take(s, x->buckets + 1, sizeof *x->begin);
    x->sampled = (uint32_t *)scratch_take(s, 1, sizeof *x->sampled);
}

static inline struct entries index_entries(const struct partition *x) {
    return x->entries;
}

/* As for struct sorted. */
cudaError_t index_fill(const struct partition *x, const struct batch *in,
                       const struct before *before, uint32_t *zeros, int64_t num_zeros,
                       cudaStream_t stream);
