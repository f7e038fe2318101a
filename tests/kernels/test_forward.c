/* SPDX-License-Identifier: MIT
 *
 * The forward: numbers worked by hand, and outputs that the check must reject.
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

/* --- outputs that are wrong */

static const struct kernel *right;

enum planted { NOTHING, LAST_ROW_MISSING, ONE_BIT, BETWEEN_ROWS, OUTSIDE, CHANGES_A_ROW, PLANTED };
static enum planted planted;

static int run_planted(const struct batch *in, const struct rule_step *steps,
                       const struct table *io, const struct launch *how) {
    const struct feature *f = &in->features[0];
    float *last = (float *)how->output + forward_row(f, in->bags - 1);
    const int32_t dim = in->tables[f->table].dim;
    if (planted == NOTHING) return 0;
    right->run(in, steps, io, how);
    if (planted == LAST_ROW_MISSING) memset(last, 0xff, (size_t)dim * sizeof *last);
    if (planted == ONE_BIT) last[dim - 1] = nextafterf(last[dim - 1], INFINITY);
    if (planted == BETWEEN_ROWS) last[-1] = 1;
    if (planted == OUTSIDE) ((float *)how->output)[in->grad_elements] = 1;
    if (planted == CHANGES_A_ROW) *(float *)array_row(&io->weight, 3) += 1;
    return 0;
}

static void wrong_outputs_are_found(void **state) {
    (void)state;
    static const char *const says[PLANTED] = {
        "expected", "expected", "expected", "belongs to no output row", "outside", "row 3"};
    const struct kernel k = {.name = "planted", .operation = OP_FORWARD, .run = run_planted};
    for (int p = 0; p < PLANTED; p++) {
        if (p == OUTSIDE && WITH_SANITIZER) continue; /* AddressSanitizer stops the program there */
        struct builder b;
        char text[400];
        planted = (enum planted)p;
        builder_begin(&b, 7, false);
        builder_feature(&b, builder_table(&b, 40, 12), POOL_SUM, -1);
        builder_random_bags(&b, 30, 9);
        builder_finish(&b);
        builder_start(&b);
        /* Bags with gaps between their rows are in the builder's layout. */
        assert_true(b.in.features[0].grad_stride > 12);
        const int status = output_run(&b, &k, 1, NULL, text);
        if (status != 1 || !strstr(text, says[p])) fail_msg("planted %d: %d, %s", p, status, text);
        builder_free(&b);
    }
}

TESTS(forward) {
    for (const struct registered *r = registry(); r->kernel; r++)
        if (r->kernel->operation == OP_FORWARD && r->kernel->place == ON_HOST) right = r->kernel;
    add_operation_tests(OP_FORWARD, "worked by hand", worked_by_hand, NULL);
    add_test("wrong outputs are found", wrong_outputs_are_found, NULL, NULL);
    return run_listed("forward");
}
