/* SPDX-License-Identifier: MIT
 *
 * Kernels with the trait OWN_LOOKUPS: without the lookups of all odd rows, even rows get the same bits.
 * Gradients are real, so another order of a row's sum shows. The batch has hot rows and long runs, and
 * half of the lookups go: what a kernel chooses by the batch changes.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

enum { ROWS = 3000, DIM = 20, BAGS = 2000, MOST = 40 };

/* A bag's ids: low rows are hot. With even_only, the odd rows are left out. */
static int64_t ids_of(int64_t bag, bool even_only, int64_t ids[MOST]) {
    int64_t count = 0;
    const uint64_t key = rng_key(5, (uint64_t)bag);
    for (int64_t i = 0; i < (int64_t)(rng_u64(key, 0) % MOST); i++) {
        const double u = rng_unit(key, 1 + (uint64_t)i);
        const int64_t row = (int64_t)(u * u * u * u * u * u * ROWS);
        if (!even_only || row % 2 == 0) ids[count++] = row;
    }
    return count;
}

static void build(struct builder *b, const struct kernel *k, bool even_only) {
    builder_begin(b, 3, false);
    b->smaller = builder_smaller(k);
    builder_feature(b, builder_table(b, ROWS, DIM), POOL_SUM, -1);
    for (int64_t q = 0; q < BAGS / b->smaller; q++) {
        int64_t ids[MOST], count = ids_of(q, even_only, ids);
        builder_bag(b, count, ids);
    }
    builder_finish(b);
    builder_rule(b, 0, RULE_rowwise_adagrad);
}

static void even_rows_keep_their_bits(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    if (!(k->traits & OWN_LOOKUPS)) skip();
    struct builder all, even;
    build(&all, k, false);
    build(&even, k, true);
    for (int64_t q = 0; q < all.in.bags; q++)
        memcpy(builder_grad(&even, 0, q), builder_grad(&all, 0, q), DIM * sizeof(float));
    for (int way = 0; way < builder_ways(k); way++) {
        builder_start(&all);
        builder_start(&even);
        const char *wrong = builder_run(&all, k, builder_way[way]);
        if (!wrong) wrong = builder_run(&even, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
        for (int64_t row = 0; row < ROWS; row += 2) {
            const struct row_memory a = row_memory(all.tables.tables, all.shapes, row);
            const struct row_memory b = row_memory(even.tables.tables, even.shapes, row);
            assert_memory_equal(a.weight, b.weight, DIM * sizeof(float));
            assert_memory_equal(a.row, b.row, sizeof(float));
        }
    }
    builder_free(&all);
    builder_free(&even);
}

TESTS(own_lookups) {
    add_kernel_tests("even rows keep their bits", even_rows_keep_their_bits, NULL);
    return run_listed("own lookups");
}
