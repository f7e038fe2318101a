/* SPDX-License-Identifier: MIT
 *
 * Device kernels on batches that are large for the emulation: more entries than one block sorts.
 * cuda_fused_partition places the borders of its buckets by a sample, so batches are made against
 * that sample. All kernels take part that put lookups in order: those that are deterministic.
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

static int64_t half_hot(int64_t i) {
    return rng_u64(2, (uint64_t)i) % 2 ? HOT : all_over(i);
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
    bool several; /* weighted, the hot row is padding, beside a small and a wide table */
    bool many;    /* MANY_ROWS, of one element each */
};

static const struct shape shapes[] = {
    {"half of it one row", half_hot, POOL_NONE},
    {"against the sample", unseen, POOL_SUM},
    {"against the sample from below", unseen_below, POOL_SUM},
    {"against the sample, many rows", unseen_far, POOL_SUM, .many = true},
    {"several widths, weighted", half_hot, POOL_SUM, .several = true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void add_feature(struct builder *b, const struct shape *s, int32_t table, int64_t rows,
                        int64_t lookups) {
    builder_feature(b, table, s->pooling, s->several && rows == ROWS ? HOT : -1);
    for (int64_t q = 0; q < lookups / PER_BAG; q++) {
        int64_t ids[PER_BAG];
        for (int64_t k = 0; k < PER_BAG; k++) ids[k] = s->row(q * PER_BAG + k) % rows;
        builder_bag(b, PER_BAG, ids);
    }
}

static void build(struct builder *b, const struct shape *s) {
    builder_begin(b, 11, false);
    b->weighted = s->several;
    const int64_t rows = s->many ? MANY_ROWS : ROWS;
    add_feature(b, s, builder_table(b, rows, s->many ? 1 : DIM), rows, LOOKUPS);
    if (s->several) add_feature(b, s, builder_table(b, 5, DIM), 5, LOOKUPS / 2);
    if (s->several) add_feature(b, s, builder_table(b, 1000, 200), 1000, LOOKUPS / 8);
    builder_finish(b);
    for (int32_t t = 0; t < b->in.num_tables; t++) builder_rule(b, t, RULE_rowwise_adagrad);
}

static void is_right(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    const struct shape *s = test->param;
    struct builder b;
    build(&b, s);
    for (int way = 0; way < (s->many ? 1 : 2); way++) {
        const char *wrong = builder_check(&b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
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
