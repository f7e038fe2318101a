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

static void every_size(void **state) {
    static const int64_t sizes[] = {1023, 1024, 1025, 65536, 65537, 300007};
    (void)state;
    for (int64_t n = 1; n <= 300; n++) assert_bijective((uint64_t)n % 5, n);
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

/* Two keys share few images. Popular ranks must not stay neighbours: of 100 in a million rows, few are
 * within 64 rows. */
static void scatters_by_key(void **state) {
    struct permute a = permute_make(1, 1000000), b = permute_make(2, 1000000);
    int same = 0, near = 0;
    (void)state;
    for (int64_t x = 0; x < 100; x++) {
        same += permute_at(&a, x) == permute_at(&b, x) || permute_at(&a, x) == x;
        near += llabs(permute_at(&a, x) - permute_at(&a, x + 1)) < 64;
    }
    assert_true(same < 3 && near < 3);
}

TESTS(permute) {
    ADD_TEST(every_size);
    ADD_TEST(huge_sizes);
    ADD_TEST(scatters_by_key);
    return run_listed("permute");
}
