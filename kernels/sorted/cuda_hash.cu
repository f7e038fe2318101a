/* SPDX-License-Identifier: MIT
 *
 * Hash-then-reduce: a hash table counts the lookups of each row. Every row gets that many
 * consecutive entries, and lookups are placed there. The rest is as after a sort: runs are summed
 * into a compact gradient, and a separate kernel applies the optimizer.
 *
 * Who owns what: a thread per lookup inserts and places it; lanes of a warp with the same row
 * insert the row once. A block assigns entries to a range of slots. Then runs.cuh and compact.cuh.
 * Scratch per lookup: 2 to 4 slots of 12 bytes, 24 bytes of entries and their places, and the
 * compact gradient. Traffic: two random accesses to the table, for any number of rows.
 * Not deterministic: the order of a row's entries is the order in which threads arrive.
 * Measured on an H200 (docs/cuda.md): within 10 % of cuda_sort.
 * Source: the hash-based deduplication of HierarchicalKV and dynamicemb; for equal rows of a warp,
 * warp-aggregated atomics (Adinetz 2014).
 */
#include "kernels/device/classes.cuh"
#include "kernels/device/runs.cuh"
#include "kernels/device/scan.cuh"

enum { SLOT_BLOCK = SCAN_BLOCK };

/* Open addressing, linear probing; a slot that is all ones is empty. */
struct slots {
    uint32_t *key;          /* [count] */
    uint32_t *hits, *begin; /* [count] lookups of the row, and its first entry */
    uint64_t count;         /* a power of two */
};

struct layout {
    struct slots slots;
    struct runs runs;
    struct counters counters;
    float *scale;
    uint32_t *slot, *place; /* [lookups] slot, and place among the lookups of its row */
    void *value;            /* [lookups] in the order of the lookups */
    uint32_t *key;          /* [touchable] unique keys */
    uint32_t *begin;        /* [touchable] */
    struct totals *totals;
};

/* Counters of insert() and hand_out(). */
struct totals {
    unsigned long long both; /* low half: runs; high half: their entries */
    uint32_t padding;        /* lookups of padding: their entries are at the end */
    uint32_t runs;
};

static size_t lay_out(struct layout *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    int64_t rows = touchable_rows(in), stride = row_stride(in);
    runs_lay_out(&p->runs, &s, in, in->lookups, widest(in));
    p->counters = counters_take(&p->runs, 1, &s);
    p->scale = mean_scales_take(&s, in);
    struct entries e = entries_of(in);
    e.key = (uint32_t *)scratch_take(&s, in->lookups, sizeof *e.key);
    e.value = scratch_take(&s, in->lookups, value_bytes(&e));
    p->runs.entries = e;
    p->slots.count = UINT64_C(1) << bits_for(2 * in->lookups + 1);
    p->slots.key = (uint32_t *)scratch_take(&s, (int64_t)p->slots.count, sizeof(uint32_t));
    p->slots.hits = (uint32_t *)scratch_take(&s, (int64_t)p->slots.count, sizeof(uint32_t));
    p->slots.begin = (uint32_t *)scratch_take(&s, (int64_t)p->slots.count, sizeof(uint32_t));
    p->slot = (uint32_t *)scratch_take(&s, in->lookups, sizeof(uint32_t));
    p->place = (uint32_t *)scratch_take(&s, in->lookups, sizeof(uint32_t));
    p->value = scratch_take(&s, in->lookups, value_bytes(&e));
    p->key = (uint32_t *)scratch_take(&s, rows, sizeof *p->key);
    p->begin = (uint32_t *)scratch_take(&s, rows, sizeof *p->begin);
    p->totals = (struct totals *)scratch_take(&s, 1, sizeof *p->totals);
    float *grad = (float *)scratch_take(&s, rows * stride, sizeof *grad);
    p->runs.compact = {p->key, p->begin, base ? &p->totals->runs : NULL, grad, stride};
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct layout p;
    return lay_out(&p, shape, NULL);
}

/* The slot of a key; inserts a new key. */
static __device__ inline uint64_t find_slot(const struct slots &s, uint32_t key) {
    uint64_t at = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 20;
    for (;; at++) {
        at &= s.count - 1;
        const uint32_t found = atomicCAS(s.key + at, ~0u, key);
        if (found == ~0u || found == key) return at;
    }
}

/* A thread per lookup. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    insert(const struct batch in, const struct entries e, const float *scale, const struct slots s,
           uint32_t *slot, uint32_t *place, void *value, uint32_t *padding) {
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x, last = in.lookups - 1;
    struct entry made = entry_of(in, e, lookup_of_thread(in, scale, i));
    bool counts = i <= last && made.key != e.padding;
    uint32_t key = counts ? made.key : ~0u;
    unsigned same = __match_any_sync(0xffffffffu, key);
    int leader = __ffs((int)same) - 1, lane = (int)threadIdx.x % WARP;
    uint32_t at = 0, first = 0;
    if (lane == leader && counts) {
        at = (uint32_t)find_slot(s, key);
        first = atomicAdd(&s.hits[at], (unsigned)__popc(same));
    }
    at = __shfl_sync(same, at, leader);
    first = __shfl_sync(same, first, leader);
    if (i > last) return;
    slot[i] = at;
    place[i] = counts ? first + (unsigned)__popc(same & ((1u << lane) - 1u))
                      : (uint32_t)last - atomicAdd(padding, 1u);
    struct entries unplaced = e;
    unplaced.value = value;
    value_put(unplaced, i, made.value);
    if (!counts) slot[i] = UINT32_MAX;
}

/* A thread per slot. One atomic add per block reserves both run numbers and entries, so that run
 * numbers have the order of the entries. */
static __global__ void __launch_bounds__(SLOT_BLOCK)
    hand_out(const struct slots s, uint32_t *key, uint32_t *begin, struct totals *totals) {
    SHARED(unsigned long long, base, 1);
    uint64_t at = (uint64_t)blockIdx.x * SLOT_BLOCK + threadIdx.x;
    uint32_t hits = at < s.count ? s.hits[at] : 0;
    unsigned long long all, mine = hits ? (unsigned long long)hits << 32 | 1 : 0,
                            before = block_before(mine, &all);
    if (threadIdx.x == 0) base[0] = atomicAdd(&totals->both, all);
    __syncthreads();
    if (!hits) return;
    before += base[0];
    uint32_t run = (uint32_t)before;
    begin[run] = s.begin[at] = (uint32_t)(before >> 32);
    key[run] = s.key[at];
}

/* A thread per lookup. */
static __global__ void __launch_bounds__(LOOKUP_BLOCK)
    place_entries(const struct entries e, const struct slots s, const uint32_t *slot,
                  const uint32_t *place, const void *value, struct totals *totals) {
    int64_t i = (int64_t)blockIdx.x * LOOKUP_BLOCK + threadIdx.x;
    if (i == 0) totals->runs = (uint32_t)totals->both;
    if (i >= e.count) return;
    struct entries unplaced = e;
    unplaced.value = (void *)value;
    bool counts = slot[i] != UINT32_MAX;
    int64_t to = counts ? (int64_t)s.begin[slot[i]] + place[i] : place[i];
    entry_put(e, to, counts ? s.key[slot[i]] : e.padding, entry_value(unplaced, i));
}

static cudaError_t enqueue_index(struct layout *p, const struct batch *in, cudaStream_t stream) {
    struct entries e = p->runs.entries;
    struct slots s = p->slots;
    unsigned blocks = blocks_for(in->lookups, LOOKUP_BLOCK);
    mean_scales_fill(in, p->scale, stream);
    cudaError_t status = cudaMemsetAsync(s.key, 0xff, s.count * sizeof *s.key, stream);
    if (status == cudaSuccess)
        status = cudaMemsetAsync(s.hits, 0, s.count * sizeof *s.hits, stream);
    if (status == cudaSuccess) status = cudaMemsetAsync(p->totals, 0, sizeof *p->totals, stream);
    if (status == cudaSuccess) status = counters_zero(&p->counters, stream);
    if (status != cudaSuccess) return status;
    LAUNCH(insert, blocks, LOOKUP_BLOCK, 0, stream, *in, e, p->scale, s, p->slot, p->place,
           p->value, &p->totals->padding);
    LAUNCH(hand_out, blocks_for((int64_t)s.count, SLOT_BLOCK), SLOT_BLOCK, 0, stream, s, p->key,
           p->begin, p->totals);
    LAUNCH(place_entries, blocks, LOOKUP_BLOCK, 0, stream, e, s, p->slot, p->place, p->value,
           p->totals);
    return cudaGetLastError();
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct layout p;
    lay_out(&p, in, how->scratch);
    cudaError_t status = in->lookups ? enqueue_index(&p, in, stream) : cudaSuccess;
    stage_done(how, STAGE_INDEX);
    p.runs.target = target_of(in, steps, io);
    if (status == cudaSuccess) status = runs_reduce(&p.runs, stream);
    stage_done(how, STAGE_REDUCE);
    const struct row_list rows =
        compact_list(&p.runs.compact, p.runs.entries.padding, p.runs.target);
    if (status == cudaSuccess && in->lookups)
        status = rows_update(&rows, touchable_rows(in), in, stream);
    stage_done(how, STAGE_UPDATE);
    return status;
}

DEFINE_KERNEL(cuda_hash) = {
    .name = "cuda_hash",
    .label = "CUDA hash-then-reduce",
    .idea = "Group lookups by a hash table of rows, sum into a compact gradient, update.",
    .place = ON_DEVICE,
    .traits = 0,
    .accepts = entries_refuse,
    .variant = rows_variant,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
