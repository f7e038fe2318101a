/* SPDX-License-Identifier: MIT
 *
 * What cpu_fused decides before it computes: which tables are small or numbered, which rows are hot, and how
 * many slices they get. Every decision gives right numbers, so only this test sees a wrong one.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/cpu/hot.h"
#include "kernels/cpu/numbered.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

/* --- small tables */

/* The slices of table 1 in a batch that has only a shape; table 0 is a different one. */
static int32_t slices_of(int64_t rows, int32_t dim, int32_t features, int64_t lookups,
                         int64_t all) {
    const struct table_shape tables[] = {
        {.rows = 1, .dim = 1, .features = 9, .lookups = 9},
        {.rows = rows, .dim = dim, .features = features, .lookups = lookups}};
    const struct batch in = {.num_tables = 2, .tables = tables, .lookups = all};
    return small_slices_of_all(&in, 1);
}

enum { LARGE_BATCH = SMALL_SLICES * SMALL_SLICE, SLICE = SMALL_SLICE };

/* A small table fits in a cache and has SMALL_LOOKUPS for each row. A slice has SMALL_SLICE lookups,
 * 1/SMALL_SLICES of the batch, and SMALL_MANY per row, or SMALL_FEW if the slice is large. */
static void slices_of_small_tables(void **state) {
    enum { ROWS_64 = SMALL_BYTES / 4 / 64, FAR = SMALL_FAR_DIM + 8, NEAR = SMALL_NEAR / 4 / FAR };
    static const struct {
        int64_t rows;
        int32_t dim, features;
        int64_t lookups, all;
        int32_t slices;
    } cases[] = {
        {ROWS_64, 64, 1, ROWS_64 * 2, LARGE_BATCH, 1},
        {ROWS_64 + 1, 64, 1, ROWS_64 * 3, LARGE_BATCH, 0},
        {NEAR, FAR, 1, NEAR * 2, LARGE_BATCH, 1},
        {NEAR + 1, FAR, 1, NEAR * 3, LARGE_BATCH, 0},
        {100, 8, 3, 300 * SMALL_LOOKUPS, LARGE_BATCH, 3},
        {100, 8, 3, 300 * SMALL_LOOKUPS - 1, LARGE_BATCH, 0},
        {100, 8, 0, 0, LARGE_BATCH, 0}, /* no feature reads it */
        {100, 8, 1, 4 * SLICE, LARGE_BATCH, 4},
        {100, 8, 1, 4 * SLICE - 1, LARGE_BATCH, 2},
        {1, 8, 1, LARGE_BATCH - 1, LARGE_BATCH, SMALL_SLICES / 2},
        {2 * SLICE / SMALL_MANY, 8, 1, 8 * SLICE, LARGE_BATCH, 4},
        {2 * SLICE / SMALL_MANY + 1, 8, 1, 8 * SLICE, LARGE_BATCH, 2},
        {2 * SLICE / SMALL_FEW, 8, 1, 8 * SLICE, 8 * SLICE, 4},
        {2 * SLICE / SMALL_FEW + 1, 8, 1, 8 * SLICE, 8 * SLICE, 0}, /* threads would wait */
        {2 * SLICE / SMALL_FEW + 1, 8, 1, 8 * SLICE, SMALL_PARTS * 4 * SLICE, 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (slices_of(cases[i].rows, cases[i].dim, cases[i].features, cases[i].lookups,
                      cases[i].all) != cases[i].slices)
            fail_msg("case %zu", i);
}

/* --- hot rows */

struct chosen {
    struct partition partition;
    struct hot hot;
    struct buffer memory;
};

static void choose(struct chosen *c, const struct batch *in, int32_t stride) {
    enum { THREADS = 40 };
    struct scratch s = {NULL, 0};
    struct error err;
    partition_lay_out(&c->partition, &(struct scratch){NULL, 0}, in, 1, BUCKET_BY_RANGE,
                      small_table, NULL);
    hot_lay_out(&c->hot, &s, in, &c->partition, stride, THREADS, NULL);
    assert_int_equal(buffer_alloc(&c->memory, s.used, "scratch", &err), 0);
    memset(c->memory.data, 0x5a, s.used);
    s = (struct scratch){c->memory.data, 0};
    hot_lay_out(&c->hot, &s, in, &c->partition, stride, THREADS, NULL);
    hot_choose(&c->hot, in);
    if (c->hot.rows) assert_int_equal(c->hot.parts, (THREADS + c->hot.slices - 1) / c->hot.slices);
    assert_true(buffer_intact(&c->memory));
}

/* How often a hot row was in the sample; 0 for other rows. */
static uint32_t count_if_hot(const struct hot *h, uint32_t row) {
    const uint32_t slot = hot_slot(row);
    if (h->rows == 0 || h->key[slot] != row) return 0;
    assert_in_range(h->number[slot], 0, h->rows - 1);
    assert_int_equal(h->row[h->number[slot]].row, row);
    return h->row[h->number[slot]].count;
}

struct times {
    uint32_t row;
    int times;
};

enum { STEP = HOT_LINE * HOT_SAMPLE_OF, PADDING = 2, ONCE = 1000, ROWS = 100000, POOLED = 4 };

/* The sample has the rows of `what`, then rows that occur once; all lookups between its lines are
 * row 1. */
static void build(struct builder *b, int64_t lookups, const struct times *what) {
    int64_t bag[POOLED];
    int used = 0, once = ONCE;
    builder_begin(b, 1, true);
    builder_feature(b, builder_table(b, ROWS, 1), POOL_SUM, PADDING);
    for (int64_t i = 0; i < lookups; i++) {
        if (i % STEP >= HOT_LINE) {
            bag[i % POOLED] = 1;
        } else if (what->times == 0) {
            bag[i % POOLED] = once++;
        } else {
            bag[i % POOLED] = what->row;
            if (++used == what->times) what++, used = 0;
        }
        if ((i + 1) % POOLED == 0) builder_bag(b, POOLED, bag);
    }
    builder_finish(b);
}

/* The first `rows` rows of `what` are hot, in `slices` slices; no other sampled row is hot. */
static void check_hot(int64_t lookups, const struct times *what, int32_t most, int32_t rows,
                      int32_t slices) {
    struct builder b;
    build(&b, lookups, what);
    struct chosen c;
    choose(&c, &b.in, HOT_BYTES / 4 / most);
    assert_int_equal(c.hot.rows, rows);
    if (rows) assert_int_equal(c.hot.slices, slices);
    for (int32_t k = 0; k < rows; k++)
        assert_int_equal(count_if_hot(&c.hot, what[k].row), what[k].times);
    buffer_free(&c.memory);
    builder_free(&b);
}

/* 96 of 128: 2 * 16 slices of 3 rows have 8192 * 96 / 128 / 32 / 3 = 64 lookups for each sum. */
static void rows_of_the_sample(void **state) {
    const struct times three[] = {{10, 60}, {20, 34}, {4090, 2}, {0, 0}};
    const struct times one[] = {{70000, 256}, {0, 0}};
    const struct times least[] = {{70000, HOT_LOOKUPS / HOT_SAMPLE_OF}, {0, 0}};
    (void)state;
    check_hot(8192, three, 500, 3, 32);
    check_hot(16384, one, 500, 1, HOT_SLICES);
    check_hot(HOT_LOOKUPS, least, 500, 1, HOT_SLICES);
    check_hot(HOT_LOOKUPS - STEP, least, 500, 0, 0);
}

/* 56 of 256 are padding. */
static void share_of_the_sample(void **state) {
    const int size = 200, enough = size * HOT_SHARE / 100;
    (void)state;
    for (int less = 0; less < 2; less++) {
        const struct times some[] = {{10, enough - less}, {PADDING, 56}, {0, 0}};
        check_hot(16384, some, 500, !less, HOT_SLICES);
    }
}

/* Rows with equal counts are all hot or all not. */
static void room_for_hot_rows(void **state) {
    const struct times two[] = {{0, 40}, {20, 9}, {0, 0}};
    const struct times three[] = {{0, 40}, {20, 9}, {30, 9}, {0, 0}};
    const struct times four[] = {{0, 40}, {20, 8}, {30, 7}, {40, 7}, {0, 0}};
    (void)state;
    check_hot(4096, two, 2, 2, 16);
    check_hot(4096, three, 2, 1, 32);
    check_hot(4096, three, 3, 3, 16);
    check_hot(4096, four, 3, 2, 16);
}

/* Rows 5 and 4100 share a slot. */
static void hotter_one_gets_the_slot(void **state) {
    (void)state;
    assert_int_equal(hot_slot(5), hot_slot(4100));
    check_hot(4096, (const struct times[]){{5, 34}, {4100, 30}, {0, 0}}, 500, 1, 32);
    check_hot(4096, (const struct times[]){{4100, 34}, {5, 30}, {0, 0}}, 500, 1, 32);
}

/* --- numbered tables */

/* The k-th row that the sample counts, or one that it does not. */
static int64_t row_of(bool counted, int64_t k) {
    int64_t row = -1;
    while (k >= 0) k -= numbered_is_counted((uint32_t)++row) == counted;
    return row;
}

/* Table 0 has `lookups` lookups of rows that take turns: `counted` ones, and others. A feature of a small table has
 * `more` times as many lookups. */
static void build_turns(struct builder *b, int32_t dim, int64_t lookups, int64_t counted,
                        int64_t others, int64_t more) {
    enum { BAG = 16 };
    const int64_t zeros[8 * BAG] = {0};
    int64_t *ids = calloc((size_t)(counted + others), sizeof *ids), bag[BAG];
    for (int64_t k = 0; k < counted + others; k++)
        ids[k] = k < counted ? row_of(true, k) : row_of(false, k - counted);
    builder_begin(b, 1, true);
    builder_feature(b, builder_table(b, SMALL_BYTES / 4 / dim + 2048, dim), POOL_SUM, -1);
    for (int64_t i = 0; i < lookups;) {
        int64_t n = 0;
        while (n < BAG && i < lookups) bag[n++] = ids[i++ % (counted + others)];
        builder_bag(b, n, bag);
    }
    builder_feature(b, builder_table(b, 1, 1), POOL_SUM, -1);
    for (int64_t i = 0; i < lookups; i += BAG)
        builder_bag(b, more * min64(BAG, lookups - i), zeros);
    builder_finish(b);
    free(ids);
}

static bool is_numbered(int32_t dim, int64_t lookups, int64_t counted, int64_t more) {
    struct builder b;
    build_turns(&b, dim, lookups, counted, 9, more);
    const bool yes = numbered_is_faster(&b.in, 0);
    builder_free(&b);
    return yes;
}

static void which_tables_are_numbered(void **state) {
    enum {
        LOOKUPS = NUMBERED_LOOKUPS,
        LIMIT = LOOKUPS / NUMBERED_OFTEN / NUMBERED_SAMPLED,
        WIDE = NUMBERED_BYTES / 4 / NUMBERED_SAMPLED / 16, /* 16 counted rows, less a quarter */
        DIM = NUMBERED_DIM,
        MORE = NUMBERED_PARTS - 1,
    };
    (void)state;
    assert_true(is_numbered(DIM, LOOKUPS, 1, MORE));
    assert_false(is_numbered(DIM, LOOKUPS - 1, 1, MORE));
    assert_false(is_numbered(DIM - 1, LOOKUPS, 1, MORE));
    assert_false(is_numbered(DIM, LOOKUPS, 1, MORE - 1));
    assert_true(is_numbered(DIM, LOOKUPS, LIMIT, MORE));
    assert_false(is_numbered(DIM, LOOKUPS, LIMIT + 1, MORE));
    assert_true(is_numbered(WIDE, LOOKUPS, 12, MORE));
    assert_false(is_numbered(WIDE, LOOKUPS, 13, MORE));
}

/* The sample counts none of the rows, and there are more than accumulators. Eight threads have two units. */
static void more_rows_than_accumulators(void **state) {
    enum { DIM = 2048, MANY = NUMBERED_BYTES / 4 / DIM * 5 / 2 };
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    build_turns(&b, DIM, 2 * NUMBERED_LOOKUPS, 0, MANY, NUMBERED_PARTS - 1);
    assert_true(numbered_is_faster(&b.in, 0));
    assert_in_range(numbered_most(&b.in, 0), 1, MANY / 2);
    for (int way = 0; way < builder_ways(k); way++) {
        const char *wrong = builder_check(&b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
    }
    builder_free(&b);
}

TESTS(choices) {
    add_test("cpu_fused: which tables are numbered", which_tables_are_numbered, NULL, NULL);
    for (const struct registered *r = registry(); r->kernel; r++)
        if (strcmp(r->kernel->name, "cpu_fused") == 0)
            add_test("more rows than accumulators", more_rows_than_accumulators, r->kernel, NULL);
    add_test("cpu_fused: slices of small tables", slices_of_small_tables, NULL, NULL);
    add_test("cpu_fused: rows of the sample", rows_of_the_sample, NULL, NULL);
    add_test("cpu_fused: share of the sample", share_of_the_sample, NULL, NULL);
    add_test("cpu_fused: room for hot rows", room_for_hot_rows, NULL, NULL);
    add_test("cpu_fused: the hotter one gets the slot", hotter_one_gets_the_slot, NULL, NULL);
    return run_listed("choices");
}
