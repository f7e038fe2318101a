/* SPDX-License-Identifier: MIT
 *
 * The radix sort of device kernels by itself, against a sort on the host: tiles that are full, almost full or begun;
 * groups of tiles; numbers of bits; equal keys, which must stay in order. And a batch with more lookups than threads
 * write entries. All count as tests of cuda_fused.
 */
#include <stdlib.h>
#include <string.h>

#include "emulation/emulation.h"
#include "harness/device/device.h"
#include "kernels/device/onesweep.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

/* A build without device kernels has none of it. */
#pragma weak onesweep_clear
#pragma weak onesweep_sort

/* --- keys: of entry i, to be cut to so many bits */

static uint32_t drawn(int64_t i) {
    return (uint32_t)rng_u64(1, (uint64_t)i);
}

static uint32_t skewed(int64_t i) {
    return rng_u64(2, (uint64_t)i) % 3 ? 0 : drawn(i);
}

static uint32_t descending(int64_t i) {
    return ~(uint32_t)i;
}

static uint32_t ascending(int64_t i) {
    return (uint32_t)i;
}

static uint32_t all_zero(int64_t i) {
    return (void)i, 0;
}

static uint32_t all_ones(int64_t i) {
    return (void)i, UINT32_MAX;
}

struct sort_case {
    const char *name;
    uint32_t (*key)(int64_t i);
    int bits[10];
};

static const struct sort_case cases[] = {
    {"sort of drawn keys", drawn, {0, 1, 7, 8, 9, 16, 17, 24, 31, 32}},
    {"sort of skewed keys", skewed, {24, 32}},
    {"sort of descending keys", descending, {8, 24, 32}},
    {"sort of ascending keys", ascending, {24}},
    {"sort of equal keys", all_zero, {1, 24}},
    {"sort of equal keys of ones", all_ones, {9, 32}},
};
enum { CASES = sizeof cases / sizeof *cases, BITS = sizeof cases->bits / sizeof *cases->bits };

/* --- one sort */

struct sorting {
    struct onesweep sort;
    struct sort_buffers b;
    struct device_buffer key[2], value[2], zero;
    struct error err;
};

/* Fails the test with the text of the error unless status is 0. */
static void must(const struct sorting *s, int status) {
    if (status) fail_msg("%s", s->err.text);
}

static size_t value_bytes(const struct sorting *s) {
    return s->b.wide_values ? sizeof(uint64_t) : sizeof(uint32_t);
}

/* The value of entry i: nothing may be lost of it. */
static uint64_t value_of(const struct sorting *s, int64_t i) {
    const uint64_t value = (uint64_t)i ^ UINT64_C(0xabcdef0198765432);
    return s->b.wide_values ? value : (uint32_t)value;
}

static void allocate(struct sorting *s) {
    const size_t count = (size_t)s->sort.count;
    for (int k = 0; k < 2; k++) {
        must(s, device_alloc(&s->key[k], count * sizeof(uint32_t), "keys", &s->err));
        must(s, device_alloc(&s->value[k], count * value_bytes(s), "values", &s->err));
        s->b.key[k] = s->key[k].data;
        s->b.value[k] = s->value[k].data;
    }
    const size_t words = (size_t)onesweep_words(&s->sort);
    must(s, device_alloc(&s->zero, words * sizeof(uint32_t), "words", &s->err));
    must(s, device_set(&s->zero, 0xff, &s->err));
    s->sort.zero = s->zero.data;
}

static void release(struct sorting *s) {
    bool intact = device_intact(&s->zero);
    for (int k = 0; k < 2; k++) {
        intact &= device_intact(&s->key[k]) && device_intact(&s->value[k]);
        device_free(&s->key[k]);
        device_free(&s->value[k]);
    }
    device_free(&s->zero);
    if (!intact) fail_msg("wrote outside of its buffers");
}

/* Puts keys, values and the counts of digits there, as write_entries() does. */
static void put(struct sorting *s, const uint32_t *key) {
    const int64_t count = s->sort.count;
    uint32_t counts[PASSES_MOST * DIGITS] = {0};
    char *values = malloc((size_t)count * value_bytes(s) + 1);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t value = value_of(s, i);
        memcpy(values + (size_t)i * value_bytes(s), &value, value_bytes(s));
        for (int p = 0; p < s->sort.passes; p++)
            counts[(uint32_t)p * DIGITS + (key[i] >> p * DIGIT_BITS) % DIGITS]++;
    }
    must(s, device_put(s->b.key[s->b.now], key, s->key->bytes, &s->err));
    must(s, device_put(s->b.value[s->b.now], values, s->value->bytes, &s->err));
    assert_int_equal(onesweep_clear(&s->sort, device_stream()), 0);
    if (count > 0 && s->sort.passes > 0)
        must(s, device_put(onesweep_counts(&s->sort), counts,
                           (size_t)s->sort.passes * DIGITS * sizeof *counts, &s->err));
    free(values);
}

struct numbered {
    uint32_t key;
    int64_t number;
};

static int by_key(const void *left, const void *right) {
    const struct numbered *x = left, *y = right;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

/* Fails unless the current buffers are what a stable sort makes of the keys. */
static void judge(struct sorting *s, const uint32_t *key) {
    const size_t count = (size_t)s->sort.count;
    struct numbered *right = malloc(count * sizeof *right + 1);
    uint32_t *keys = malloc(s->key->bytes + 1);
    char *values = malloc(s->value->bytes + 1);
    for (size_t i = 0; i < count; i++) right[i] = (struct numbered){key[i], (int64_t)i};
    qsort(right, count, sizeof *right, by_key);
    must(s, device_get(keys, s->b.key[s->b.now], s->key->bytes, &s->err));
    must(s, device_get(values, s->b.value[s->b.now], s->value->bytes, &s->err));
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = value_of(s, right[i].number);
        if (keys[i] != right[i].key || memcmp(values + i * value_bytes(s), &value, value_bytes(s)))
            fail_msg("%zu entries, %d passes, tiles of %d entries, values of %zu bytes: entry %zu "
                     "has key %u, not %u, or another value than entry %lld",
                     count, s->sort.passes, s->sort.items * SORT_BLOCK, value_bytes(s), i, keys[i],
                     right[i].key, (long long)right[i].number);
    }
    free(right);
    free(keys);
    free(values);
}

static void sort(const struct sort_case *c, int bits, int64_t count, int items, bool wide) {
    static int turn;
    struct sorting s = {.sort = onesweep_of(count, bits, wide)};
    if (items) s.sort.items = items;
    s.b.wide_values = wide;
    s.b.now = turn % 2;
    if (device_facts().emulated) emulation_schedule(turn % 3, (uint64_t)turn);
    turn++;
    uint32_t *key = malloc((size_t)count * sizeof *key + 1);
    for (int64_t i = 0; i < count; i++)
        key[i] = bits == 0 ? 0 : c->key(i) & UINT32_MAX >> (32 - bits);
    allocate(&s);
    put(&s, key);
    const int now = s.b.now;
    assert_int_equal(onesweep_sort(&s.sort, &s.b, device_stream()), 0);
    assert_int_equal(s.b.now, count > 0 ? (now + s.sort.passes) % 2 : now);
    judge(&s, key);
    free(key);
    release(&s);
}

static void open_device(void) {
    struct error err;
    if (device_open(&err)) fail_msg("%s", err.text);
}

/* All numbers of bits on all kinds of tiles, in every order of an emulated device. */
static void tiles(void **state) {
    const struct sort_case *c = ((const struct kernel_test *)*state)->param;
    static const int items[] = {4, 8, 16};
    open_device();
    for (int n = 0; n < 3; n++) {
        const int64_t tile = items[n] * SORT_BLOCK;
        const int64_t counts[] = {0, 1, 33, tile - 1, tile, tile + 1, 2 * tile + 100};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            for (int i = 0; i < BITS && (i == 0 || c->bits[i]); i++)
                for (int wide = 0; wide < 1 + (items[n] < 16); wide++) {
                    if (WITH_SANITIZER && (n + (int)k + i + wide) % 4) continue;
                    sort(c, c->bits[i], counts[k], items[n], wide);
                }
    }
}

/* Groups that are full, and one that is not: words of tiles and of groups are more than are fetched at once. */
static void groups(void **state) {
    const struct sort_case *c = ((const struct kernel_test *)*state)->param;
    const int64_t tile = 4 * SORT_BLOCK, group = TILE_GROUP * tile;
    open_device();
    if (WITH_THREAD_SANITIZER) {
        sort(c, 8, 2 * group + 1, 4, false);
        return;
    }
    for (int order = 0; order < 3; order++) { /* of a device, by turns */
        sort(c, 8, group, 4, false);
        sort(c, 8, group + 1, 4, true);
        sort(c, 8, 2 * group - 1, 4, false);
        sort(c, 16, 2 * group + tile + 7, 4, false);
    }
    sort(c, 8, 11 * group + 3 * tile, 4, false);
}

/* Sizes for which the sort chooses its tiles, on a real device. */
static void large(void **state) {
    const struct sort_case *c = ((const struct kernel_test *)*state)->param;
    static const int64_t counts[] = {100000, 1000003, 7000001};
    open_device();
    if (device_facts().emulated) skip();
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int wide = 0; wide < 2; wide++)
            sort(c, c->bits[0] ? c->bits[0] : 24, counts[k], 0, wide);
}

/* A tile that fits the batch, and words that fit the tiles. */
static void chooses(void **state) {
    (void)state;
    static const struct {
        int64_t count;
        bool wide;
        int items;
    } by_hand[] = {{1, false, 4},       {528 * 1024, true, 4},     {528 * 1024 + 1, false, 8},
                   {1 << 20, false, 8}, {528 * 8192, false, 8},    {528 * 8192 + 1, false, 16},
                   {1 << 29, true, 8},  {ONESWEEP_MOST, false, 16}};
    for (size_t k = 0; k < sizeof by_hand / sizeof *by_hand; k++) {
        const struct onesweep x = onesweep_of(by_hand[k].count, 24, by_hand[k].wide);
        assert_int_equal(x.items, by_hand[k].items);
        assert_int_equal(x.passes, 3);
        const int64_t tiles = onesweep_tiles(&x);
        assert_true(tiles * x.items * SORT_BLOCK >= x.count);
        assert_true((tiles - 1) * x.items * SORT_BLOCK < x.count);
        assert_int_equal(onesweep_words(&x), 256 + 3 * 256 * (1 + tiles + tiles / 16));
    }
    assert_int_equal(onesweep_of(1, 0, false).passes, 0);
    assert_int_equal(onesweep_of(1, 1, false).passes, 1);
    assert_int_equal(onesweep_of(1, 8, false).passes, 1);
    assert_int_equal(onesweep_of(1, 9, false).passes, 2);
    assert_int_equal(onesweep_of(1, 32, false).passes, 4);
}

/* Each thread writes two entries in turn: of bags, of a sequence, and none of a small table. */
static void turns(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    enum {
        THREADS = BLOCKS_ENOUGH * 256,
        LOOKUPS = 2 * THREADS + 1000,
        ROWS = 70000,
        FEATURES = 3
    };
    static const int64_t per_bag[FEATURES] = {7, 1, 40};
    if (WITH_SANITIZER) skip();
    struct builder b;
    builder_begin(&b, 5, false);
    b.gap = 0;
    const int32_t table = builder_table(&b, ROWS, 2), small = builder_table(&b, 10, 2);
    for (int f = 0; f < FEATURES; f++) {
        const int64_t rows = f == 2 ? 10 : ROWS, lookups = LOOKUPS / FEATURES / per_bag[f];
        builder_feature(&b, f == 2 ? small : table, f == 1 ? POOL_NONE : POOL_SUM, 3);
        for (int64_t q = 0; q < lookups; q++) {
            int64_t ids[40];
            for (int64_t i = 0; i < per_bag[f]; i++)
                ids[i] = drawn(q * per_bag[f] + i) % (drawn(q) % 2 ? rows : 5);
            builder_bag(&b, q % 3 ? per_bag[f] : per_bag[f] / 2, ids);
        }
    }
    builder_finish(&b);
    assert_true(b.in.lookups > THREADS);
    const char *wrong = builder_check(&b, k, builder_way[0]);
    if (wrong) fail_msg("%s", wrong);
    builder_free(&b);
}

TESTS(onesweep) {
    const struct kernel *k = registry_find(OP_STEP, "cuda_fused", &(struct error){""});
    if (k) {
        for (int c = 0; c < CASES; c++) add_test(cases[c].name, tiles, k, &cases[c]);
        add_test("sort of groups of tiles", groups, k, &cases[0]);
        add_test("sort of groups of tiles, equal keys", groups, k, &cases[5]);
        add_test("sort of large batches", large, k, &cases[1]);
        add_test("sort of large batches, equal keys", large, k, &cases[4]);
        add_test("threads that write several entries", turns, k, NULL);
        add_test("sort of drawn keys chooses its tiles", chooses, k, NULL);
    }
    return run_listed("onesweep");
}
