/* SPDX-License-Identifier: MIT */
#include "tests/support/shapes.h"

#include <math.h>
#include <stdlib.h>

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

/* --- a feature: which rows of its table are looked up, and how long its bags are */

enum skew { EVEN, SKEWED, STEEP, ONE_HOT, FIVE_HOT, DISTINCT, STRETCHES, ENDS, SKEWS, ONE_IN_FOUR };
enum lengths { FIXED, RAGGED, MOSTLY_EMPTY, ONE_LONG, LENGTHS };

struct part {
    int64_t rows; /* of a table of its own; 0: the feature reads table 0 */
    int32_t dim;
    enum pooling pooling;
    int64_t padding, bags, most; /* most: the length of all bags, or its limit */
    enum lengths lengths;
    enum skew skew;
    int64_t among;   /* only the first so many rows are looked up; 0: all */
    int64_t longest; /* the length of one bag in the middle; 0: as the others */
};

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
    case ONE_IN_FOUR: return i % 4 ? i * 37 % rows : 7;
    default: return (int64_t)(u * (double)rows);
    }
}

/* In exact mode means are of bags whose length is a power of two. */
static int64_t draw_length(struct dice *d, enum lengths lengths, int64_t most, bool power) {
    const int64_t any = roll(d, most + 1), length = lengths == FIXED    ? most
                                                    : lengths == RAGGED ? any
                                                    : lengths == MOSTLY_EMPTY
                                                        ? (one_in(d, 6) ? any : 0)
                                                        : roll(d, 3);
    return power && length ? INT64_C(1) << (int)log2(fmin((double)length, 8)) : length;
}

static void add_feature(struct builder *b, struct dice *d, int32_t table, const struct part *p) {
    const int64_t rows = p->among ? p->among : b->shapes[table].rows;
    const bool power = b->exact && p->pooling == POOL_MEAN;
    int64_t *ids = malloc((size_t)(p->most + p->longest + 1) * sizeof *ids), next = 0;
    if (!ids) abort();
    builder_feature(b, table, p->pooling, p->padding);
    for (int64_t q = 0; q < p->bags; q++) {
        const bool longest = q == p->bags / 2 && p->longest > p->most;
        const int64_t length = longest ? p->longest : draw_length(d, p->lengths, p->most, power);
        for (int64_t k = 0; k < length; k++) ids[k] = draw_id(d, p->skew, rows, next++);
        builder_bag(b, length, ids);
    }
    free(ids);
}

static struct dice dice_of(const struct builder *b) {
    return (struct dice){rng_key(b->seed, 96), 0};
}

/* --- pinned shapes, a feature in each line */

/* The last shard of an epoch: no feature has a lookup, and the gradient of sequences has no row. */
static const struct part no_ids[] = {{5, 4, POOL_MEAN, -1, 1, 0},
                                     {6, 5, POOL_MEAN, -1, 1, 0},
                                     {7, 6, POOL_MEAN, -1, 1, 0},
                                     {0, 0, POOL_SUM, 3, 1, 0}};

/* With 192 lookups (and with 384 tables in more_tables_than_lookups) a scratch array ends where the
 * next one begins. With one more, an array that is one element short overlaps the next one. */
static const struct part distinct_192[] = {{300, 8, POOL_SUM, -1, 192, 1, FIXED, DISTINCT}},
                         distinct_193[] = {{300, 8, POOL_SUM, -1, 193, 1, FIXED, DISTINCT}};

/* Rows wider than a device block covers with registers; segments that span several chunks. */
static const struct part wide_rows[] = {{3, 5001, POOL_SUM, -1, 12, 4, RAGGED, SKEWED},
                                        {2, 5001, POOL_NONE, -1, 70, 4, FIXED, ONE_HOT}};

static const struct part hot_row[] = {{9, 3, POOL_SUM, -1, 1000, 1000, FIXED, DISTINCT, 1}};

static const struct part many_rows[] = {{200000, 4, POOL_SUM, -1, 4000, 12, RAGGED, SKEWED},
                                        {67000, 6, POOL_SUM, -1, 2000, 12, RAGGED, SKEWED}};

/* Segments below and above the length from which a kernel may split them. */
static const struct part long_runs[] = {{30000, 70, POOL_SUM, -1, 100, 450, FIXED, FIVE_HOT},
                                        {0, 0, POOL_NONE, 2, 40, 5, FIXED, FIVE_HOT}};

/* A segment that a kernel may split; no few rows get most of the lookups. */
static const struct part long_run_alone[] = {
    {13000, 35, POOL_SUM, -1, 1200, 20, FIXED, ONE_IN_FOUR, 799}};

/* Few rows with so many lookups that a kernel may keep them apart; a feature has one as padding. */
static const struct part hot_rows[] = {{5000, 70, POOL_SUM, -1, 150, 20, FIXED, FIVE_HOT},
                                       {0, 0, POOL_MEAN, -1, 200, 8, FIXED, FIVE_HOT},
                                       {5000, 16, POOL_SUM, 3, 70, 30, FIXED, FIVE_HOT},
                                       {3, 64, POOL_SUM, -1, 150, 12, RAGGED, SKEWED}};

/* A single row that is kept apart has the largest number of slices for its sums; the last slice
 * covers two features. */
static const struct part one_hot_row[] = {{2000, 6, POOL_SUM, -1, 300, 20, FIXED, ONE_HOT},
                                          {0, 0, POOL_SUM, -1, 5, 10, FIXED, ONE_HOT}};

/* Tables with so few rows and so many lookups that a kernel may keep a sum for each row: one with
 * enough lookups to do so in parts, one with sums beyond a core's L2 cache, one with neither. */
static const struct part small_tables[] = {{300, 19, POOL_SUM, -1, 1800, 20, FIXED, DISTINCT},
                                           {0, 0, POOL_MEAN, -1, 4200, 8, FIXED, DISTINCT},
                                           {3000, 64, POOL_SUM, -1, 700, 10, FIXED, DISTINCT},
                                           {300, 16, POOL_SUM, 7, 300, 10, FIXED, DISTINCT},
                                           {20000, 8, POOL_SUM, -1, 300, 12, RAGGED, SKEWED}};

/* Few rows of large tables, so often that a kernel may number the rows as they come. */
static const struct part numbered[] = {{33000, 48, POOL_SUM, -1, 450, 12, FIXED, DISTINCT, 700},
                                       {0, 0, POOL_MEAN, 132, 300, 10, FIXED, DISTINCT, 700},
                                       {20000, 64, POOL_SUM, -1, 300, 12, RAGGED, SKEWED},
                                       {33000, 32, POOL_SUM, -1, 820, 10, FIXED, DISTINCT, 700},
                                       {300, 4, POOL_SUM, -1, 820, 23, FIXED, DISTINCT}};

static const struct part giant_bag[] = {{50, 5, POOL_SUM, -1, 1, 20000, FIXED, DISTINCT, 50}};

/* Long and short runs of tables whose rows the same lanes of a device cover, some lanes idle in every second one. Chunks
 * of sorted entries have entries of several tables. */
static const struct part cover_64[] = {{1200, 36, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT},
                                       {1200, 64, POOL_SUM, -1, 1, 3, FIXED, FIVE_HOT},
                                       {1200, 36, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT},
                                       {1200, 64, POOL_NONE, -1, 23, 20, FIXED, FIVE_HOT},
                                       {1200, 36, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT}},
                         cover_256[] = {{1200, 132, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT},
                                        {1200, 256, POOL_SUM, -1, 1, 3, FIXED, FIVE_HOT},
                                        {1200, 132, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT},
                                        {1200, 256, POOL_NONE, -1, 23, 20, FIXED, FIVE_HOT},
                                        {1200, 132, POOL_SUM, -1, 23, 20, FIXED, FIVE_HOT}};

/* Many blocks of a device, and a tree of several levels; rows of which a warp takes more than it updates at once. */
static const struct part all_over[] = {{80000, 4, POOL_SUM, -1, 2250, 4, FIXED, EVEN}},
                         many_times[] = {{80000, 4, POOL_NONE, -1, 2250, 4, FIXED, ONE_IN_FOUR}},
                         several_widths[] = {{80000, 4, POOL_SUM, 7, 2250, 4, FIXED, ONE_IN_FOUR},
                                             {5, 4, POOL_SUM, -1, 1125, 4, FIXED, EVEN},
                                             {1000, 200, POOL_SUM, -1, 281, 4, FIXED, EVEN}},
                         two_wide[] = {{9000, 128, POOL_SUM, -1, 2250, 4, FIXED, EVEN},
                                       {9000, 128, POOL_SUM, -1, 2250, 4, FIXED, EVEN}};

/* Sizes that are large are smaller where a kernel is slow: lookups on an emulated device, those of
 * very large batches with a sanitizer, too; and rows, over which dense kernels sweep. */
static struct part scaled(const struct builder *b, unsigned flags, struct part p) {
    const int64_t lookups = p.bags * p.most, slow = b->smaller > SMALLER ? b->smaller : SMALLER,
                  by = flags & SHAPE_LARGE ? (WITH_THREAD_SANITIZER ? 16
                                              : WITH_SANITIZER      ? 2
                                                                    : 1)
                       : lookups > 40000   ? slow
                       : lookups > 1000    ? b->smaller
                                           : 1;
    if (p.bags > p.most)
        p.bags /= by;
    else
        p.most /= by;
    if (p.rows >= 5000 && !(flags & SHAPE_LARGE)) {
        p.rows /= WITH_THREAD_SANITIZER ? 64 : slow > 1 ? 16 : 1;
        p.rows = p.rows < 1200 ? 1200 : p.rows;
    }
    return p;
}

static void add_parts(struct builder *b, const struct shape *s) {
    struct dice d = dice_of(b);
    for (int32_t f = 0; f < s->num_parts; f++) {
        struct part p = scaled(b, s->flags, s->parts[f]);
        if (s->flags & SHAPE_SEQUENCES && (f == 0 || p.most == 0)) p.pooling = POOL_NONE;
        if (s->flags & SHAPE_MAX && f % 3 < 2 && p.pooling != POOL_NONE) p.pooling = POOL_MAX;
        add_feature(b, &d, p.rows ? builder_table(b, p.rows, p.dim) : 0, &p);
    }
}

static void more_tables_than_lookups(struct builder *b, const struct shape *s) {
    /* An emulated device unlocks and locks all arrays at every launch: time grows with tables^2. */
    const int32_t n = b->smaller > 1 ? 36 : s->n;
    for (int32_t t = 0; t < n; t++) {
        const int64_t id = t;
        builder_feature(b, builder_table(b, 10 + t, 3), POOL_SUM, -1);
        if (t == 1 || t == n - 1) builder_bag(b, 1, &id);
    }
    builder_table(b, 6, 2); /* that no feature reads */
}

static void many_tables(struct builder *b, const struct shape *s) {
    static const struct {
        int64_t rows;
        int32_t dim;
    } tables[] = {{1, 1}, {200, 16}, {64, 3}, {3, 100}, {1000, 4}, {65, 17}, {7, 32}, {128, 5}};
    for (int32_t t = 0; t < (b->smaller > 1 ? 20 : s->n); t++) {
        builder_feature(b, builder_table(b, tables[t % 8].rows, tables[t % 8].dim),
                        t % 3 == 2 ? POOL_NONE : POOL_SUM, -1);
        builder_random_bags(b, 25, 3 + t % 5);
    }
}

/* The number of rows is a power of two, and row 0 is padding for one feature alone, so that keys
 * need one bit more for the padding. */
static void padding_0(struct builder *b, const struct shape *s) {
    const int32_t t = builder_table(b, s->n, 5);
    for (int f = 0; f < 3; f++) {
        builder_feature(b, t, POOL_SUM, f == 1 ? 0 : -1);
        builder_bag(b, 3, (const int64_t[]){0, 3 + 2 * f, 0});
        builder_bag(b, f, (const int64_t[]){0, s->n - 1});
    }
}

static void draw(struct builder *b, const struct shape *s);

#define PARTS(of) .make = add_parts, .parts = of, .num_parts = sizeof of / sizeof *of
const struct shape shapes[] = {
    {"no ids, weighted, int32", EXACT_AND_REAL, PARTS(no_ids),
     .flags = SHAPE_WEIGHTED | SHAPE_INT32},
    {"no ids, no pooling", EXACT_AND_REAL, PARTS(no_ids), .flags = SHAPE_SEQUENCES | SHAPE_INT32},
    {"192 distinct", EXACT_AND_REAL, PARTS(distinct_192)},
    {"193 distinct", EXACT_AND_REAL, PARTS(distinct_193)},
    {"384 tables, two lookups", EXACT_ONLY, more_tables_than_lookups, 383},
    {"385 tables, two lookups", EXACT_ONLY, more_tables_than_lookups, 384},
    {"many tables", REAL_ONLY, many_tables, 100},
    {"padding is row 0", EXACT_AND_REAL, padding_0, 16},
    {"dim 5001", REAL_ONLY, PARTS(wide_rows)},
    {"one row hit 10^6 times", EXACT_ONLY, PARTS(hot_row)},
    {"many rows", REAL_ONLY, PARTS(many_rows)},
    {"long runs, weighted, shared", EXACT_ONLY, PARTS(long_runs), .flags = SHAPE_WEIGHTED},
    {"long run alone", REAL_ONLY, PARTS(long_run_alone)},
    {"hot rows, no pooling", EXACT_ONLY, PARTS(hot_rows), .flags = SHAPE_SEQUENCES},
    {"hot rows, weighted", REAL_ONLY, PARTS(hot_rows), .flags = SHAPE_WEIGHTED},
    {"one hot row", EXACT_AND_REAL, PARTS(one_hot_row)},
    {"small tables, weighted", EXACT_ONLY, PARTS(small_tables), .flags = SHAPE_WEIGHTED},
    {"numbered tables", REAL_ONLY, PARTS(numbered), .flags = SHAPE_SEQUENCES},
    {"numbered tables, weighted", REAL_ONLY, PARTS(numbered), .flags = SHAPE_WEIGHTED},
    {"single giant bag", REAL_ONLY, PARTS(giant_bag)},
    {"dims 36 and 64, long runs", REAL_ONLY, PARTS(cover_64)},
    {"dims 132 and 256, long runs", EXACT_ONLY, PARTS(cover_256)},
    {"max, long runs", REAL_ONLY, PARTS(long_runs), .flags = SHAPE_MAX},
    {"max, hot rows", EXACT_ONLY, PARTS(hot_rows), .flags = SHAPE_MAX},
    {"max, small tables", REAL_ONLY, PARTS(small_tables), .flags = SHAPE_MAX},
    {"max, single giant bag", EXACT_ONLY, PARTS(giant_bag), .flags = SHAPE_MAX},
    {"max, numbered tables", EXACT_ONLY, PARTS(numbered), .flags = SHAPE_MAX},
    /* Two features read a table, of as many features as tables; one is a sequence. */
    {"two features of one table", REAL_ONLY, draw, .seed = 20261526},
    /* A row of 212 columns, which more lanes cover, ends where the gradients do. */
    {"idle lanes at the end", REAL_ONLY, draw, .seed = 20261548},
    /* Two steps of a lookup each that cancel: the weight between them is larger, and is rounded, too. */
    {"steps that cancel", EXACT_ONLY, draw, .seed = 20264345},
    {"rows all over", REAL_ONLY, PARTS(all_over), .flags = SHAPE_LARGE},
    {"a quarter of it one row", REAL_ONLY, PARTS(many_times), .flags = SHAPE_LARGE},
    {"several widths", REAL_ONLY, PARTS(several_widths), .flags = SHAPE_LARGE | SHAPE_WEIGHTED},
    {"wide rows of two tables", REAL_ONLY, PARTS(two_wide), .flags = SHAPE_LARGE},
};

const int num_shapes = sizeof shapes / sizeof *shapes;

/* --- drawn shapes */

static struct part draw_part(const struct builder *b, struct dice *d, int64_t rows, int64_t bags,
                             int64_t most) {
    struct part p = {.bags = bags, .most = most, .padding = -1};
    p.pooling = (enum pooling)roll(d, b->weighted ? POOL_MAX : POOL_MAX + 1);
    p.skew = (enum skew)roll(d, SKEWS);
    p.lengths = (enum lengths)roll(d, LENGTHS);
    const bool power = b->exact && p.pooling == POOL_MEAN;
    if (one_in(d, 3) && !power) p.padding = draw_id(d, p.skew, rows, 0);
    if (p.lengths == ONE_LONG && !power) p.longest = bags * most;
    if (one_in(d, 4)) p.bags -= roll(d, bags);
    return p;
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
static void draw(struct builder *b, const struct shape *s) {
    static const int32_t tables[] = {1, 1, 1, 2, 3, 5, 9, 20};
    struct dice d = dice_of(b);
    (void)s;
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
        for (int64_t f = 0; f < features; f++) {
            const struct part p = draw_part(b, &d, b->shapes[t].rows, bags, 1 + lookups / bags);
            add_feature(b, &d, t, &p);
        }
    }
    if (b->in.num_features) return;
    builder_feature(b, builder_table(b, 3, 2), POOL_SUM, -1);
    builder_bag(b, 0, NULL);
}

struct shape shape_drawn(uint64_t seed) {
    return (struct shape){"a drawn one", seed % 2 ? EXACT_ONLY : REAL_ONLY, draw, .seed = seed};
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
    b->weighted = s->flags & SHAPE_WEIGHTED;
    if (s->flags & SHAPE_INT32) b->id_type = ID_INT32;
    s->make(b, s);
    builder_finish(b);
}

/* Settings that act on most gradients of the builder, one or several at a time. */
static void draw_shared(uint64_t seed, int32_t t, float shared[RULE_SHARED]) {
    static const float values[RULE_SHARED] = {
        [GRAD_SCALE] = 0.375f, [MAXIMIZE] = 1,         [CLIP_VALUE] = 0.03f,
        [CLIP_NORM] = 0.125f,  [WEIGHT_DECAY] = 0.25f, [DECOUPLED_WEIGHT_DECAY] = 1};
    for (int k = 0; k < RULE_SHARED; k++)
        shared[k] = shape_choice(seed, 100 + (uint64_t)(t * RULE_SHARED + k), 3) ? 0 : values[k];
}

bool shape_dress(const struct shape *s, const struct kernel *k, enum rule_kind rule,
                 struct builder *b) {
    const bool adjusts =
        s->seed && !(k->traits & STEP_PER_LOOKUP) && shape_choice(s->seed, 1, 4) == 0;
    builder_rules(b, k, rule);
    builder_storage(b, k,
                    s->seed ? (int)shape_choice(s->seed, 2 + (uint64_t)rule, 6 * STORAGES)
                            : (int)(s - shapes) + (int)rule);
    for (int32_t t = 0; s->seed && t < b->in.num_tables; t++)
        if (shape_choice(s->seed, 50 + (uint64_t)t, 6) == 0) b->rules[t].param[RULE_LR] *= -1;
    for (int32_t t = 0; adjusts && t < b->in.num_tables; t++) {
        float shared[RULE_SHARED];
        draw_shared(s->seed, t, shared);
        builder_adjust(b, t, shared);
    }
    return adjusts;
}
