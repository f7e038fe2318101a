/* SPDX-License-Identifier: MIT
 *
 * Device kernels on batches that are large for the emulation: many blocks, and a tree of several levels.
 * All kernels take part that put lookups in order: those that are deterministic.
 */
#include <stdlib.h>

#include "kernels/rng.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { LOOKUPS = WITH_SANITIZER ? 5000 : 9000, PER_BAG = 4, ROWS = 80000, DIM = 4, HOT = 777 };

/* The row of lookup i. */
static int64_t all_over(int64_t i) {
    return (int64_t)(rng_u64(1, (uint64_t)i) % ROWS);
}

static int64_t half_hot(int64_t i) {
    return rng_u64(2, (uint64_t)i) % 2 ? HOT : all_over(i);
}

struct shape {
    const char *name;
    int64_t (*row)(int64_t i);
    enum pooling pooling;
    bool several; /* weighted, the hot row is padding, beside a small and a wide table */
    bool wide;    /* two tables, of which a warp takes more rows than it updates at once */
};

static const struct shape shapes[] = {
    {"rows all over", all_over, POOL_SUM},
    {"half of it one row", half_hot, POOL_NONE},
    {"several widths, weighted", half_hot, POOL_SUM, .several = true},
    {"wide rows of two tables", all_over, POOL_SUM, .wide = true},
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
    for (int t = 0; t < 2 && s->wide; t++)
        add_feature(b, s, builder_table(b, LOOKUPS, 128), LOOKUPS, LOOKUPS);
    if (!s->wide) add_feature(b, s, builder_table(b, ROWS, DIM), ROWS, LOOKUPS);
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
    for (int way = 0; way < 2; way++) {
        const char *wrong = builder_check(&b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
    }
    builder_free(&b);
}

static bool takes_part(const struct kernel *k) {
    return k->place == ON_DEVICE && k->operation == OP_STEP && k->traits & DETERMINISTIC;
}

TESTS(large_batches) {
    for (int s = 0; s < SHAPES; s++)
        for (const struct registered *r = registry(); r->kernel; r++)
            if (takes_part(r->kernel)) add_test(shapes[s].name, is_right, r->kernel, &shapes[s]);
    return run_listed("large batches");
}
