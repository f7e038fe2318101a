/* SPDX-License-Identifier: MIT */
#include "tests/support/shapes.h"

#include <stdlib.h>

#define BAG(b, ...)                                                                                \
    builder_bag(b, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                       \
                (const int64_t[]){__VA_ARGS__})

/* One table with one feature. */
static void one(struct builder *b, int64_t rows, int32_t dim, enum pooling pooling) {
    builder_feature(b, builder_table(b, rows, dim), pooling, -1);
}

/* Bags of `length` ids: next(0), next(1), ... */
static void bags_of(struct builder *b, int64_t bags, int64_t length, int64_t (*next)(int64_t)) {
    int64_t *ids = malloc((size_t)(length + 1) * sizeof *ids);
    if (!ids) abort();
    for (int64_t q = 0; q < bags; q++) {
        for (int64_t k = 0; k < length; k++) ids[k] = next(q * length + k);
        builder_bag(b, length, ids);
    }
    free(ids);
}

/* --- few lookups */

static void no_ids(struct builder *b, int32_t n) {
    (void)n;
    one(b, 5, 4, POOL_SUM);
    for (int i = 0; i < 3; i++) builder_bag(b, 0, NULL);
}

/* The last shard of an epoch: no feature has a lookup, and the gradient of sequences has no row. */
static void no_ids_anywhere(struct builder *b, int32_t n) {
    b->weighted = n > 0;
    if (n > 0) b->id_type = ID_INT32;
    for (int32_t f = 0; f < 3; f++) {
        one(b, 5 + f, 4 + f, n == 2 ? POOL_NONE : POOL_MEAN);
        builder_bag(b, 0, NULL);
    }
    builder_feature(b, 0, n == 2 ? POOL_NONE : POOL_SUM, 3);
    builder_bag(b, 0, NULL);
}

static void one_id(struct builder *b, int32_t n) {
    (void)n;
    one(b, 70, 5, POOL_SUM);
    builder_bag(b, 0, NULL);
    BAG(b, 66);
}

static int64_t always_7(int64_t i) {
    (void)i;
    return 7;
}

static int64_t always_1(int64_t i) {
    (void)i;
    return 1;
}

static void all_equal(struct builder *b, int32_t n) {
    (void)n;
    one(b, 20, 6, POOL_SUM);
    bags_of(b, 50, 2, always_7);
}

static int64_t scattered(int64_t i) {
    return i * 37 % 211;
}

static void all_distinct(struct builder *b, int32_t n) {
    one(b, 300, 8, POOL_SUM);
    bags_of(b, n, 1, scattered);
}

static void empty_bags(struct builder *b, int32_t n) {
    (void)n;
    one(b, 30, 4, POOL_SUM);
    builder_bag(b, 0, NULL);
    builder_bag(b, 0, NULL);
    BAG(b, 3, 4);
    builder_bag(b, 0, NULL);
    BAG(b, 29, 3);
    builder_bag(b, 0, NULL);
    one(b, 30, 4, POOL_MEAN); /* a feature whose bags are all empty */
}

/* --- rows, columns and lookups of every size */

static void dim(struct builder *b, int32_t n) {
    one(b, 40, n, POOL_SUM);
    builder_random_bags(b, 20, 6);
    one(b, 9, n + 1, POOL_SUM); /* so that rows of the gradient are not aligned */
    builder_random_bags(b, 20, 3);
}

/* Rows wider than a device block covers with registers; segments that span several chunks. */
static void wide_rows(struct builder *b, int32_t n) {
    one(b, 3, n, POOL_SUM);
    builder_random_bags(b, 12, 4);
    one(b, 2, n, POOL_NONE);
    bags_of(b, 70, 4, always_1);
}

static void last_row(struct builder *b, int32_t n) {
    one(b, n, 5, POOL_SUM);
    BAG(b, n - 1, 0, n - 1, n / 2);
    BAG(b, n - 1);
    BAG(b, n / 2, n - 2);
}

static void tiny_tables(struct builder *b, int32_t n) {
    (void)n;
    for (int64_t rows = 1; rows <= 3; rows++) {
        one(b, rows, 7, POOL_SUM);
        builder_random_bags(b, 12, 4);
    }
}

static void one_row_alone(struct builder *b, int32_t n) {
    (void)n;
    one(b, 1, 3, POOL_SUM);
    BAG(b, 0, 0);
    BAG(b, 0);
}

static void mixed_tables(struct builder *b, int32_t n) {
    static const struct {
        int64_t rows;
        int32_t dim;
    } tables[] = {{1, 1}, {200, 16}, {64, 3}, {3, 100}, {1000, 4}, {65, 17}, {7, 32}, {128, 5}};
    /* An emulated device unlocks and locks all arrays at every launch: time grows with tables^2. */
    if (b->smaller > 1 && n > 36) n = 36;
    for (int32_t t = 0; t < n; t++) {
        one(b, tables[t % 8].rows, tables[t % 8].dim, t % 3 == 2 ? POOL_NONE : POOL_SUM);
        builder_random_bags(b, 25, 3 + t % 5);
    }
}

/* With 384 tables (and with 192 lookups in all_distinct) a scratch array ends where the next one
 * begins. With one more, an array that is one element short overlaps the next one. */
static void more_tables_than_lookups(struct builder *b, int32_t n) {
    if (b->smaller > 1 && n > 36) n = 36;
    for (int32_t t = 0; t < n; t++) {
        one(b, 10 + t, 3, POOL_SUM);
        if (t == 1 || t == n - 1) BAG(b, t);
    }
    builder_table(b, 6, 2); /* that no feature reads */
}

static void tables_read_backwards(struct builder *b, int32_t n) {
    for (int32_t t = 0; t < n; t++) builder_table(b, 11 + 3 * t, 2 + t);
    for (int32_t t = n - 1; t >= 0; t--) {
        builder_feature(b, t, POOL_SUM, -1);
        builder_random_bags(b, 10, 5);
    }
}

/* --- many lookups: several buckets, several passes of a sort, split segments */

static int64_t mostly_5(int64_t i) {
    return i % 1000 == 999 ? 8 : 5;
}

/* Divided at least by SMALLER: here sanitizers are slow enough to matter. */
static int64_t large(const struct builder *b, int64_t n) {
    return n / (b->smaller > SMALLER ? b->smaller : SMALLER);
}

/* Rows of a large table: slow for a kernel that sweeps over all of them on an emulated device. */
static int64_t many(const struct builder *b, int64_t n) {
    return b->smaller > 1 || SMALLER > 1 ? n / 8 : n;
}

static void hot_row(struct builder *b, int32_t n) {
    one(b, 9, 3, POOL_SUM);
    bags_of(b, 1000, large(b, n) / 1000, mostly_5);
}

static void many_rows(struct builder *b, int32_t n) {
    one(b, many(b, n), 4, POOL_SUM);
    builder_random_bags(b, large(b, 4000), 12);
    one(b, many(b, n) / 3, 6, POOL_SUM);
    builder_random_bags(b, large(b, 2000), 12);
}

/* Far apart, so that a kernel that splits rows by range gets empty parts. */
static int64_t in_five_stretches(int64_t i) {
    return i % 5 * 13000 + i * 37 % 300;
}

static void rows_in_stretches(struct builder *b, int32_t n) {
    one(b, n, 3, POOL_SUM);
    bags_of(b, 500 / b->smaller, 40, in_five_stretches);
}

static int64_t five_hot(int64_t i) {
    return i % 16 ? i % 16 % 5 : 100 + i % 997;
}

/* Segments below and above the length from which a kernel may split them. */
static void long_runs(struct builder *b, int32_t n) {
    b->weighted = n > 1;
    one(b, many(b, 30000), 70, POOL_SUM);
    bags_of(b, 100, 450 / b->smaller, five_hot);
    if (n == 3) builder_feature(b, 0, POOL_NONE, 2);
    if (n == 3) bags_of(b, 40, 5, five_hot);
}

/* A segment that a kernel may split; no few rows get most of the lookups. */
static int64_t one_in_four(int64_t i) {
    return i % 4 ? i * 37 % 1099 : 7;
}

static void long_run_alone(struct builder *b, int32_t n) {
    b->weighted = n;
    one(b, many(b, 13000), 35, POOL_SUM);
    bags_of(b, 1200 / b->smaller, 20, one_in_four);
}

/* Few rows with so many lookups that a kernel may keep them apart; a feature has one as padding. */
static void hot_rows(struct builder *b, int32_t n) {
    b->weighted = n == 2;
    one(b, 5000, 70, n == 3 ? POOL_NONE : POOL_SUM);
    bags_of(b, 150 / b->smaller, 20, five_hot);
    builder_feature(b, 0, POOL_MEAN, -1);
    bags_of(b, 100 / b->smaller, 16, five_hot);
    builder_feature(b, builder_table(b, 5000, 16), POOL_SUM, 3);
    bags_of(b, 70 / b->smaller, 30, five_hot);
    one(b, 3, 64, POOL_SUM);
    builder_random_bags(b, 150 / b->smaller, 12);
}

static int64_t one_hot(int64_t i) {
    return i % 16 ? 7 : 100 + i % 997;
}

/* A single row that is kept apart has the largest number of slices for its sums; the last slice
 * covers two features. */
static void one_hot_row(struct builder *b, int32_t n) {
    one(b, n, 6, POOL_SUM);
    bags_of(b, 300 / b->smaller, 20, one_hot);
    builder_feature(b, 0, POOL_SUM, -1);
    bags_of(b, 5, 10, one_hot);
}

static int64_t of_300(int64_t i) {
    return i * 7919 % 300;
}

static int64_t of_3000(int64_t i) {
    return i * 7919 % 3000;
}

/* Tables with so few rows and so many lookups that a kernel may keep a sum for each row: one with
 * enough lookups to do so in parts, one with sums beyond a core's L2 cache, one with neither. */
static void small_tables(struct builder *b, int32_t n) {
    b->weighted = n == 2;
    one(b, 300, 19, n == 3 ? POOL_NONE : POOL_SUM);
    bags_of(b, 1800 / b->smaller, 20, of_300);
    builder_feature(b, 0, POOL_MEAN, -1);
    bags_of(b, 2100 / b->smaller, 16, of_300);
    one(b, 3000, 64, POOL_SUM);
    bags_of(b, 700 / b->smaller, 10, of_3000);
    builder_feature(b, builder_table(b, 300, 16), POOL_SUM, 7);
    bags_of(b, 300 / b->smaller, 10, of_300);
    one(b, 20000, 8, POOL_SUM);
    builder_random_bags(b, 300 / b->smaller, 12);
}

static int64_t of_50(int64_t i) {
    return i * i % 50;
}

static void giant_bag(struct builder *b, int32_t n) {
    one(b, 50, 5, POOL_SUM);
    builder_bag(b, 0, NULL);
    bags_of(b, 1, n / b->smaller, of_50);
}

/* --- poolings, weights, padding, sharing */

static void mean(struct builder *b, int32_t n) {
    (void)n;
    one(b, 25, 9, POOL_MEAN);
    BAG(b, 3, 4, 3, 24);
    BAG(b, 3);
    builder_bag(b, 0, NULL);
    BAG(b, 0, 3, 0, 0, 1, 2, 3, 4);
    BAG(b, 24, 1);
}

static void weighted_mean(struct builder *b, int32_t n) {
    b->weighted = true;
    mean(b, n);
}

static void ragged_mean(struct builder *b, int32_t n) {
    b->weighted = n;
    one(b, 60, 9, POOL_MEAN);
    builder_random_bags(b, 40, 11);
    builder_feature(b, 0, POOL_MEAN, 0);
    builder_random_bags(b, 30, 5);
}

static void weighted(struct builder *b, int32_t n) {
    (void)n;
    b->weighted = true;
    one(b, 60, 19, POOL_SUM);
    builder_random_bags(b, 40, 7);
}

static void none(struct builder *b, int32_t n) {
    b->weighted = n;
    one(b, 60, 11, POOL_NONE);
    builder_random_bags(b, 40, 7);
    one(b, 33, 4, POOL_NONE);
    builder_random_bags(b, 20, 7);
}

/* Three features read one table, a fourth reads another; their order is not that of the tables. */
static void shared_table(struct builder *b, int32_t n) {
    b->weighted = n;
    int32_t t = builder_table(b, 45, 13), other = builder_table(b, 45, 6);
    builder_feature(b, t, POOL_SUM, -1);
    builder_random_bags(b, 16, 6);
    builder_feature(b, other, POOL_SUM, -1);
    builder_random_bags(b, 16, 6);
    builder_feature(b, t, POOL_NONE, -1);
    builder_random_bags(b, 16, 5);
    builder_feature(b, t, POOL_MEAN, -1);
    for (int i = 0; i < 8; i++) BAG(b, 3 * i, 0, 44, i);
}

/* Padding that differs between features of one table: a row that is padding for one of them is an
 * ordinary row for another. Some bags have only padding, some padding never occurs. */
static void padding(struct builder *b, int32_t n) {
    b->weighted = n;
    int32_t t = builder_table(b, 12, 10);
    builder_feature(b, t, POOL_SUM, 0);
    BAG(b, 0, 1, 0, 2);
    BAG(b, 0, 0);
    BAG(b, 11, 0);
    builder_feature(b, t, POOL_NONE, 11);
    BAG(b, 11, 3, 11);
    BAG(b, 11);
    BAG(b, 4, 1);
    builder_feature(b, t, POOL_MEAN, 2);
    BAG(b, 2, 5, 2, 6, 2);
    BAG(b, 2);
    BAG(b, 5, 2);
    one(b, 12, 10, POOL_SUM);
    BAG(b, 0, 0, 11);
    builder_feature(b, builder_table(b, 8, 3), POOL_SUM, 7); /* only padding: nothing to update */
    BAG(b, 7, 7);
}

/* Row 0 is padding, and the number of rows is a power of two, so that keys need one bit more for
 * the padding. */
static void padding_0(struct builder *b, int32_t n) {
    int32_t t = builder_table(b, n, 5);
    builder_feature(b, t, POOL_SUM, -1);
    BAG(b, 0, 3);
    builder_feature(b, t, POOL_SUM, 0);
    BAG(b, 0, 0, 5);
    BAG(b, 0);
    builder_feature(b, t, POOL_SUM, -1);
    BAG(b, 7, 0);
}

static void narrow_ids(struct builder *b, int32_t n) {
    b->id_type = ID_INT32;
    padding(b, n);
    shared_table(b, n);
}

static void ragged_bags(struct builder *b, int32_t n) {
    one(b, 200, 12, POOL_SUM);
    builder_random_bags(b, 10, 1);
    builder_random_bags(b, 3, n);
    builder_random_bags(b, 10, 3);
}

static void duplicates_in_bag(struct builder *b, int32_t n) {
    (void)n;
    one(b, 15, 9, POOL_SUM);
    BAG(b, 4, 4, 4, 2, 4);
    BAG(b, 2, 4, 2);
    BAG(b, 14, 14);
    one(b, 15, 9, POOL_MEAN);
    BAG(b, 4, 4, 4, 4);
    BAG(b, 2, 4, 2, 2);
}

/* Gradient rows that are whole and aligned, which device kernels read in ways of their own; of two widths that are
 * covered alike. Short runs, and one that is longer than what a group of lanes takes. */
static int64_t one_in_four_is_7(int64_t i) {
    return i % 4 ? i * 37 % 389 : 7;
}

static void whole_rows(struct builder *b, int32_t n) {
    b->gap = 8;
    one(b, 400, n, POOL_SUM);
    bags_of(b, 150, 4, one_in_four_is_7);
    one(b, 90, n > 8 ? n - 8 : n, POOL_NONE);
    builder_random_bags(b, 30, 4);
}

static void whole_rows_weighted(struct builder *b, int32_t n) {
    b->weighted = true;
    whole_rows(b, n);
}

static void whole_rows_of_means(struct builder *b, int32_t n) {
    b->gap = 8;
    builder_feature(b, builder_table(b, 500, n), POOL_MEAN, 7);
    bags_of(b, 150, 4, one_in_four_is_7);
}

/* Shapes of above with a max in place of sums and means, but for each third feature. */
static void max(struct builder *b, int32_t n) {
    static const struct {
        void (*make)(struct builder *b, int32_t n);
        int32_t n;
    } of[] = {{empty_bags, 0},     {dim, 1},           {dim, 3},
              {dim, 15},           {dim, 64},          {dim, 127},
              {wide_rows, 5001},   {mixed_tables, 10}, {hot_row, 100000},
              {many_rows, 200000}, {long_runs, 1},     {long_run_alone, 0},
              {hot_rows, 1},       {small_tables, 1},  {giant_bag, 20000},
              {narrow_ids, 0},     {ragged_bags, 400}, {duplicates_in_bag, 0}};
    of[n].make(b, of[n].n);
    for (int32_t f = 0; f < b->in.num_features; f++)
        if (f % 3 < 2 && b->features[f].pooling != POOL_NONE) b->features[f].pooling = POOL_MAX;
}

const struct shape shapes[] = {
    {"no ids", no_ids, 0, EXACT_AND_REAL},
    {"no ids of several features", no_ids_anywhere, 0, EXACT_AND_REAL},
    {"no ids, weighted, int32", no_ids_anywhere, 1, EXACT_AND_REAL},
    {"no ids, no pooling", no_ids_anywhere, 2, EXACT_AND_REAL},
    {"one id", one_id, 0, EXACT_AND_REAL},
    {"all equal", all_equal, 0, EXACT_AND_REAL},
    {"192 distinct", all_distinct, 192, EXACT_AND_REAL},
    {"193 distinct", all_distinct, 193, EXACT_AND_REAL},
    {"empty bags", empty_bags, 0, EXACT_AND_REAL},
    {"dim 1", dim, 1, EXACT_AND_REAL},
    {"dim 3", dim, 3, EXACT_AND_REAL},
    {"dim 15", dim, 15, EXACT_AND_REAL},
    {"dim 17", dim, 17, EXACT_AND_REAL},
    {"dim 64", dim, 64, EXACT_AND_REAL},
    {"dim 100", dim, 100, EXACT_AND_REAL},
    {"dim 127", dim, 127, EXACT_AND_REAL},
    {"dim 128", dim, 128, EXACT_AND_REAL},
    {"dim 1000", dim, 1000, EXACT_AND_REAL},
    {"dim 5001", wide_rows, 5001, EXACT_AND_REAL},
    {"last of 64 rows", last_row, 64, EXACT_AND_REAL},
    {"last of 65 rows", last_row, 65, EXACT_AND_REAL},
    {"last of 4097 rows", last_row, 4097, EXACT_AND_REAL},
    {"tables of 1 to 3 rows", tiny_tables, 0, EXACT_AND_REAL},
    {"one row alone", one_row_alone, 0, EXACT_AND_REAL},
    {"mixed tables", mixed_tables, 10, EXACT_AND_REAL},
    {"more tables than lookups", more_tables_than_lookups, 12, EXACT_AND_REAL},
    {"384 tables, two lookups", more_tables_than_lookups, 383, EXACT_ONLY},
    {"385 tables, two lookups", more_tables_than_lookups, 384, EXACT_ONLY},
    {"tables read backwards", tables_read_backwards, 6, EXACT_AND_REAL},
    {"many tables", mixed_tables, 100, EXACT_AND_REAL},
    {"one row hit 10^6 times", hot_row, 1000000, EXACT_ONLY},
    {"many rows", many_rows, 200000, EXACT_AND_REAL},
    {"rows in stretches", rows_in_stretches, 65536, EXACT_AND_REAL},
    {"long runs", long_runs, 1, EXACT_AND_REAL},
    {"long runs, weighted", long_runs, 2, EXACT_AND_REAL},
    {"long runs, weighted, shared", long_runs, 3, EXACT_AND_REAL},
    {"long run alone", long_run_alone, 0, EXACT_AND_REAL},
    {"long run alone, weighted", long_run_alone, 1, EXACT_AND_REAL},
    {"hot rows", hot_rows, 1, EXACT_AND_REAL},
    {"hot rows, weighted", hot_rows, 2, EXACT_AND_REAL},
    {"hot rows, no pooling", hot_rows, 3, EXACT_AND_REAL},
    {"small tables", small_tables, 1, EXACT_AND_REAL},
    {"small tables, weighted", small_tables, 2, EXACT_AND_REAL},
    {"small tables, no pooling", small_tables, 3, EXACT_AND_REAL},
    {"single giant bag", giant_bag, 20000, EXACT_AND_REAL},
    {"mean", mean, 0, EXACT_AND_REAL},
    {"weighted mean", weighted_mean, 0, EXACT_AND_REAL},
    {"ragged mean, padding", ragged_mean, 0, REAL_ONLY},
    {"weighted ragged mean, padding", ragged_mean, 1, REAL_ONLY},
    {"weighted", weighted, 0, EXACT_AND_REAL},
    {"no pooling", none, 0, EXACT_AND_REAL},
    {"no pooling, weighted", none, 1, EXACT_AND_REAL},
    {"shared table", shared_table, 0, EXACT_AND_REAL},
    {"shared table, weighted", shared_table, 1, EXACT_AND_REAL},
    {"padding", padding, 0, EXACT_AND_REAL},
    {"padding, weighted", padding, 1, EXACT_AND_REAL},
    {"padding is row 0", padding_0, 16, EXACT_AND_REAL},
    {"int32 ids, padding, shared", narrow_ids, 0, EXACT_AND_REAL},
    {"int32 ids, padding, shared, weighted", narrow_ids, 1, EXACT_AND_REAL},
    {"ragged bags", ragged_bags, 400, EXACT_AND_REAL},
    {"duplicates in a bag", duplicates_in_bag, 0, EXACT_AND_REAL},
    {"one hot row", one_hot_row, 5000, EXACT_AND_REAL},
    {"whole rows of 4", whole_rows, 4, EXACT_AND_REAL},
    {"whole rows of 16", whole_rows, 16, EXACT_AND_REAL},
    {"whole rows of 32", whole_rows, 32, EXACT_AND_REAL},
    {"whole rows of 64", whole_rows, 64, EXACT_AND_REAL},
    {"whole rows of 128", whole_rows, 128, EXACT_AND_REAL},
    {"whole rows of 200", whole_rows, 200, EXACT_AND_REAL},
    {"whole rows of 512", whole_rows, 512, EXACT_AND_REAL},
    {"whole rows of 64, weighted", whole_rows_weighted, 64, EXACT_AND_REAL},
    {"whole rows of 64, mean, padding", whole_rows_of_means, 64, REAL_ONLY},
    {"max, empty bags", max, 0, EXACT_AND_REAL},
    {"max, dim 1", max, 1, EXACT_AND_REAL},
    {"max, dim 3", max, 2, EXACT_AND_REAL},
    {"max, dim 15", max, 3, EXACT_AND_REAL},
    {"max, dim 64", max, 4, EXACT_AND_REAL},
    {"max, dim 127", max, 5, EXACT_AND_REAL},
    {"max, dim 5001", max, 6, EXACT_AND_REAL},
    {"max, mixed tables", max, 7, EXACT_AND_REAL},
    {"max, one row hit 10^5 times", max, 8, EXACT_ONLY},
    {"max, many rows", max, 9, EXACT_AND_REAL},
    {"max, long runs", max, 10, EXACT_AND_REAL},
    {"max, long run alone", max, 11, EXACT_AND_REAL},
    {"max, hot rows", max, 12, EXACT_AND_REAL},
    {"max, small tables", max, 13, EXACT_AND_REAL},
    {"max, single giant bag", max, 14, EXACT_AND_REAL},
    {"max, int32 ids, padding, shared", max, 15, EXACT_AND_REAL},
    {"max, ragged bags", max, 16, EXACT_AND_REAL},
    {"max, duplicates in a bag", max, 17, EXACT_AND_REAL},
};

const int num_shapes = sizeof shapes / sizeof *shapes;

void shape_build(const struct shape *s, const struct kernel *k, bool exact, struct builder *b) {
    builder_begin(b, 1 + (uint64_t)(s - shapes), exact);
    b->smaller = builder_smaller(k);
    s->make(b, s->n);
    builder_finish(b);
}
