/* SPDX-License-Identifier: MIT
 *
 * The forward, in numbers worked by hand.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/forward.h"
#include "tests/support/output_run.h"

#include "tests/support/kernel_tests.h"

/* --- numbers by hand */

/* One table: row r is (r, 10 r). Bags: {1, 2, 4, 5}, {}, {3, 3}, {3}, {2, 3}; row 3 is padding. */
static void begin_by_hand(struct builder *b, enum pooling pooling) {
    static const int64_t ids[] = {1, 2, 4, 5, 3, 3, 3, 2, 3};
    static const int64_t lengths[] = {4, 0, 2, 1, 2};
    builder_begin(b, 1, true);
    builder_feature(b, builder_table(b, 6, 2), pooling, 3);
    for (int k = 0, at = 0; k < 5; at += (int)lengths[k++]) builder_bag(b, lengths[k], ids + at);
    builder_finish(b);
    builder_start(b);
    for (int s = 0; s < 2; s++)
        for (int64_t r = 0; r < 6; r++) {
            float *row = array_row(&(s ? b->before : b->tables).tables[0].weight, r);
            row[0] = (float)r, row[1] = 10 * (float)r;
        }
}

static void by_hand(const struct kernel *k, enum pooling pooling, const float *want, int rows) {
    struct builder b;
    char text[400];
    begin_by_hand(&b, pooling);
    float *got = malloc((size_t)b.in.grad_elements * sizeof *got);
    if (output_run(&b, k, 1, got, text)) fail_msg("%s", text);
    for (int r = 0; r < rows; r++)
        for (int d = 0; d < 2; d++) {
            const float x = got[forward_row(&b.in.features[0], r) + d];
            if (x != (d ? 10 : 1) * want[r]) fail_msg("row %d [%d]: got %g", r, d, (double)x);
        }
    free(got);
    builder_free(&b);
}

/* torch.nn.functional.embedding_bag(..., padding_idx=3) gives the same for sum and mean, and
 * torch.nn.functional.embedding the rows of POOL_NONE. */
static void worked_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    by_hand(k, POOL_SUM, (const float[]){12, 0, 0, 0, 2}, 5);
    by_hand(k, POOL_MEAN, (const float[]){3, 0, 0, 0, 2}, 5);
    by_hand(k, POOL_NONE, (const float[]){1, 2, 4, 5, 3, 3, 3, 2, 3}, 9);
}

TESTS(forward) {
    add_operation_tests(OP_FORWARD, "worked by hand", worked_by_hand, NULL);
    return run_listed("forward");
}
