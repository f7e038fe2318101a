/* SPDX-License-Identifier: MIT
 *
 * Statistics of a batch that is small enough to count by hand. (The fingerprint: test_workload.c.)
 */
#include <stdbool.h>
#include <stdint.h>

#include "harness/workload/id_stats.h"

#include "tests/support/cmocka_cases.h"

/* Three features of two bags; 0 and 1 read table 0, row 5 is padding of feature 0 only.
 *
 *     feature 0   bag 0: 3 3 5 3        bag 1: (empty)
 *     feature 1   bag 0: 5 3            bag 1: 0 5 0
 *     feature 2   bag 0: 3              bag 1: 1 1 2 1 1     (table 1)
 *
 * Table 0 counts row 0 twice, row 3 four times, row 5 twice; table 1 rows 1, 2, 3 four times, once,
 * once. In bags: 3 again twice, 0 again once, 1 again three times. */
static const int64_t ids[] = {3, 3, 5, 3, 5, 3, 0, 5, 0, 3, 1, 1, 2, 1, 1};
static const int64_t offsets[] = {0, 4, 4, 6, 9, 10, 15};
static const struct table_shape tables[] = {{.rows = 6, .dim = 2}, {.rows = 4, .dim = 3}};
static const struct feature features[] = {
    {.table = 0, .padding_id = 5, .bags = 2},
    {.table = 0, .padding_id = -1, .bags = 2, .first_bag = 2},
    {.table = 1, .padding_id = -1, .bags = 2, .first_bag = 4}};

static void counted_by_hand(void **state) {
    const struct batch in = {.num_tables = 2,
                             .num_features = 3,
                             .flat_bags = 6,
                             .lookups = 15,
                             .tables = tables,
                             .features = features,
                             .id_type = ID_INT64,
                             .ids = ids,
                             .offsets = offsets};
    struct row_index x = row_index_build(&in);
    struct id_stats s = id_stats(&in, &x);
    row_index_free(&x);
    (void)state;
    assert_int_equal(s.lookups, 14);
    assert_int_equal(s.padding, 1);
    assert_int_equal(s.distinct, 6);
    assert_int_equal(s.hottest, 4);
    assert_int_equal(s.bags, 6);
    assert_int_equal(s.empty_bags, 1);
    assert_int_equal(s.longest_bag, 5);
    assert_int_equal(s.in_bag_duplicates, 6);
    static const int64_t lookups[RUN_BINS] = {2, 4, 8}, rows[RUN_BINS] = {2, 2, 2};
    assert_memory_equal(s.run_lookups, lookups, sizeof lookups);
    assert_memory_equal(s.run_rows, rows, sizeof rows);
}

TESTS(id_stats) {
    ADD_TEST(counted_by_hand);
    return run_listed("id_stats");
}
