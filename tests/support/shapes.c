/* SPDX-License-Identifier: MIT */
#include "tests/support/shapes.h"

#include <math.h>
#include <stdlib.h>

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

/* --- pinned shapes: few lookups */

/* The last shard of an epoch: no feature has a lookup, and the gradient of sequences has no row. */
static void no_ids(struct builder *b, int32_t n) {
    b->weighted = n > 0;
    if (n > 0) b->id_type = ID_INT32;
    for (int32_t f = 0; f < 3; f++) {
        one(b, 5 + f, 4 + f, n == 2 ? POOL_NONE : POOL_MEAN);
        builder_bag(b, 0, NULL);
    }
    builder_feature(b, 0, n == 2 ? POOL_NONE : POOL_SUM, 3);
    builder_bag(b, 0, NULL);
}

static int64_t scattered(int64_t i) {
    return i * 37 % 211;
}

/* With 192 lookups (and with 384 tables in more_tables_than_lookups) a scratch array ends where the
 * next one begins. With one more, an array that is one element short overlaps the next one. */
static void all_distinct(struct builder *b, int32_t n) {
    one(b, 300, 8, POOL_SUM);
    bags_of(b, n, 1, scattered);
}

static void more_tables_than_lookups(struct builder *b, int32_t n) {
    /* An emulated device unlocks and locks all arrays at every launch: time grows with tables^2. */
    if (b->smaller > 1 && n > 36) n = 36;
    for (int32_t t = 0; t < n; t++) {
        const int64_t id = t;
        one(b, 10 + t, 3, POOL_SUM);
        if (t == 1 || t == n - 1) builder_bag(b, 1, &id);
    }
    builder_table(b, 6, 2); /* that no feature reads */
}

/* The number of rows is a power of two, and row 0 is padding for one feature alone, so that keys
 * need one bit more for the padding. */
static void padding_0(struct builder *b, int32_t n) {
    const int32_t t = builder_table(b, n, 5);
    for (int f = 0; f < 3; f++) {
        builder_feature(b, t, POOL_SUM, f == 1 ? 0 : -1);
        builder_bag(b, 3, (const int64_t[]){0, 3 + 2 * f, 0});
        builder_bag(b, f, (const int64_t[]){0, n - 1});
    }
}

/* --- pinned shapes: many columns, tables or lookups */

static int64_t always_1(int64_t i) {
    (void)i;
    return 1;
}

/* Rows wider than a device block covers with registers; segments that span several chunks. */
static void wide_rows(struct builder *b, int32_t n) {
    one(b, 3, n, POOL_SUM);
    builder_random_bags(b, 12, 4);
    one(b, 2, n, POOL_NONE);
    bags_of(b, 70, 4, always_1);
}

static void many_tables(struct builder *b, int32_t n) {
    static const struct {
        int64_t rows;
        int32_t dim;
    } tables[] = {{1, 1}, {200, 16}, {64, 3}, {3, 100}, {1000, 4}, {65, 17}, {7, 32}, {128, 5}};
    if (b->smaller > 1 && n > 20) n = 20;
    for (int32_t t = 0; t < n; t++) {
        one(b, tables[t % 8].rows, tables[t % 8].dim, t % 3 == 2 ? POOL_NONE : POOL_SUM);
        builder_random_bags(b, 25, 3 + t % 5);
    }
}

/* Divided at least by SMALLER: here sanitizers are slow enough to matter. */
static int64_t large(const struct builder *b, int64_t n) {
    return n / (b->smaller > SMALLER ? b->smaller : SMALLER);
}

/* Rows of a large table: slow for a kernel that sweeps over all of them on an emulated device. */
static int64_t many(const struct builder *b, int64_t n) {
    const int64_t rows = n / (WITH_THREAD_SANITIZER ? 64 : b->smaller > 1 || SMALLER > 1 ? 16 : 1);
    return rows < 1200 ? 1200 : rows; /* five_hot() and one_in_four() need as many */
}

static int64_t mostly_5(int64_t i) {
    return i % 1000 == 999 ? 8 : 5;
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
    return i % 4 ? i * 37 % 799 : 7;
}

static void long_run_alone(struct builder *b, int32_t n) {
    (void)n;
    one(b, many(b, 13000), 35, POOL_SUM);
    bags_of(b, 1200 / b->smaller, 20, one_in_four);
}

/* Few rows with so many lookups that a kernel may keep them apart; a feature has one as padding. */
static void hot_rows(struct builder *b, int32_t n) {
    b->weighted = n == 2;
    const int64_t rows = b->smaller > 1 ? 1200 : 5000;
    one(b, rows, 70, n == 3 ? POOL_NONE : POOL_SUM);
    bags_of(b, 150 / b->smaller, 20, five_hot);
    builder_feature(b, 0, POOL_MEAN, -1);
    bags_of(b, 100 / b->smaller, 16, five_hot);
    builder_feature(b, builder_table(b, rows, 16), POOL_SUM, 3);
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
    one(b, many(b, 20000), 8, POOL_SUM);
    builder_random_bags(b, 300 / b->smaller, 12);
}

static int64_t of_700(int64_t i) {
    return i * 7919 % 700 * 2;
}

/* Few rows of large tables, so often that a kernel may number the rows as they come. */
static void numbered_tables(struct builder *b, int32_t n) {
    b->weighted = n == 2;
    one(b, many(b, 33000), 48, n == 3 ? POOL_NONE : POOL_SUM);
    bags_of(b, 450 / b->smaller, 12, of_700);
    builder_feature(b, 0, POOL_MEAN, 132);
    bags_of(b, 300 / b->smaller, 10, of_700);
    one(b, many(b, 20000), 64, POOL_SUM);
    builder_random_bags(b, 300 / b->smaller, 12);
    one(b, many(b, 33000), 32, POOL_SUM);
    bags_of(b, 820 / b->smaller, 10, of_700);
    one(b, 300, 4, POOL_SUM);
    bags_of(b, 820 / b->smaller, 23, of_300);
}

static int64_t of_50(int64_t i) {
    return i * i % 50;
}

static void giant_bag(struct builder *b, int32_t n) {
    one(b, 50, 5, POOL_SUM);
    builder_bag(b, 0, NULL);
    bags_of(b, 1, n / b->smaller, of_50);
}

/* Long and short runs of tables whose rows the same lanes of a device cover, some lanes idle in every second one. Chunks
 * of sorted entries have entries of several tables. */
static void one_cover(struct builder *b, int32_t n) {
    for (int32_t t = 0; t < 5; t++) {
        one(b, many(b, 3000), t % 2 ? n : n / 2 + 4, t == 3 ? POOL_NONE : POOL_SUM);
        bags_of(b, t == 1 ? 1 : 23, t == 1 ? 3 : 20, five_hot);
    }
}

/* Shapes of above with a max in place of sums and means, but for each third feature. */
static void max(struct builder *b, int32_t n) {
    static const struct {
        void (*make)(struct builder *b, int32_t n);
        int32_t n;
    } of[] = {
        {long_runs, 1}, {hot_rows, 1}, {small_tables, 1}, {giant_bag, 20000}, {numbered_tables, 1}};
    of[n].make(b, of[n].n);
    for (int32_t f = 0; f < b->in.num_features; f++)
        if (f % 3 < 2 && b->features[f].pooling != POOL_NONE) b->features[f].pooling = POOL_MAX;
}

static void draw(struct builder *b, int32_t n);

const struct shape shapes[] = {
    {"no ids, weighted, int32", no_ids, 1, EXACT_AND_REAL, 0},
    {"no ids, no pooling", no_ids, 2, EXACT_AND_REAL, 0},
    {"192 distinct", all_distinct, 192, EXACT_AND_REAL, 0},
    {"193 distinct", all_distinct, 193, EXACT_AND_REAL, 0},
    {"384 tables, two lookups", more_tables_than_lookups, 383, EXACT_ONLY, 0},
    {"385 tables, two lookups", more_tables_than_lookups, 384, EXACT_ONLY, 0},
    {"many tables", many_tables, 100, REAL_ONLY, 0},
    {"padding is row 0", padding_0, 16, EXACT_AND_REAL, 0},
    {"dim 5001", wide_rows, 5001, REAL_ONLY, 0},
    {"one row hit 10^6 times", hot_row, 1000000, EXACT_ONLY, 0},
    {"many rows", many_rows, 200000, REAL_ONLY, 0},
    {"long runs, weighted, shared", long_runs, 3, EXACT_ONLY, 0},
    {"long run alone", long_run_alone, 0, REAL_ONLY, 0},
    {"hot rows, no pooling", hot_rows, 3, EXACT_ONLY, 0},
    {"hot rows, weighted", hot_rows, 2, REAL_ONLY, 0},
    {"one hot row", one_hot_row, 2000, EXACT_AND_REAL, 0},
    {"small tables, weighted", small_tables, 2, EXACT_ONLY, 0},
    {"numbered tables", numbered_tables, 3, REAL_ONLY, 0},
    {"numbered tables, weighted", numbered_tables, 2, REAL_ONLY, 0},
    {"single giant bag", giant_bag, 20000, REAL_ONLY, 0},
    {"dims 36 and 64, long runs", one_cover, 64, REAL_ONLY, 0},
    {"dims 132 and 256, long runs", one_cover, 256, EXACT_ONLY, 0},
    {"max, long runs", max, 0, REAL_ONLY, 0},
    {"max, hot rows", max, 1, EXACT_ONLY, 0},
    {"max, small tables", max, 2, REAL_ONLY, 0},
    {"max, single giant bag", max, 3, EXACT_ONLY, 0},
    {"max, numbered tables", max, 4, EXACT_ONLY, 0},
    /* Two features read a table, of as many features as tables; one is a sequence. */
    {"two features of one table", draw, 0, REAL_ONLY, 20261526},
    /* A row of 212 columns, which more lanes cover, ends where the gradients do. */
    {"idle lanes at the end", draw, 0, REAL_ONLY, 20261548},
    /* Two steps of a lookup each that cancel: the weight between them is larger, and is rounded, too. */
    {"steps that cancel", draw, 0, EXACT_ONLY, 20264345},
};

const int num_shapes = sizeof shapes / sizeof *shapes;

/* --- drawn shapes */

struct dice {
    uint64_t key, throws;
};

/* A number 0 .. count-1. */
static int64_t roll(struct dice *d, int64_t count) {
    return (int64_t)(rng_u64(d->key, d->throws++) % (uint64_t)count);
}

static bool one_in(struct dice *d, int64_t count) {
    return roll(d, count) == 0;
}

/* 1 .. most; each power of two is as likely as the next one. */
static int64_t any_size(struct dice *d, int64_t most) {
    const double u = rng_unit(d->key, d->throws++);
    return (int64_t)pow(2, u * log2((double)most + 1));
}

/* Which rows of a table are looked up. */
enum skew { EVEN, SKEWED, STEEP, ONE_HOT, FIVE_HOT, DISTINCT, STRETCHES, ENDS, SKEWS };

static int64_t draw_id(struct dice *d, enum skew skew, int64_t rows, int64_t i) {
    const double u = rng_unit(d->key, d->throws++);
    const bool hot = u * 16 < 15;
    switch (skew) {
    case SKEWED: return (int64_t)(u * u * (double)rows);
    case STEEP: return (int64_t)(pow(u, 8) * (double)rows);
    case ONE_HOT: return hot ? rows / 2 : roll(d, rows);
    case FIVE_HOT: return hot ? i * 7 % 5 % rows : roll(d, rows);
    case DISTINCT: return i * 7919 % rows;
    case STRETCHES: /* far apart, so that a kernel that splits rows by range gets empty parts */
        return (i % 5 * (rows / 5) + (int64_t)(u * (double)rows / 40)) % rows;
    case ENDS: return u < 0.4 ? 0 : u < 0.8 ? rows - 1 : rows / 2;
    default: return (int64_t)(u * (double)rows);
    }
}

/* How long the bags of a feature are. */
enum lengths { FIXED, RAGGED, MOSTLY_EMPTY, ONE_LONG, LENGTHS };

/* In exact mode means are of bags whose length is a power of two. */
static int64_t draw_length(struct dice *d, enum lengths lengths, int64_t most, bool power) {
    const int64_t any = roll(d, most + 1), length = lengths == FIXED    ? most
                                                    : lengths == RAGGED ? any
                                                    : lengths == MOSTLY_EMPTY
                                                        ? (one_in(d, 6) ? any : 0)
                                                        : roll(d, 3);
    return power && length ? INT64_C(1) << (int)log2(fmin((double)length, 8)) : length;
}

static void draw_feature(struct builder *b, struct dice *d, int32_t table, int64_t bags,
                         int64_t most) {
    const int64_t rows = b->shapes[table].rows;
    const enum pooling pooling = (enum pooling)roll(d, b->weighted ? POOL_MAX : POOL_MAX + 1);
    const enum skew skew = (enum skew)roll(d, SKEWS);
    const enum lengths lengths = (enum lengths)roll(d, LENGTHS);
    const bool power = b->exact && pooling == POOL_MEAN;
    const int64_t padding = one_in(d, 3) && !power ? draw_id(d, skew, rows, 0) : -1,
                  longest = lengths == ONE_LONG && !power ? bags * most : most;
    int64_t *ids = malloc((size_t)(longest + 1) * sizeof *ids), next = 0;
    if (!ids) abort();
    builder_feature(b, table, pooling, padding);
    bags -= one_in(d, 4) ? roll(d, bags) : 0;
    for (int64_t q = 0; q < bags; q++) {
        const bool longest_one = q == bags / 2 && longest > most;
        const int64_t length = longest_one ? longest : draw_length(d, lengths, most, power);
        for (int64_t k = 0; k < length; k++) ids[k] = draw_id(d, skew, rows, next++);
        builder_bag(b, length, ids);
    }
    free(ids);
}

/* Powers of two and their neighbours; few rows; any number. A dense step sweeps over all of
 * them. */
static int64_t draw_rows(const struct builder *b, struct dice *d, int32_t dim) {
    const bool slow = b->smaller > 1 || SMALLER > 1;
    const int64_t most = (WITH_THREAD_SANITIZER ? 2000 : slow ? 6000 : 300000) / (dim + 8) + 3;
    const int64_t rows =
        one_in(d, 3) ? (INT64_C(1) << roll(d, 15)) + roll(d, 3) - 1 : any_size(d, 30000);
    return rows < 1 ? 1 : rows > most ? most : rows;
}

/* Aligned rows are read in ways of their own. */
static int32_t draw_dim(struct dice *d, bool aligned) {
    static const int32_t dims[] = {1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 65, 100, 127, 130, 257},
                         whole[] = {4, 8, 16, 24, 32, 64, 100, 128, 200, 512};
    if (aligned) return whole[roll(d, sizeof whole / sizeof *whole)];
    return one_in(d, 3) ? (int32_t)any_size(d, 300) : dims[roll(d, sizeof dims / sizeof *dims)];
}

/* `elements` of gradients are split among tables, their features and the bags. */
static void draw(struct builder *b, int32_t n) {
    static const int32_t tables[] = {1, 1, 1, 2, 3, 5, 9, 20};
    struct dice d = {rng_key(b->seed, 96), 0};
    (void)n;
    const bool aligned = one_in(&d, 3), backwards = one_in(&d, 3);
    const int32_t count = tables[roll(&d, 8)];
    b->weighted = one_in(&d, 3);
    b->id_type = one_in(&d, 2) ? ID_INT32 : ID_INT64;
    b->gap = aligned ? 4 * (int32_t)roll(&d, 3) : (int32_t)roll(&d, 3);
    const int64_t elements =
        (INT64_C(1) << (9 + roll(&d, 9))) / (b->smaller > SMALLER ? b->smaller : SMALLER);
    int64_t width = 0;
    for (int32_t t = 0; t < count; t++) {
        const int32_t dim = draw_dim(&d, aligned);
        builder_table(b, draw_rows(b, &d, dim), dim);
        width += dim;
    }
    const int64_t lookups = 1 + elements / width, bags = any_size(&d, lookups);
    for (int32_t k = 0; k < count; k++) {
        const int32_t t = backwards ? count - 1 - k : k;
        const int64_t features = one_in(&d, 4) ? roll(&d, 4) : 1;
        for (int64_t f = 0; f < features; f++) draw_feature(b, &d, t, bags, 1 + lookups / bags);
    }
    if (b->in.num_features) return;
    one(b, 3, 2, POOL_SUM);
    builder_bag(b, 0, NULL);
}

struct shape shape_drawn(uint64_t seed) {
    return (struct shape){"a drawn one", draw, 0, seed % 2 ? EXACT_ONLY : REAL_ONLY, seed};
}

struct draws shape_draws(uint64_t usual) {
    const char *seed = getenv("SEED"), *draws = getenv("DRAWS");
    const uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    if (seed && !draws) return (struct draws){first, 1, true};
    return (struct draws){
        first, draws ? strtoull(draws, NULL, 10) : usual / (WITH_SANITIZER ? 4 : 1), false};
}

uint64_t shape_choice(uint64_t seed, uint64_t what, uint64_t count) {
    return rng_u64(rng_key(seed, 95), what) % count;
}

void shape_build(const struct shape *s, const struct kernel *k, bool exact, struct builder *b) {
    builder_begin(b, s->seed ? s->seed : 1 + (uint64_t)(s - shapes), exact);
    b->smaller = builder_smaller(k);
    s->make(b, s->n);
    builder_finish(b);
}
