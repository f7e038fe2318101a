/* SPDX-License-Identifier: MIT
 *
 * The permutation is a bijection for every small size and some large ones, and depends on its key.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "harness/workload/permute.h"

#include "tests/support/cmocka_cases.h"

static void assert_bijective(uint64_t key, int64_t n) {
    struct permute p = permute_make(key, n);
    unsigned char *hit = calloc((size_t)n, 1);
    assert_non_null(hit);
    for (int64_t x = 0; x < n; x++) {
        int64_t y = permute_at(&p, x);
        assert_in_range(y, 0, n - 1);
        assert_int_equal(hit[y], 0);
        hit[y] = 1;
    }
    free(hit);
}

static void small_sizes(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 300; n++)
        for (uint64_t key = 0; key < 5; key++) assert_bijective(key, n);
}

static void larger_sizes(void **state) {
    static const int64_t sizes[] = {1023, 1024, 1025, 4097, 65536, 65537, 99991, 300007};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) assert_bijective(77 + i, sizes[i]);
}

/* Too many values to mark: images are in range, and neighbours have different images. */
static void huge_sizes(void **state) {
    static const int64_t sizes[] = {(int64_t)1 << 32, ((int64_t)1 << 32) + 1, 1000000000000,
                                    (int64_t)1 << 62};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct permute p = permute_make(i, sizes[i]);
        for (int64_t x = 0; x < 1000; x++) {
            assert_in_range(permute_at(&p, x), 0, sizes[i] - 1);
            assert_int_not_equal(permute_at(&p, x), permute_at(&p, x + 1));
        }
    }
}

static void key_changes_order(void **state) {
    enum { N = 1000 };
    struct permute a = permute_make(1, N), b = permute_make(2, N);
    int same = 0, fixed = 0;
    (void)state;
    for (int64_t x = 0; x < N; x++) {
        same += permute_at(&a, x) == permute_at(&b, x);
        fixed += permute_at(&a, x) == x;
    }
    assert_true(same < 10); /* two random orders share about one */
    assert_true(fixed < 10);
}

/* Popular ranks must not stay neighbours: of 100 in a million rows, few are within 64 rows. */
static void scatters_neighbours(void **state) {
    struct permute p = permute_make(9, 1000000);
    int near = 0;
    (void)state;
    for (int64_t x = 0; x < 100; x++) near += llabs(permute_at(&p, x) - permute_at(&p, x + 1)) < 64;
    assert_true(near < 3);
}

TESTS(permute) {
    ADD_TEST(small_sizes);
    ADD_TEST(larger_sizes);
    ADD_TEST(huge_sizes);
    ADD_TEST(key_changes_order);
    ADD_TEST(scatters_neighbours);
    return run_added("permute");
}
