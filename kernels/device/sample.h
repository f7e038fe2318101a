/* SPDX-License-Identifier: MIT
 *
 * How many buckets partition.cuh distributes lookups to, and which lookups it looks at to place their borders.
 */
#pragma once

#include "kernels/shape.h"

enum {
    BUCKETS_MOST = 1024,
    BUCKET_BYTES = 32768, /* of entries that a block sorts in shared memory */
    SAMPLES_MOST = 4096,
    SAMPLES_OF_BUCKET =
        8, /* with eight, about one bucket in a thousand has more than 8/3 of the mean */
};

struct sampling {
    int buckets;
    int samples; /* 0: one bucket needs none */
};

/* Of a batch with so many lookups, `entries` of which become entries of entry_bytes each. */
static inline struct sampling sampling_of(int64_t lookups, int64_t entries, int64_t entry_bytes) {
    const int64_t most = BUCKET_BYTES / entry_bytes, mean = most * 3 / 8;
    if (entries <= most) return (struct sampling){1, 0};
    return (struct sampling){(int)min64((entries + mean - 1) / mean, BUCKETS_MOST),
                             (int)min64(SAMPLES_OF_BUCKET * lookups / mean, SAMPLES_MOST)};
}

/* The lookup of a sample: one in each of `samples` equal parts of the batch, wherever in it. */
HOST_DEVICE int64_t sampled_lookup(int64_t lookups, int samples, int number) {
    const int64_t from = lookups * number / samples, to = lookups * (number + 1) / samples;
    return from + (int64_t)(rng_u32(0x5a3b1e5u, (uint32_t)number) % (uint32_t)(to - from));
}
