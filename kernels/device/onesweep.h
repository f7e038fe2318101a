/* SPDX-License-Identifier: MIT
 *
 * A stable radix sort of 32-bit keys with 32- or 64-bit values: one memset, then a launch for each digit of 8 bits,
 * from the lowest on. Whoever writes the entries counts the digits of all passes, so nothing reads keys only to
 * count them, and each block adds up the 256 counts of its digit itself.
 *
 * Who owns what: a block takes a tile of 1024 to 4096 entries, each warp of it consecutive ones, and a thread one of
 * the 256 digits. Tiles are numbered by a counter, so a block waits only for blocks that run already or have ended.
 *
 *   rank     a warp finds lanes with equal digits by ballots, and counts what came before, for each digit
 *   publish  the tile's count of each digit, in a word that also says that it is there
 *   stage    entries go to shared memory, in the order of their digits
 *   wait     for the words of all tiles before this one
 *   put      neighbours in shared memory are neighbours in the result, as long as they have one digit
 *
 * A batch of a million entries is 500 tiles, and all their blocks run at once. If each read one word after the other,
 * from the tile before it on, the last one would wait for hundreds of loads in a row, since no tile knows its sum
 * before the others do. So tiles come in groups of 16. A tile adds up the words of its own group and those of the
 * groups before, eight loads at a time: at most 15 and 31 words of 500 tiles, in six rounds. The last tile of a group
 * publishes the count of the group, and then that of all groups so far, where the walk of later tiles ends.
 *
 * Traffic for an entry and pass: 16 bytes (24 with 64-bit values). Words are cleared, written and read, 3 KiB for a
 * tile and a sixteenth of that for groups: 1.6 bytes for an entry at 2048 in a tile, which stay in L2. Scratch: 0.53.
 * Counted on nvcc's PTX with the kernel that writes them, 10,480 entries, tiles of 1024: 71.3 bytes of distinct sectors
 * for each lookup at 18 bits, 89.7 at 26; CUB's sort 70.0 and 86.7 (without memsets). Counted, not timed.
 *
 * | sm_90 | registers | shared memory, KiB | blocks of an SM | warp instructions for an entry and pass |
 * | 1024 entries, 32-bit values | 40 | 14.1 | 6 | 5.4 |
 * | 2048 | 48 | 22.1 | 5 | 4.2 |
 * | 4096 | 73 | 38.1 | 3 | 3.9 |
 * | 1024, 64-bit values | 48 | 18.1 | 5 | |
 * | 2048 | 62 | 30.1 | 4 | |
 *
 * The last column is counted by an interpreter of the machine code on whole passes, whose result was right. No
 * architecture spills.
 * Deterministic: where an entry goes depends only on the keys.
 * Source: Adinets and Merrill 2022, Onesweep (arXiv:2206.01784). The groups of tiles are not in it.
 */
#pragma once

#include "kernels/scratch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Two buffers each of keys and values; the current content is in [now]. */
struct sort_buffers {
    uint32_t *key[2];
    void *value[2];
    bool wide_values; /* 64-bit, otherwise 32-bit */
    int now;
};

enum {
    DIGIT_BITS = 8,
    DIGITS = 1 << DIGIT_BITS,
    PASSES_MOST = 32 / DIGIT_BITS,
    SORT_BLOCK = DIGITS, /* a thread has a digit */
    TILE_GROUP = 16,
    /* Blocks that fill a device of 132 multiprocessors. */
    BLOCKS_ENOUGH = 4 * 132,
    ONESWEEP_MOST = (1 << 30) - 1, /* entries: a word has 30 bits for a count */
};

struct onesweep {
    int64_t count;  /* entries, up to ONESWEEP_MOST */
    int passes;     /* 0: there is nothing to sort */
    int items;      /* of a thread: 4, 8 or, with 32-bit values, 16 */
    uint32_t *zero; /* words that onesweep_clear() sets to 0 */
};

HOST_DEVICE int64_t onesweep_tiles(const struct onesweep *x) {
    const int64_t tile = (int64_t)x->items * SORT_BLOCK;
    return (x->count + tile - 1) / tile;
}

/* Words of `zero`, in rows of DIGITS: the counters of tiles, a row of counts for each pass, then for each pass a row
 * for each tile and each whole group. */
HOST_DEVICE int64_t onesweep_words(const struct onesweep *x) {
    const int64_t tiles = onesweep_tiles(x), groups = tiles / TILE_GROUP;
    return DIGITS * (1 + x->passes * (1 + tiles + groups));
}

/* [passes][DIGITS] how many keys have that digit, to be counted by the caller. */
HOST_DEVICE uint32_t *onesweep_counts(const struct onesweep *x) {
    return x->zero + DIGITS;
}

/* Keys are less than 2^bits. Small batches get small tiles, so that their blocks fill a device, too. */
static inline struct onesweep onesweep_of(int64_t count, int bits, bool wide_values) {
    struct onesweep x = {count, (bits + DIGIT_BITS - 1) / DIGIT_BITS, 4, NULL};
    const int64_t full = (int64_t)BLOCKS_ENOUGH * SORT_BLOCK;
    if (count > full * 4) x.items = 8;
    if (count > full * 32 && !wide_values) x.items = 16;
    return x;
}

static inline void onesweep_lay_out(struct onesweep *x, struct scratch *s) {
    x->zero = (uint32_t *)scratch_take(s, onesweep_words(x), sizeof *x->zero);
}

/* Both enqueue on a stream and return a cudaError_t. Call onesweep_clear() before the digits are counted.
 * onesweep_sort() sorts the current buffers; after an odd number of passes the result is in the other buffers, and it
 * flips b->now. */
int onesweep_clear(const struct onesweep *x, void *stream);
int onesweep_sort(const struct onesweep *x, struct sort_buffers *b, void *stream);

#ifdef __cplusplus
}
#endif
