/* SPDX-License-Identifier: MIT
 *
 * Groups the lookups of a bucket of partition.h by row, in the core's caches. Lookups of a row keep their order. A
 * sort gives rows in ascending order. A hash table gives them in the order of their first lookups. It takes less time
 * if rows come often, or if a sort takes more than two passes.
 */
#pragma once

#include "kernels/host/partition.h"

enum {
    DIGIT_BITS = 8,
    SMALL_SORT = 32,               /* largest number of entries for insertion sort */
    OWN_MOST = 8 * BUCKET_LOOKUPS, /* a larger bucket is sorted where it is; a power of two */
};

/* The entries of a bucket, grouped. */
struct runs {
    const uint64_t *entry;
    const uint32_t *begin; /* [count + 1] first entry of each run of equal rows */
    uint32_t count;
};

/* True if rows repeat so often that hash_bucket() is faster than a sort. Most buckets of a table are alike, so a bucket
 * decides for the next one. kernels/cpu/tried.md has the measured times. */
static inline bool rows_come_often(struct runs r) {
    return r.begin[r.count] >= 2 * r.count;
}

/* True if a hash table is faster than a sort for n entries whose rows differ in the lowest `bits` bits. A sort takes
 * more than two passes only where a small batch has few buckets in a large table. */
static inline bool hash_is_faster(uint32_t n, int bits, bool previous_had_duplicates) {
    return previous_had_duplicates || (n > SMALL_SORT && bits > 2 * DIGIT_BITS);
}

/* A thread groups all of its buckets in the same memory, so this stays in the core's caches. */
struct bucket_space {
    _Alignas(KERNEL_ALIGN) uint64_t entry[OWN_MOST];
    uint64_t other[OWN_MOST];
    uint32_t begin[OWN_MOST + 1];
    uint32_t slot[2 * OWN_MOST], row[OWN_MOST]; /* of struct numbers */
};

/* The part of each row that is prefetched while a bucket is grouped, since memory is idle then. */
struct row_prefetch {
    const struct array *weight; /* NULL: nothing */
    int64_t bytes;              /* from the begin of the row */
};

/* For a bucket of n lookups: as much of each row as prefetch_choice has room for. weight: the table that the caller
 * updates next, or NULL. */
static inline struct row_prefetch row_prefetch_of(const struct array *weight, uint32_t n) {
    const int64_t most = prefetch_choice.sort_bytes / n / LINE * LINE;
    if (!weight || most == 0) return (struct row_prefetch){0};
    return (struct row_prefetch){weight, min64(most, weight->stride)};
}

ALWAYS_INLINE void prefetch_next(struct row_prefetch next, uint64_t entry) {
    if (next.weight) prefetch(array_row(next.weight, entry_row(entry)), next.bytes, INTO_L2);
}

static void insertion_sort(uint64_t *e, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        uint64_t x = e[i];
        uint32_t k = i;
        for (; k > 0 && entry_row(e[k - 1]) > entry_row(x); k--) e[k] = e[k - 1];
        e[k] = x;
    }
}

/* A stable sort from `from` into the two buffers in turns, least significant digit first. One read of the entries
 * counts the digits of all passes. The first pass prefetches. Returns the result. */
ALWAYS_INLINE const uint64_t *radix_sort(struct row_prefetch next_rows, const uint64_t *from,
                                         uint64_t *const buffer[2], uint32_t n, int bits,
                                         const int passes) {
    const int digit = (bits + passes - 1) / passes;
    const uint32_t mask = (1u << digit) - 1;
    uint32_t next[32 / DIGIT_BITS][1 << DIGIT_BITS];
    for (int pass = 0; pass < passes; pass++) memset(next[pass], 0, sizeof *next[0] << digit);
    for (uint32_t i = 0; i < n; i++)
        for (int pass = 0; pass < passes; pass++)
            next[pass][from[i] >> (32 + pass * digit) & mask]++;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = 32 + pass * digit;
        uint64_t *const to = buffer[pass % 2];
        uint32_t sum = 0;
        for (uint32_t d = 0; d <= mask; d++) {
            uint32_t count = next[pass][d];
            next[pass][d] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++) {
            if (pass == 0) prefetch_next(next_rows, from[i]);
            to[next[pass][from[i] >> shift & mask]++] = from[i];
        }
        from = to;
    }
    return from;
}

/* Sorts the entries of a bucket by the lowest `bits` bits of the row; the higher bits are equal. Returns the result,
 * in a buffer or in e. */
static const uint64_t *sort_bucket(struct row_prefetch next_rows, uint64_t *e,
                                   uint64_t *const buffer[2], uint32_t n, int bits) {
    if (bits == 0 || n < 2) return e;
    if (n <= SMALL_SORT) {
        insertion_sort(e, n);
        return e;
    }
    switch ((bits + DIGIT_BITS - 1) / DIGIT_BITS) {
    case 1: return radix_sort(next_rows, e, buffer, n, bits, 1);
    case 2: return radix_sort(next_rows, e, buffer, n, bits, 2);
    case 3: return radix_sort(next_rows, e, buffer, n, bits, 3);
    default: return radix_sort(next_rows, e, buffer, n, bits, 4);
    }
}

/* Lists the first entry of each run of equal rows, without a branch. */
static struct runs list_runs(const uint64_t *e, uint32_t n, uint32_t *begin) {
    uint32_t count = 0;
    int64_t before = -1;
    for (uint32_t i = 0; i < n; i++) {
        begin[count] = i;
        count += entry_row(e[i]) != before;
        before = entry_row(e[i]);
    }
    begin[count] = n;
    return (struct runs){e, begin, count};
}

/* Groups the entries of a bucket by a hash table: numbers the rows and counts their lookups, then distributes the
 * entries. */
static struct runs hash_bucket(struct bucket_space *own, struct row_prefetch next_rows,
                               const uint64_t *e, uint32_t n) {
    struct numbers x = numbers_for(n, own->slot, own->row);
    uint32_t *const number = (uint32_t *)own->other, *const next = own->begin + 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t new = x.rows, k = number_of(&x, (uint32_t)entry_row(e[i]));
        if (k == new) {
            next[k] = 0;
            prefetch_next(next_rows, e[i]);
        }
        next[k]++;
        number[i] = k;
    }
    uint32_t sum = 0;
    for (uint32_t k = 0; k < x.rows; k++) {
        const uint32_t count = next[k];
        next[k] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++) own->entry[next[number[i]]++] = e[i];
    own->begin[0] = 0; /* next[k] is the end of run k, and so the begin of run k + 1 */
    return (struct runs){own->entry, own->begin, x.rows};
}

/* Groups a bucket of n > 0 entries whose rows differ in the lowest `bits` bits: by a hash table if `hash` is set and
 * the thread's memory has room, otherwise by a sort. spare[n] belongs to the bucket. The runs of a bucket of more than
 * OWN_MOST entries lie in e and spare, all others in e and the thread's memory. */
static inline struct runs group_bucket(struct bucket_space *own, struct row_prefetch next_rows,
                                       uint64_t *e, uint64_t *spare, uint32_t n, int bits,
                                       bool hash) {
    if (n > OWN_MOST) {
        const uint64_t *sorted = sort_bucket(next_rows, e, (uint64_t *[]){spare, e}, n, bits);
        if (sorted != e) memcpy(e, sorted, n * sizeof *e);
        return list_runs(e, n, (uint32_t *)spare);
    }
    if (hash) return hash_bucket(own, next_rows, e, n);
    return list_runs(sort_bucket(next_rows, e, (uint64_t *[]){own->entry, own->other}, n, bits), n,
                     own->begin);
}
