/* SPDX-License-Identifier: MIT
 *
 * What cpu_fused decides before it computes: which tables are small, which rows are hot, and how
 * many slices they get. Every decision gives right numbers, so only this test sees a wrong one.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/host/hot.h"
#include "kernels/host/small.h"
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

enum { LARGE_BATCH = SMALL_SLICES * SMALL_SLICE };

static void small_by_size(void **state) {
    const int64_t rows = SMALL_BYTES / 4 / 64, near = SMALL_NEAR / 4 / (SMALL_FAR_DIM + 8);
    (void)state;
    assert_int_equal(slices_of(rows, 64, 1, rows * 2, LARGE_BATCH), 1);
    assert_int_equal(slices_of(rows + 1, 64, 1, rows * 3, LARGE_BATCH), 0);
    assert_int_equal(slices_of(near, SMALL_FAR_DIM + 8, 1, near * 2, LARGE_BATCH), 1);
    assert_int_equal(slices_of(near + 1, SMALL_FAR_DIM + 8, 1, near * 3, LARGE_BATCH), 0);
}

static void small_by_lookups(void **state) {
    (void)state;
    assert_int_equal(slices_of(100, 8, 3, 100 * 3 * SMALL_LOOKUPS, LARGE_BATCH), 3);
    assert_int_equal(slices_of(100, 8, 3, 100 * 3 * SMALL_LOOKUPS - 1, LARGE_BATCH), 0);
    assert_int_equal(slices_of(100, 8, 0, 0, LARGE_BATCH), 0); /* no feature reads it */
}

/* A slice has SMALL_SLICE lookups, 1/SMALL_SLICES of the batch, and SMALL_MANY per row, or
 * SMALL_FEW if the slice is large. */
static void slices_of_small_tables(void **state) {
    const int64_t slice = SMALL_SLICE;
    (void)state;
    assert_int_equal(slices_of(100, 8, 1, 2 * slice, LARGE_BATCH), 2);
    assert_int_equal(slices_of(100, 8, 1, 4 * slice, LARGE_BATCH), 4);
    assert_int_equal(slices_of(100, 8, 1, 4 * slice - 1, LARGE_BATCH), 2);
    assert_int_equal(slices_of(100, 8, 3, 12 * slice, LARGE_BATCH), 12);
    assert_int_equal(slices_of(1, 8, 1, 4 * LARGE_BATCH, 4 * LARGE_BATCH), SMALL_SLICES);
    assert_int_equal(slices_of(1, 8, 1, 2 * LARGE_BATCH, 4 * LARGE_BATCH), SMALL_SLICES / 2);
    assert_int_equal(slices_of(1, 8, 1, LARGE_BATCH - 1, LARGE_BATCH), SMALL_SLICES / 2);
    const int64_t many = 2 * slice / SMALL_MANY, few = 2 * slice / SMALL_FEW;
    assert_int_equal(slices_of(many, 8, 1, 8 * slice, LARGE_BATCH), 4);
    assert_int_equal(slices_of(many + 1, 8, 1, 8 * slice, LARGE_BATCH), 2);
    assert_int_equal(slices_of(few, 8, 1, 8 * slice, 8 * slice), 4);
    assert_int_equal(slices_of(few + 1, 8, 1, 8 * slice, 8 * slice), 0); /* threads would wait */
    assert_int_equal(slices_of(few + 1, 8, 1, 8 * slice, SMALL_PARTS * 4 * slice), 2);
    assert_int_equal(slices_of(few + 1, 8, 1, 8 * slice, SMALL_PARTS * 4 * slice - 1), 0);
    assert_int_equal(slices_of(slice, 8, 1, 2 * slice, 2 * slice), 1);
    assert_int_equal(slices_of(slice, 8, 3, 6 * slice, 6 * slice), 3);
    assert_int_equal(slices_of(slice, 8, 1, 2 * slice + 1, 2 * slice + 1), 0);
}

/* Every row of a slice is in one range. A range has a thread's share of the lookups, but
 * SMALL_SHARE at least. */
static void ranges_of_small_tables(void **state) {
    static const struct {
        int64_t rows, lookups, all;
        int threads;
        int32_t ranges;
    } cases[] = {{1000, 16000, 16000, 1, 1},  {1000, 16000, 16000, 8, 8},
                 {1000, 16000, 64000, 8, 2},  {1000, 16000, 64000, 9, 2},
                 {1000, 16000, 64000, 10, 3}, {1000, 16000, 1000000, 8, 1},
                 {3, 16000, 16000, 8, 3},     {1000, 16000, 16000, 1000, 16000 / SMALL_SHARE}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct table_shape table = {
            .rows = cases[i].rows, .dim = 4, .features = 1, .lookups = cases[i].lookups};
        struct feature feature = {.lookups = table.lookups, .padding_id = -1};
        int64_t offsets[] = {0, table.lookups};
        const struct batch in = {.num_tables = 1,
                                 .num_features = 1,
                                 .bags = 1,
                                 .lookups = cases[i].all,
                                 .tables = &table,
                                 .features = &feature,
                                 .offsets = offsets};
        struct small_tables x;
        struct scratch s = {NULL, 0};
        struct buffer memory;
        struct error err;
        small_lay_out(&x, &s, &in, cases[i].threads);
        assert_int_equal(buffer_alloc(&memory, s.used, "scratch", &err), 0);
        s = (struct scratch){memory.data, 0};
        small_lay_out(&x, &s, &in, cases[i].threads);
        assert_int_equal(x.units, cases[i].ranges);
        small_prepare(&x, &in, cases[i].threads);
        int64_t next = 0;
        for (int32_t k = 0; k < x.units; k++) {
            assert_int_equal(x.unit[k].row, next);
            assert_true(x.unit[k].rows > 0);
            assert_int_equal(x.unit[k].end, table.lookups);
            next += x.unit[k].rows;
        }
        assert_int_equal(next, table.rows);
        assert_true(buffer_intact(&memory));
        buffer_free(&memory);
    }
}

/* --- hot rows */

struct chosen {
    struct partition partition;
    struct hot hot;
    struct buffer memory;
};

static void lay_out(struct chosen *c, struct scratch *s, const struct batch *in, int32_t stride,
                    int threads) {
    partition_lay_out(&c->partition, &(struct scratch){NULL, 0}, in, 1, BUCKET_BY_RANGE,
                      small_table);
    hot_lay_out(&c->hot, s, in, &c->partition, stride, threads, NULL);
}

static void choose_for(struct chosen *c, const struct batch *in, int32_t stride, int threads) {
    struct scratch s = {NULL, 0};
    struct error err;
    lay_out(c, &s, in, stride, threads);
    assert_int_equal(buffer_alloc(&c->memory, s.used, "scratch", &err), 0);
    memset(c->memory.data, 0x5a, s.used);
    s = (struct scratch){c->memory.data, 0};
    hot_lay_out(&c->hot, &s, in, &c->partition, stride, threads, NULL);
    hot_choose(&c->hot, in);
    assert_true(buffer_intact(&c->memory));
}

static void choose(struct chosen *c, const struct batch *in, int32_t stride) {
    choose_for(c, in, stride, 1);
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

enum { STEP = HOT_LINE * HOT_SAMPLE_OF, PADDING = 2, ONCE = 1000, ROWS = 100000 };

/* Bags of POOLED lookups, and an empty bag unless they count as pooled. The sample has the rows of
 * `what`, then rows that occur once; all lookups between its lines are row 1. */
static void build(struct builder *b, int64_t lookups, const struct times *what, bool pooled) {
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
    if (!pooled) builder_bag(b, 0, NULL);
    builder_finish(b);
}

/* The first `rows` rows of `what` are hot, in `slices` slices; no other sampled row is hot. */
static void check_hot(int64_t lookups, const struct times *what, bool pooled, int32_t most,
                      int32_t rows, int32_t slices) {
    struct builder b;
    build(&b, lookups, what, pooled);
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
    check_hot(8192, three, true, 500, 3, 32);
    check_hot(16384, one, false, 500, 1, HOT_SLICES);
    check_hot(HOT_LOOKUPS, least, false, 500, 1, HOT_SLICES);
    check_hot(HOT_LOOKUPS - STEP, least, false, 500, 0, 0);
}

/* 56 of 256 are padding. */
static void share_of_the_sample(void **state) {
    const int size = 200, pooled = size * HOT_SHARE_POOLED / 100, not = size * HOT_SHARE / 100;
    (void)state;
    for (int less = 0; less < 2; less++) {
        const struct times some[] = {{10, pooled - less}, {PADDING, 56}, {0, 0}};
        const struct times most[] = {{10, not -less}, {PADDING, 56}, {0, 0}};
        check_hot(16384, some, true, 500, !less, HOT_SLICES);
        check_hot(16384, most, false, 500, !less, HOT_SLICES);
    }
}

/* Rows with equal counts are all hot or all not, except above 64: then as many as there is room. */
static void room_for_hot_rows(void **state) {
    const struct times two[] = {{0, 40}, {20, 9}, {0, 0}};
    const struct times three[] = {{0, 40}, {20, 9}, {30, 9}, {0, 0}};
    const struct times four[] = {{0, 40}, {20, 8}, {30, 7}, {40, 7}, {0, 0}};
    const struct times large[] = {{10, 64}, {20, 64}, {0, 0}};
    (void)state;
    check_hot(4096, two, true, 2, 2, 16);
    check_hot(4096, three, true, 2, 1, 32);
    check_hot(4096, three, true, 3, 3, 16);
    check_hot(4096, four, true, 3, 2, 16);
    struct builder b;
    build(&b, 8192, large, true);
    struct chosen c;
    choose(&c, &b.in, HOT_BYTES / 4);
    assert_int_equal(c.hot.rows, 1);
    buffer_free(&c.memory);
    builder_free(&b);
}

/* A slice has a part for each of its threads. */
static void parts_of_slices(void **state) {
    const struct times two[] = {{0, 40}, {20, 9}, {0, 0}};
    static const int threads[] = {1, 16, 17, 40}, parts[] = {1, 1, 2, 3};
    struct builder b;
    (void)state;
    build(&b, 4096, two, true);
    for (int i = 0; i < 4; i++) {
        struct chosen c;
        choose_for(&c, &b.in, HOT_BYTES / 4 / 2, threads[i]);
        assert_int_equal(c.hot.slices, 16);
        assert_int_equal(c.hot.parts, parts[i]);
        buffer_free(&c.memory);
    }
    builder_free(&b);
}

static void most_hot_rows(void **state) {
    struct table_shape tables[] = {{.rows = INT32_MAX, .dim = 4, .lookups = 1 << 17}};
    struct batch in = {.num_tables = 1, .tables = tables, .lookups = 1 << 17};
    struct chosen c;
    (void)state;
    lay_out(&c, &(struct scratch){NULL, 0}, &in, 4, 1);
    assert_int_equal(c.hot.most, (1 << HOT_SLOTS_LOG2) / 4);
    lay_out(&c, &(struct scratch){NULL, 0}, &in, 128, 1);
    assert_int_equal(c.hot.most, HOT_BYTES / 4 / 128);
    tables[0].lookups = in.lookups = HOT_LOOKUPS; /* no more sums fit */
    lay_out(&c, &(struct scratch){NULL, 0}, &in, 4, 1);
    assert_int_equal(c.hot.most, HOT_LOOKUPS / HOT_SLICE_OF);
}

/* Rows 5 and 4100 share a slot. */
static void hotter_one_gets_the_slot(void **state) {
    (void)state;
    assert_int_equal(hot_slot(5), hot_slot(4100));
    check_hot(4096, (const struct times[]){{5, 34}, {4100, 30}, {0, 0}}, true, 500, 1, 32);
    check_hot(4096, (const struct times[]){{4100, 34}, {5, 30}, {0, 0}}, true, 500, 1, 32);
}

/* Neighbours, and rows at distances that are powers of two, do not share a slot. */
static void slots(void **state) {
    enum { SLOTS = 1 << HOT_SLOTS_LOG2 };
    static const uint32_t first[] = {0, SLOTS, 5 * SLOTS, 77u << 24, 0, 0};
    static const uint32_t distance[] = {1, 1, 1, 1, SLOTS, SLOTS * SLOTS};
    (void)state;
    for (int i = 0; i < 6; i++) {
        bool taken[SLOTS] = {false};
        for (uint32_t k = 0; k < (distance[i] > SLOTS ? 256 : SLOTS); k++) {
            uint32_t slot = hot_slot(first[i] + k * distance[i]);
            assert_in_range(slot, 0, SLOTS - 1);
            assert_false(taken[slot]);
            taken[slot] = true;
        }
    }
}

/* --- the sample: a line at every STEP of the lookups, except in small tables, until it is full */

static int64_t sample_again(const struct batch *in, int64_t most, uint32_t *counts) {
    int64_t size = 0;
    for (int64_t line = 0; line < in->lookups; line += STEP) {
        int32_t f = (int32_t)(bag_of_lookup(in, line) / in->bags), t = in->features[f].table;
        if (small_table(in, t) || size + HOT_LINE > most) continue;
        for (int64_t i = line; i < line + HOT_LINE && i < in->offsets[(f + 1) * in->bags]; i++) {
            if (batch_id(in, i) == in->features[f].padding_id) continue;
            counts[in->tables[t].first_row + batch_id(in, i)]++;
            size++;
        }
    }
    return size;
}

static void add_feature(struct builder *b, int64_t rows, int64_t lookups, int64_t factor) {
    builder_feature(b, builder_table(b, rows, 1), POOL_SUM, 4);
    for (int64_t i = 0; i < lookups; i++) {
        int64_t id = i * factor % rows;
        builder_bag(b, 1, &id);
    }
}

static void sample(void **state) {
    struct builder b;
    (void)state;
    builder_begin(&b, 1, true);
    add_feature(&b, ROWS, 1027, 2);         /* a line is cut short */
    add_feature(&b, 3, 510, 1);             /* a small table */
    add_feature(&b, ROWS, 5631, 7919 * 64); /* begins one after a line */
    add_feature(&b, ROWS, 8, 9);            /* a line that does not fit */
    builder_finish(&b);
    struct chosen c;
    choose(&c, &b.in, 4);
    uint32_t *counts = calloc(3 * ROWS + 3, sizeof *counts);
    assert_non_null(counts);
    const int64_t most = (1027 + 5631 + 8) / HOT_SAMPLE_OF,
                  size = sample_again(&b.in, most, counts);
    memset(c.memory.data, 0, c.memory.bytes); /* memory outside of the counts looks free */
    assert_int_equal(hot_sample(&c.hot, &b.in), size);
    for (int32_t k = 0; k < 1 << c.hot.counts_log2; k++) {
        struct hot_count x = c.hot.sample[k];
        if (x.count == 0) continue;
        assert_int_equal(x.count, counts[x.row]);
        counts[x.row] = 0;
    }
    for (int32_t row = 0; row < 3 * ROWS + 3; row++) assert_int_equal(counts[row], 0);
    free(counts);
    buffer_free(&c.memory);
    builder_free(&b);
}

TESTS(choices) {
    add_test("cpu_fused: small by size", small_by_size, NULL, NULL);
    add_test("cpu_fused: small by lookups", small_by_lookups, NULL, NULL);
    add_test("cpu_fused: slices of small tables", slices_of_small_tables, NULL, NULL);
    add_test("cpu_fused: ranges of small tables", ranges_of_small_tables, NULL, NULL);
    add_test("cpu_fused: rows of the sample", rows_of_the_sample, NULL, NULL);
    add_test("cpu_fused: share of the sample", share_of_the_sample, NULL, NULL);
    add_test("cpu_fused: room for hot rows", room_for_hot_rows, NULL, NULL);
    add_test("cpu_fused: parts of slices", parts_of_slices, NULL, NULL);
    add_test("cpu_fused: most hot rows", most_hot_rows, NULL, NULL);
    add_test("cpu_fused: the hotter one gets the slot", hotter_one_gets_the_slot, NULL, NULL);
    add_test("cpu_fused: slots", slots, NULL, NULL);
    add_test("cpu_fused: the sample", sample, NULL, NULL);
    return run_listed("choices");
}
