/* SPDX-License-Identifier: MIT
 *
 * The gradient as a product, in numbers worked by hand.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gradient.h"
#include "tests/support/output_run.h"

#include "tests/support/kernel_tests.h"

/* A kernel's gradient of a batch. */
struct product {
    void *output;
    struct sparse_gradient *of; /* [num_tables] in output */
};

static struct product product_of(struct builder *b, const struct kernel *k, int way) {
    char text[400];
    struct product p = {malloc(gradient_lay_out(&b->in, false, NULL, NULL)),
                        malloc((size_t)b->in.num_tables * sizeof *p.of)};
    if (output_run(b, k, way, p.output, text)) fail_msg("%s", text);
    gradient_lay_out(&b->in, k->traits & MERGED, p.output, p.of);
    return p;
}

static void product_free(struct product *p) {
    free(p->output);
    free(p->of);
}

/* --- numbers by hand */

/* What a gradient must be: `count` rows, and the values of column 0; those of column 1 are 10 times
 * as large. */
struct by_hand {
    int64_t count, row[8];
    float value[8];
};

/* Bags {1, 4, 1}, {}, {3}, {3, 1} of 6 rows; row 3 is padding. The gradient of bag b (POOL_NONE: of
 * lookup i) is (b+1, 10 (b+1)); the lookups weigh 1, 2, 3, 1, 1, 0.5 if `weighted`. */
static void check_by_hand(const struct kernel *k, enum pooling pooling, bool weighted,
                          const struct by_hand *want) {
    static const int64_t ids[] = {1, 4, 1, 3, 3, 1}, lengths[] = {3, 0, 1, 2};
    static const float weights[] = {1, 2, 3, 1, 1, 0.5f};
    struct builder b;
    builder_begin(&b, 1, true);
    b.weighted = weighted;
    builder_feature(&b, builder_table(&b, 6, 2), pooling, 3);
    for (int q = 0, at = 0; q < 4; at += (int)lengths[q++]) builder_bag(&b, lengths[q], ids + at);
    builder_finish(&b);
    const bool each = pooling == POOL_NONE;
    for (int r = 0; r < (each ? 6 : 4); r++)
        for (int d = 0; d < 2; d++)
            if (each ? ids[r] != 3 : r == 0 || r == 3)
                builder_grad(&b, 0, r)[d] = (d ? 10 : 1) * (float)(r + 1);
    if (weighted) memcpy((float *)b.in.lookup_weights, weights, sizeof weights);
    builder_pack(&b);
    builder_recount(&b);
    builder_start(&b);
    struct product p = product_of(&b, k, 1);
    assert_int_equal(*p.of[0].count, want->count);
    for (int64_t e = 0; e < want->count; e++) {
        assert_int_equal(p.of[0].rows[e], want->row[e]);
        for (int d = 0; d < 2; d++) {
            const float got = p.of[0].values[2 * e + d];
            if (fabsf(got - (d ? 10 : 1) * want->value[e]) > 1e-5f * fabsf(got))
                fail_msg("entry %d [%d]: got %g", (int)e, d, (double)got);
        }
    }
    product_free(&p);
    builder_free(&b);
}

static void worked_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const bool merged = k->traits & MERGED;
    const struct by_hand sum[] = {{4, {1, 4, 1, 1}, {1, 1, 1, 4}}, {2, {1, 4}, {6, 1}}};
    const struct by_hand mean[] = {{4, {1, 4, 1, 1}, {1 / 3.f, 1 / 3.f, 1 / 3.f, 4}},
                                   {2, {1, 4}, {14 / 3.f, 1 / 3.f}}};
    const struct by_hand none[] = {{4, {1, 4, 1, 1}, {1, 2, 3, 6}}, {2, {1, 4}, {10, 2}}};
    const struct by_hand weighted[] = {{4, {1, 4, 1, 1}, {1, 2, 3, 2}}, {2, {1, 4}, {6, 2}}};
    check_by_hand(k, POOL_SUM, false, &sum[merged]);
    check_by_hand(k, POOL_MEAN, false, &mean[merged]);
    check_by_hand(k, POOL_NONE, false, &none[merged]);
    check_by_hand(k, POOL_SUM, true, &weighted[merged]);
}

TESTS(gradient) {
    add_operation_tests(OP_GRADIENT, "worked by hand", worked_by_hand, NULL);
    return run_listed("gradient");
}
