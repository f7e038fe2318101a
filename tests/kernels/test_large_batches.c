/* SPDX-License-Identifier: MIT
 *
 * Device kernels on batches that are large for the emulation: more entries than one block sorts,
 * keys in all kinds of crowds, and what becomes no entry. cuda_fused_partition places the borders
 * of its buckets by a sample, so some batches are made against that sample. All kernels take part
 * that put lookups in order: those that are deterministic.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/device/sample.h"
#include "kernels/rng.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum {
    LOOKUPS = WITH_SANITIZER ? 5000 : 9000,
    PER_BAG = 4,
    ROWS = 80000,
    MANY_ROWS = (1 << 24) + 1, /* numbers of 25 bits */
    DIM = 4,
    HOT = 777
};

/* The row of lookup i. */
static int64_t all_over(int64_t i) {
    return (int64_t)(rng_u64(1, (uint64_t)i) % ROWS);
}

static int64_t one_row(int64_t i) {
    (void)i;
    return HOT;
}

static int64_t half_hot(int64_t i) {
    return rng_u64(2, (uint64_t)i) % 2 ? HOT : all_over(i);
}

/* In a region of 3 in 1000 rows, some of them hot. */
static int64_t hot_region(int64_t i) {
    const double u = rng_unit(3, (uint64_t)i);
    return i % 20 ? (int64_t)(u * u * u * 300) : all_over(i);
}

static int64_t ascending(int64_t i) {
    return i * 8;
}

static int64_t descending_pairs(int64_t i) {
    return ROWS - 1 - i / 2;
}

static bool is_sampled(int64_t i) {
    const struct sampling s = sampling_of(LOOKUPS, LOOKUPS, 2 * sizeof(uint32_t));
    const int64_t part = i * s.samples / LOOKUPS;
    for (int64_t k = part > 0 ? part - 1 : 0; k <= part + 1 && k < s.samples; k++)
        if (sampled_lookup(LOOKUPS, s.samples, (int)k) == i) return true;
    return false;
}

/* Every border is row 0, so nearly all lookups are in the last bucket. */
static int64_t unseen(int64_t i) {
    return is_sampled(i) ? 0 : half_hot(i);
}

/* The same, nearly all in the first bucket; keys of two digits. */
static int64_t unseen_below(int64_t i) {
    return is_sampled(i) ? ROWS / 4 : all_over(i) / 4;
}

/* The last bucket, with keys of four digits; nine in ten have the same highest digit. */
static int64_t unseen_far(int64_t i) {
    return is_sampled(i) ? 0
                         : MANY_ROWS - 1 - (i % 10 ? i * 37 % (1 << 16) : i * i % (1 << 22) * 4);
}

struct shape {
    const char *name;
    int64_t (*row)(int64_t i);
    enum pooling pooling;
    bool weighted, padding; /* padding: the hot row */
    int32_t small;          /* rows of a second table, which every other bag reads */
    int32_t wide_dim;       /* elements of a row of a third table */
    bool many;              /* MANY_ROWS, of one element each */
};

static const struct shape shapes[] = {
    {"all over", all_over, POOL_SUM, false, false, 0, 0},
    {"one row", one_row, POOL_SUM, false, false, 0, 0},
    {"half of it one row", half_hot, POOL_NONE, false, false, 0, 0},
    {"a hot region", hot_region, POOL_SUM, false, false, 0, 0},
    {"ascending", ascending, POOL_SUM, false, false, 0, 0},
    {"descending pairs", descending_pairs, POOL_SUM, false, false, 0, 0},
    {"against the sample", unseen, POOL_SUM, false, false, 0, 0},
    {"against the sample from below", unseen_below, POOL_SUM, false, false, 0, 0},
    {"against the sample, many rows", unseen_far, POOL_SUM, .many = true},
    {"means", half_hot, POOL_MEAN, false, false, 0, 0},
    {"weighted", half_hot, POOL_SUM, true, false, 0, 0},
    {"half of it padding", half_hot, POOL_SUM, false, true, 0, 0},
    {"beside a small table", half_hot, POOL_SUM, false, false, 5, 0},
    {"several widths, weighted", half_hot, POOL_SUM, true, true, 5, 200},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void add_feature(struct builder *b, const struct shape *s, int32_t table, int64_t rows,
                        int64_t lookups) {
    builder_feature(b, table, s->pooling, s->padding && rows == ROWS ? HOT : -1);
    for (int64_t q = 0; q < lookups / PER_BAG; q++) {
        int64_t ids[PER_BAG];
        for (int64_t k = 0; k < PER_BAG; k++) ids[k] = s->row(q * PER_BAG + k) % rows;
        builder_bag(b, PER_BAG, ids);
    }
}

static void build(struct builder *b, const struct shape *s) {
    builder_begin(b, 11, false);
    b->weighted = s->weighted;
    const int64_t rows = s->many ? MANY_ROWS : ROWS;
    add_feature(b, s, builder_table(b, rows, s->many ? 1 : DIM), rows, LOOKUPS);
    if (s->small) add_feature(b, s, builder_table(b, s->small, DIM), s->small, LOOKUPS / 2);
    if (s->wide_dim) add_feature(b, s, builder_table(b, 1000, s->wide_dim), 1000, LOOKUPS / 8);
    builder_finish(b);
    for (int32_t t = 0; t < b->in.num_tables; t++) builder_rule(b, t, RULE_rowwise_adagrad);
}

/* What the first kernel made of the shape that is tested. The others must give the same bits: they
 * sum the same entries in the same order. (Small tables have another order in some kernels.) */
struct bits {
    const struct shape *of;
    void *tables;
    size_t bytes;
};

static void same_bits(struct bits *first, const struct builder *b, const struct shape *s) {
    struct bits here = {.of = s};
    here.tables = builder_snapshot(b, &here.bytes);
    if (first->of != s) {
        free(first->tables);
        *first = here;
        return;
    }
    assert_int_equal(here.bytes, first->bytes);
    assert_memory_equal(here.tables, first->tables, here.bytes);
    free(here.tables);
}

static void is_right(void **state) {
    static struct bits first;
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    const struct shape *s = test->param;
    struct builder b;
    build(&b, s);
    for (int way = 0; way < 2; way++) {
        const char *wrong = builder_check(&b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
        if (!s->small) same_bits(&first, &b, s);
    }
    builder_free(&b);
}

/* Many rows take seconds, so only the kernel that they are meant for gets them. */
static bool takes_part(const struct kernel *k, const struct shape *s) {
    if (s->many && strcmp(k->name, "cuda_fused_partition")) return false;
    return k->place == ON_DEVICE && k->operation == OP_STEP && k->traits & DETERMINISTIC;
}

TESTS(large_batches) {
    for (int s = 0; s < SHAPES; s++)
        for (const struct registered *r = registry(); r->kernel; r++)
            if (takes_part(r->kernel, &shapes[s]))
                add_test(shapes[s].name, is_right, r->kernel, &shapes[s]);
    return run_listed("large batches");
}
