/* SPDX-License-Identifier: MIT */
#include "kernels/device/partition.cuh"
#include "kernels/device/scan.cuh"

/* --- keys and buckets */

/* The key of a lookup of this feature; ~0, which is no key: it becomes no entry. */
static __device__ inline uint64_t key_in(const struct batch &in, const struct entries &e,
                                         const struct before *before, int32_t f, int64_t row) {
    const struct feature *x = &in.device_features[f];
    if (before && before[f].lookups < 0) return ~UINT64_C(0);
    return key_of(in, e, x->table, row, row == x->padding_id);
}

/* Border k of the buckets, 1 .. buckets-1, in the sorted sample. */
template <class Key> static __device__ inline Key border(const struct partition &x, int k) {
    return ((const Key *)x.sample)[(int64_t)k * *x.sampled / x.buckets];
}

/* The borders, and ~0 after the last. The block calls this. */
template <class Key>
static __device__ inline void borders_fetch(const struct partition &x, Key *borders) {
    for (int k = (int)threadIdx.x; k < x.buckets; k += RANK_BLOCK)
        borders[k] = k + 1 < x.buckets ? border<Key>(x, k + 1) : (Key) ~(Key)0;
    __syncthreads();
}

/* Bucket b has the keys above border b up to border b + 1. A key that is several borders has the bucket between
 * the first two of them to itself. */
template <class Key>
static __device__ inline unsigned bucket_of(const Key *borders, int buckets, Key key) {
    int lo = 0, hi = buckets - 1; /* the last "border" is above all keys */
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (borders[mid] < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    const bool own = lo + 1 < buckets && borders[lo] == key && borders[lo + 1] == key;
    return (unsigned)(lo + own);
}

/* --- the sample */

/* Samples that a block ranks, and the lanes for each. */
constexpr int RANKED = 64, RANKERS = RANK_BLOCK / RANKED;

/* Every block fetches the whole sample, and finds the places of a part of it by comparing with all others. One more
 * place is that of ~0: the number of samples that are keys. */
template <class Key>
static __global__ void __launch_bounds__(RANK_BLOCK)
    sample_keys(const struct batch in, const struct partition x, const struct before *before) {
    SHARED(Key, sample, SAMPLES_MOST);
    for (int k = (int)threadIdx.x; k < x.samples; k += RANK_BLOCK) {
        const int64_t i = sampled_lookup(in.lookups, x.samples, k);
        sample[k] = (Key)key_in(in, x.entries, before, feature_of(in, i), batch_id(&in, i));
    }
    __syncthreads();
    const int me = (int)threadIdx.x % RANKERS,
              number = (int)blockIdx.x * RANKED + (int)threadIdx.x / RANKERS;
    const bool is_sample = number < x.samples;
    const Key mine = is_sample ? sample[number] : (Key) ~(Key)0;
    const int equals = is_sample ? number : 0; /* those before this count */
    int place = 0;
    for (int k = me; k < x.samples; k += RANKERS)
        place += sample[k] < mine || (sample[k] == mine && k < equals);
    for (int step = 1; step < RANKERS; step *= 2) place += __shfl_xor_sync(ALL_LANES, place, step);
    if (me != 0) return;
    if (is_sample) ((Key *)x.sample)[place] = mine;
    if (number == x.samples) *x.sampled = (uint32_t)place;
}

/* --- counts of buckets */

/* What this warp knows of its part of the block's tile. */
static __device__ inline struct nearby part_nearby(const struct batch &in) {
    const int64_t first =
        (int64_t)blockIdx.x * TILE + (int64_t)threadIdx.x / WARP * TILE_ITEMS * WARP;
    return nearby_of(in, first, min(first + TILE_ITEMS * WARP, in.lookups) - 1);
}

/* Calls put(r, bucket) for each turn r of this warp that is not over, with the lane's item; NO_DIGIT: it becomes no
 * entry. Loads four ids at once. count: lookups of the block's tile. */
template <class Key, class Put>
static __device__ inline void tile_buckets(const struct batch &in, const struct partition &x,
                                           const struct before *before, const struct nearby &near,
                                           int count, const Key *borders, const Put &put) {
    constexpr int AHEAD = 4;
    static_assert(TILE_ITEMS % AHEAD == 0, "turns come in fours");
    const int64_t tile = (int64_t)blockIdx.x * TILE;
#pragma unroll 1
    for (int r = 0; r < TILE_ITEMS; r += AHEAD) {
        if (tile_is_over<TILE_ITEMS>(r, count)) break;
        int64_t row[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            row[u] = batch_id(&in, tile + min(tile_item<TILE_ITEMS>(r + u), count - 1));
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int item = tile_item<TILE_ITEMS>(r + u);
            const int64_t i = tile + min(item, count - 1);
            const int32_t f = near.feature >= 0 ? near.feature : feature_of(in, i);
            const uint64_t key = key_in(in, x.entries, before, f, row[u]);
            put(r + u, item < count && key != ~UINT64_C(0) ? bucket_of(borders, x.buckets, (Key)key)
                                                           : NO_DIGIT);
        }
    }
}

/* How many lookups the block's tile has. */
static __device__ inline int tile_count(const struct batch &in) {
    return (int)min((int64_t)TILE, in.lookups - (int64_t)blockIdx.x * TILE);
}

template <class Key>
static __global__ void __launch_bounds__(RANK_BLOCK, 4)
    count_buckets(const struct batch in, const struct partition x, const struct before *before,
                  uint32_t *zeros, int64_t num_zeros) {
    SHARED(Key, borders, BUCKETS_MOST);
    SHARED(uint32_t, count, BUCKETS_MOST);
    const int64_t thread = (int64_t)blockIdx.x * RANK_BLOCK + threadIdx.x;
    for (int64_t k = thread; k < num_zeros; k += (int64_t)gridDim.x * RANK_BLOCK) zeros[k] = 0;
    for (int b = (int)threadIdx.x; b < x.buckets; b += RANK_BLOCK) count[b] = 0;
    borders_fetch(x, borders);
    tile_buckets(in, x, before, part_nearby(in), tile_count(in), borders,
                 [&](int, unsigned bucket) {
                     if (bucket != NO_DIGIT) atomicAdd(&count[bucket], 1u);
                 });
    __syncthreads();
    for (int b = (int)threadIdx.x; b < x.buckets; b += RANK_BLOCK)
        x.counts[(int64_t)blockIdx.x * x.buckets + b] = count[b];
}

/* A lane a bucket, a warp an eighth of the tiles: counts become the sums over the tiles before. */
static __global__ void __launch_bounds__(RANK_BLOCK) scan_tiles(const struct partition x) {
    SHARED(uint32_t, sums, RANK_BLOCK);
    const int warp = (int)threadIdx.x / WARP,
              bucket = (int)(blockIdx.x * WARP + threadIdx.x % WARP);
    const int first = x.tiles * warp / RANK_WARPS, end = x.tiles * (warp + 1) / RANK_WARPS;
    uint32_t *count = x.counts + bucket, sum = 0;
    if (bucket < x.buckets) {
#pragma unroll 8
        for (int k = first; k < end; k++) sum += count[(int64_t)k * x.buckets];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (bucket >= x.buckets) return;
    uint32_t before = 0;
    for (int w = 0; w < warp; w++) before += sums[w * WARP + (int)threadIdx.x % WARP];
    if (warp == RANK_WARPS - 1) x.totals[bucket] = before + sum;
#pragma unroll 8
    for (int k = first; k < end; k++) {
        const uint32_t here = count[(int64_t)k * x.buckets];
        count[(int64_t)k * x.buckets] = before;
        before += here;
    }
}

/* --- entries, bucket by bucket */

template <class Entry>
static __global__ void __launch_bounds__(RANK_BLOCK, 4)
    distribute(const struct batch in, const struct partition x, const struct before *before) {
    using Key = decltype(Entry::key);
    SHARED(Key, borders, BUCKETS_MOST);
    SHARED(uint32_t, first, BUCKETS_MOST); /* place of each bucket for this tile */
    SHARED(uint16_t, counts, RANK_WARPS * BUCKETS_MOST);
    SHARED(uint32_t, held, TILE);
    const uint32_t *earlier = x.counts + (int64_t)blockIdx.x * x.buckets;
    borders_fetch(x, borders);
    items_before<uint32_t>(
        x.buckets, [&](int32_t b) { return x.totals[b]; },
        [&](int32_t b, uint32_t sum) {
            first[b] = sum + earlier[b];
            if (blockIdx.x == 0) x.begin[b] = sum;
        });
    if (blockIdx.x == 0 && threadIdx.x == 0) x.begin[x.buckets] = (uint32_t)x.entries.count;
    const int64_t at = (int64_t)blockIdx.x * TILE;
    const int count = tile_count(in);
    struct ranks_shared<TILE_ITEMS> ranks = {
        held
    };
    struct nearby near = part_nearby(in);
    /* ranks.at() is a bucket until tile_rank() has ranked it. */
    tile_buckets(in, x, before, near, count, borders,
                 [&](int r, unsigned bucket) { ranks.at(r) = bucket; });
    tile_rank(&ranks, counts, x.buckets, count, [&](int r) -> unsigned { return ranks.at(r); });
    tile_add_warps(counts, x.buckets, [](int, uint32_t) {});
    tile_put(&ranks, counts, x.buckets, count, first, [&](int r, uint32_t place) {
        const int item = tile_item<TILE_ITEMS>(r);
        const struct lookup l = lookup_at(in, x.scale, at + min(item, count - 1), &near);
        if (place == NO_PLACE) return;
        const struct entry made = entry_of(in, x.entries, l);
        ((Entry *)x.distributed)[place] = {(Key)made.key, (Key)made.value};
    });
}

/* --- the sort of a bucket */

constexpr int DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS;
static_assert(DIGITS == RANK_BLOCK, "a thread has a digit");

/* Shared memory of a sort. */
template <class Entry> struct sorting {
    static constexpr int items = BUCKET_BYTES / (int)sizeof(Entry) / RANK_BLOCK;
    Entry *held;      /* [items * RANK_BLOCK] */
    uint32_t *first;  /* [DIGITS] */
    uint16_t *counts; /* [RANK_WARPS][DIGITS] */
};

/* The least number of bits that a number has. */
static __device__ inline int bits_of(uint64_t number) {
    return 64 - __clzll((long long)number);
}

/* The keys of a bucket: least + a number of so many bits. */
template <class Key> struct key_bits {
    Key least;
    int bits;
    __device__ unsigned digit(Key key, int shift) const {
        return shift < bits ? (unsigned)((key - least) >> shift) % DIGITS : 0;
    }
};

/* Sorts `count` entries in shared memory: get(k) is entry k. Calls put(k, entry) for each. */
template <class Entry, class Get, class Put>
static __device__ inline void sort_held(const struct sorting<Entry> &s,
                                        const struct key_bits<decltype(Entry::key)> &keys,
                                        int count, const Get &get, const Put &put) {
    constexpr int ITEMS = sorting<Entry>::items;
    Entry mine[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (tile_item<ITEMS>(r) < count) mine[r] = get(tile_item<ITEMS>(r));
    for (int pass = 0; pass * DIGIT_BITS < keys.bits; pass++) {
        struct ranks_here<ITEMS> ranks;
        tile_rank(&ranks, s.counts, DIGITS, count, [&](int r) -> unsigned {
            return tile_item<ITEMS>(r) < count ? keys.digit(mine[r].key, pass * DIGIT_BITS)
                                               : NO_DIGIT;
        });
        uint32_t total = 0, all;
        tile_add_warps(s.counts, DIGITS, [&](int, uint32_t sum) { total = sum; });
        s.first[threadIdx.x] = block_before(total, &all);
        __syncthreads();
        tile_put(&ranks, s.counts, DIGITS, count, s.first, [&](int r, uint32_t place) {
            if (place != NO_PLACE) s.held[place] = mine[r];
        });
#pragma unroll
        for (int r = 0; r < ITEMS; r++)
            if (tile_item<ITEMS>(r) < count) mine[r] = s.held[tile_item<ITEMS>(r)];
    }
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (tile_item<ITEMS>(r) < count) put((uint32_t)tile_item<ITEMS>(r), mine[r]);
}

/* Stably distributes more entries than fit by one digit, the bits from `shift` on: get(k) is entry k of count. Leaves the
 * end of each digit in s.first. */
template <class Entry, class Get, class Put>
static __device__ inline void sort_pass(const struct sorting<Entry> &s,
                                        const struct key_bits<decltype(Entry::key)> &keys,
                                        int shift, int64_t count, const Get &get, const Put &put) {
    constexpr int ITEMS = sorting<Entry>::items;
    s.first[threadIdx.x] = 0;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < count; k += RANK_BLOCK)
        atomicAdd(&s.first[keys.digit(get(k).key, shift)], 1u);
    __syncthreads();
    uint32_t all;
    const uint32_t before = block_before(s.first[threadIdx.x], &all);
    s.first[threadIdx.x] = before;
    for (int64_t at = 0; at < count; at += ITEMS * RANK_BLOCK) {
        const int here = (int)min((int64_t)ITEMS * RANK_BLOCK, count - at);
        /* Nothing else is in shared memory now: the entries do not fit there. */
        struct ranks_shared<ITEMS> ranks = {
            (uint32_t *)s.held
        };
        tile_rank(&ranks, s.counts, DIGITS, here, [&](int r) -> unsigned {
            const int item = tile_item<ITEMS>(r);
            return item < here ? keys.digit(get(at + item).key, shift) : NO_DIGIT;
        });
        uint32_t total = 0;
        tile_add_warps(s.counts, DIGITS, [&](int, uint32_t sum) { total = sum; });
        tile_put(&ranks, s.counts, DIGITS, here, s.first, [&](int r, uint32_t place) {
            if (place != NO_PLACE) put(place, get(at + tile_item<ITEMS>(r)));
        });
        s.first[threadIdx.x] += total;
    }
    __syncthreads();
}

template <class Entry>
static __device__ inline Entry entry_get(const struct entries &e, int64_t i) {
    using Key = decltype(Entry::key);
    return {(Key)entry_key(e, i), (Key)entry_value(e, i)};
}

/* A block a bucket. If it does not fit, it is distributed by its highest digit, and as many digits at once as fit are
 * sorted. */
template <class Entry>
static __global__ void __launch_bounds__(RANK_BLOCK, 2) sort_buckets(const struct partition x) {
    using Key = decltype(Entry::key);
    constexpr int MOST = BUCKET_BYTES / (int)sizeof(Entry);
    SHARED(Entry, held, MOST);
    SHARED(uint32_t, first, DIGITS);
    SHARED(uint32_t, ends, DIGITS);
    SHARED(uint16_t, counts, RANK_WARPS * DIGITS);
    const struct sorting<Entry> s = { held, first, counts };
    const int bucket = (int)blockIdx.x;
    const int64_t begin = x.begin[bucket], count = x.begin[bucket + 1] - begin;
    const Key least = bucket == 0 ? 0 : border<Key>(x, bucket),
              most = bucket + 1 == x.buckets ? (Key)x.largest
                                             : min(border<Key>(x, bucket + 1), (Key)x.largest);
    struct key_bits<Key> keys = {
        least, most > least ? bits_of(most - least) : 0
    };
    Entry *from = (Entry *)x.distributed + begin;
    struct entries to = x.entries;
    if (sizeof(Entry) == sizeof(struct narrow_entry)) to.wide_keys = to.wide_values = false;
    const auto get = [&](bool sorted, int64_t k) -> Entry {
        return sorted ? entry_get<Entry>(to, begin + k) : from[k];
    };
    const auto put = [&](bool sorted, int64_t k, const Entry &y) {
        if (sorted)
            entry_put(to, begin + k, y.key, y.value);
        else
            from[k] = y;
    };
    const bool split = count > MOST;
    const int shift = max(keys.bits - DIGIT_BITS, 0); /* of the highest digit */
    if (split) {
        sort_pass(
            s, keys, shift, count, [&](int64_t k) { return get(false, k); },
            [&](int64_t k, const Entry &y) { put(true, k, y); });
        if (shift == 0) return;
        ends[threadIdx.x] = first[threadIdx.x];
        __syncthreads();
    }
    int64_t end = count;
    for (int64_t at = 0, digit = 0; at < count; at = end) {
        if (split) {
            const int64_t lowest = digit;
            while (digit + 1 < DIGITS && ends[digit + 1] - at <= MOST) digit++;
            end = ends[digit];
            keys = {least + ((Key)lowest << shift), shift + bits_of((Key)(digit - lowest))};
            digit++;
        }
        if (end - at <= MOST) {
            sort_held(
                s, keys, (int)(end - at), [&](int k) { return get(split, at + k); },
                [&](int64_t k, const Entry &y) { put(true, at + k, y); });
            continue;
        }
        /* To and fro between both arrays, from the lowest digit on; an even number of times. */
        for (int pass = 0; pass * DIGIT_BITS < keys.bits || pass % 2; pass++)
            sort_pass(
                s, keys, pass * DIGIT_BITS, end - at,
                [&](int64_t k) { return get(pass % 2 == 0, at + k); },
                [&](int64_t k, const Entry &y) { put(pass % 2, at + k, y); });
    }
}

/* --- launches */

template <class Entry>
static cudaError_t fill(const struct partition *x, const struct batch *in,
                        const struct before *before, uint32_t *zeros, int64_t num_zeros,
                        cudaStream_t stream) {
    using Key = decltype(Entry::key);
    const auto sample = sample_keys<Key>;
    const auto count = count_buckets<Key>;
    const auto write = distribute<Entry>;
    const auto sort = sort_buckets<Entry>;
    if (x->samples)
        LAUNCH(sample, blocks_for(x->samples + 1, RANKED), RANK_BLOCK, 0, stream, *in, *x, before);
    LAUNCH(count, (unsigned)x->tiles, RANK_BLOCK, 0, stream, *in, *x, before, zeros, num_zeros);
    LAUNCH(scan_tiles, blocks_for(x->buckets, WARP), RANK_BLOCK, 0, stream, *x);
    LAUNCH(write, (unsigned)x->tiles, RANK_BLOCK, 0, stream, *in, *x, before);
    LAUNCH(sort, (unsigned)x->buckets, RANK_BLOCK, 0, stream, *x);
    return cudaGetLastError();
}

cudaError_t index_fill(const struct partition *x, const struct batch *in,
                       const struct before *before, uint32_t *zeros, int64_t num_zeros,
                       cudaStream_t stream) {
    if (x->entries.count == 0) return cudaSuccess;
    return x->wide ? fill<struct wide_entry>(x, in, before, zeros, num_zeros, stream)
                   : fill<struct narrow_entry>(x, in, before, zeros, num_zeros, stream);
}
