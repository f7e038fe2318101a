/* SPDX-License-Identifier: MIT */
#include "kernels/device/lanes.cuh"
#include "kernels/device/onesweep.h"

constexpr int SORT_WARPS = (int)SORT_BLOCK / (int)WARP, WORDS_AHEAD = 8;

/* A word of a tile or group: 0 before it is there. */
enum : uint32_t {
    ITS_OWN = 1u << 30,  /* the count of a digit in it */
    WITH_ALL = 2u << 30, /* and in all before it */
    COUNT = ITS_OWN - 1
};

/* What a launch needs: pointers are to this pass's part. */
struct pass {
    const uint32_t *key;
    const void *value;
    uint32_t *to_key;
    void *to_value;
    int count, shift;
    const uint32_t *counts; /* [DIGITS] */
    uint32_t *started;      /* tiles */
    uint32_t *tile, *group; /* [][DIGITS] words */
};

static __device__ inline unsigned digit_of(uint32_t key, int shift) {
    return key >> shift & (DIGITS - 1);
}

/* The lanes of the warp whose `set` is 0 if this lane's is, and not 0 otherwise. nvcc would make twice as many
 * instructions of the last lines: it moves a bit before it tests it. */
static __device__ inline unsigned lanes_alike(unsigned set) {
#ifdef __CUDA_ARCH__
    unsigned lanes;
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "setp.ne.u32 p, %1, 0;\n"
                 "vote.sync.ballot.b32 %0, p, 0xffffffff;\n"
                 "@!p not.b32 %0, %0;\n"
                 "}"
                 : "=r"(lanes)
                 : "r"(set));
    return lanes;
#else
    const unsigned lanes = __ballot_sync(ALL_LANES, set != 0);
    return set ? lanes : ~lanes;
#endif
}

/* The lanes of the warp that have the same digit. */
static __device__ inline unsigned lanes_with(unsigned digit) {
    unsigned lanes = ALL_LANES;
#pragma unroll
    for (int bit = 0; bit < DIGIT_BITS; bit++) lanes &= lanes_alike(digit & 1u << bit);
    return lanes;
}

/* The sums of both over the threads before this one. The block calls this. */
static __device__ inline uint2 threads_before(uint2 x) {
    SHARED(uint2, sums, SORT_WARPS);
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint2 sum = x;
#pragma unroll
    for (unsigned step = 1; step < WARP; step *= 2) {
        const unsigned other_x = __shfl_up_sync(ALL_LANES, sum.x, step),
                       other_y = __shfl_up_sync(ALL_LANES, sum.y, step);
        if (lane >= step) sum = {sum.x + other_x, sum.y + other_y};
    }
    if (lane == WARP - 1) sums[warp] = sum;
    __syncthreads();
#pragma unroll
    for (unsigned w = 0; w + 1 < SORT_WARPS; w++)
        if (w < warp) sum = {sum.x + sums[w].x, sum.y + sums[w].y};
    return {sum.x - x.x, sum.y - x.y};
}

/* Counts in mine[DIGITS] the items of this warp, and sets rank[r] to those before item r with its digit. left: items
 * from the warp's first one on. It skips turns that have none. */
template <int ITEMS>
static __device__ __forceinline__ void rank_items(const uint32_t *key, int shift, int left,
                                                  uint16_t *mine, uint32_t *rank) {
    const unsigned lanes_before = (1u << threadIdx.x % WARP) - 1u;
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        rank[r] = 0;
        if (r * WARP >= left) continue;
        const unsigned digit = digit_of(key[r], shift), same = lanes_with(digit),
                       before = same & lanes_before, earlier = mine[digit];
        __syncwarp();
        if (before == 0) mine[digit] = (uint16_t)(earlier + (unsigned)__popc(same));
        __syncwarp();
        rank[r] = earlier + (unsigned)__popc(before);
    }
}

/* Sums this thread's digit over `count` rows of words that end before row `end`, from the last one on, up to one that
 * includes all before it. Waits for each word. */
static __device__ inline uint32_t sum_back(const uint32_t *rows, unsigned end, unsigned count) {
    const uint32_t *at = rows + (int64_t)end * DIGITS + threadIdx.x;
    uint32_t sum = 0;
    while (count > 0) {
        uint32_t word[WORDS_AHEAD];
#pragma unroll
        for (unsigned k = 0; k < WORDS_AHEAD; k++)
            word[k] = k < count ? __ldcv(at - (k + 1) * DIGITS) : 0;
        unsigned taken = WORDS_AHEAD;
#pragma unroll
        for (unsigned k = 0; k < WORDS_AHEAD; k++) {
            if (word[k] < ITS_OWN) {
                taken = k;
                break;
            }
            sum += word[k] & COUNT;
            if (word[k] >= WITH_ALL) return sum;
        }
        at -= taken * DIGITS;
        count -= taken;
    }
    return sum;
}

/* How many items of all tiles before this one have this thread's digit. count: in this one. */
static __device__ inline uint32_t tiles_before(const struct pass &x, unsigned tile,
                                               uint32_t count) {
    const unsigned group = tile / TILE_GROUP, in_group = tile % TILE_GROUP;
    const bool last = in_group == TILE_GROUP - 1;
    uint32_t *word = x.group + (int64_t)group * DIGITS + threadIdx.x;
    const uint32_t near = sum_back(x.tile, tile, in_group);
    if (last) atomicAdd(word, ITS_OWN + near + count);
    const uint32_t far = sum_back(x.group, group, group);
    if (last) atomicAdd(word, WITH_ALL - ITS_OWN + far);
    return near + far;
}

/* Turns counts[SORT_WARPS][DIGITS] into the items with this thread's digit in earlier warps. Returns those of all. */
static __device__ inline uint32_t add_warps(uint16_t *counts) {
    uint32_t sum = 0;
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) {
        uint16_t *count = counts + w * DIGITS + (int)threadIdx.x;
        const uint32_t here = *count;
        *count = (uint16_t)sum;
        sum += here;
    }
    return sum;
}

/* Writes the tile's items, which lie in the order of their digits. move: from the places of a digit's items to those in
 * the result. */
template <int ITEMS, class Value>
static __device__ __forceinline__ void put_items(const struct pass &x, int count,
                                                 const uint32_t *keys, const Value *values,
                                                 const uint32_t *move) {
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const unsigned from = r * SORT_BLOCK + threadIdx.x;
        if ((int)from >= count) continue;
        const uint32_t key = keys[from], to = move[digit_of(key, x.shift)] + from;
        x.to_key[to] = key;
        ((Value *)x.to_value)[to] = values[from];
    }
}

/* Blocks that registers leave room for on a multiprocessor. */
constexpr int sort_blocks(size_t value_bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return value_bytes < 64 ? 4 : 3;
#else
    return value_bytes <= 16 ? 6 : value_bytes <= 32 ? 5 : value_bytes < 64 ? 4 : 3;
#endif
}

/* A block a tile. Items that are not there have the key ~0, and so are behind all others. Values come while the block
 * waits for earlier tiles. */
template <int ITEMS, class Value>
static __global__ void __launch_bounds__(SORT_BLOCK, sort_blocks(ITEMS * sizeof(Value)))
    sort_digit(const struct pass x) {
    constexpr int TILE = ITEMS * SORT_BLOCK;
    SHARED(unsigned, started, 1);
    SHARED(uint16_t, counts, SORT_WARPS * DIGITS);
    SHARED(uint32_t, first, DIGITS); /* place of a digit's items in the tile */
    SHARED(uint32_t, move, DIGITS);
    SHARED(uint32_t, keys, TILE);
    SHARED(Value, values, TILE);
    const unsigned me = threadIdx.x, warp = me / WARP;
    if (me == 0) started[0] = atomicAdd(x.started, 1u);
#pragma unroll
    for (int w = 0; w < SORT_WARPS; w++) counts[w * DIGITS + me] = 0;
    __syncthreads();
    const unsigned tile = started[0];
    const int begin = (int)tile * TILE, count = min(TILE, x.count - begin),
              part = (int)(warp * ITEMS * WARP), item = part + (int)(me % WARP),
              left = count - item;
    uint32_t key[ITEMS], at[ITEMS];
    Value value[ITEMS];
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        key[r] = r * WARP < left ? (x.key + begin + item)[r * WARP] : ~0u;
    const uint32_t everywhere = x.counts[me];
    uint16_t *mine = counts + warp * DIGITS;
    rank_items<ITEMS>(key, x.shift, count - part, mine, at);
    __syncthreads();
    const uint32_t here = add_warps(counts);
    atomicAdd(x.tile + (int64_t)tile * DIGITS + me, ITS_OWN + here);
    const uint2 before = threads_before({here, everywhere}); /* in the tile and in the result */
    first[me] = before.x;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < ITEMS; r++) {
        const unsigned digit = digit_of(key[r], x.shift);
        at[r] += first[digit] + mine[digit];
        if (r * WARP >= left) continue;
        keys[at[r]] = key[r];
        value[r] = ((const Value *)x.value + begin + item)[r * WARP];
    }
    move[me] = before.y - before.x + tiles_before(x, tile, here);
#pragma unroll
    for (int r = 0; r < ITEMS; r++)
        if (r * WARP < left) values[at[r]] = value[r];
    __syncthreads();
    put_items<ITEMS>(x, count, keys, values, move);
}

/* --- launches */

int onesweep_clear(const struct onesweep *x, void *stream) {
    if (x->count == 0 || x->passes == 0) return cudaSuccess;
    return cudaMemsetAsync(x->zero, 0, (size_t)onesweep_words(x) * sizeof *x->zero,
                           (cudaStream_t)stream);
}

template <class Value> static auto kernel_for(int items) {
    if constexpr (sizeof(Value) == sizeof(uint32_t))
        if (items == 16) return sort_digit<16, Value>;
    return items == 4 ? sort_digit<4, Value> : sort_digit<8, Value>;
}

int onesweep_sort(const struct onesweep *x, struct sort_buffers *b, void *stream) {
    const int64_t tiles = onesweep_tiles(x), groups = tiles / TILE_GROUP;
    const auto sort_by_digit =
        b->wide_values ? kernel_for<uint64_t>(x->items) : kernel_for<uint32_t>(x->items);
    uint32_t *counts = onesweep_counts(x), *rows = counts + x->passes * DIGITS;
    if (tiles == 0) return cudaSuccess;
    for (int p = 0; p < x->passes; p++, b->now = !b->now) {
        struct pass pass = {};
        pass.key = (const uint32_t *)b->key[b->now];
        pass.value = b->value[b->now];
        pass.to_key = (uint32_t *)b->key[!b->now];
        pass.to_value = b->value[!b->now];
        pass.count = (int)x->count;
        pass.shift = p * DIGIT_BITS;
        pass.counts = counts + p * DIGITS;
        pass.started = x->zero + p;
        pass.tile = rows;
        pass.group = rows + tiles * DIGITS;
        LAUNCH(sort_by_digit, (unsigned)tiles, SORT_BLOCK, 0, (cudaStream_t)stream, pass);
        rows = pass.group + groups * DIGITS;
    }
    return cudaGetLastError();
}
