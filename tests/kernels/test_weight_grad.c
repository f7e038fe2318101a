/* SPDX-License-Identifier: MIT
 *
 * The gradient of the per-sample weights, of a pass of its own and of steps that write it, in
 * numbers worked by hand, refused and measured.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/measure.h"
#include "tests/support/generate.h"
#include "tests/support/output_run.h"

#include "tests/support/kernel_tests.h"

static bool writes_it(const struct kernel *k) {
    return k->operation == OP_WEIGHT_GRAD || k->traits & WEIGHT_GRAD;
}

/* One test per kernel that writes the gradient. */
static void add_tests(const char *name, CMUnitTestFunction run, const void *param) {
    for (const struct registered *r = registry(); r->kernel; r++)
        if (writes_it(r->kernel)) add_test(name, run, r->kernel, param);
}

/* --- numbers by hand */

/* One table: row r is (r, 10 r). Bags {1, 4, 1}, {}, {3}, {3, 1} of 6 rows; row 3 is padding. The
 * gradient of bag b (POOL_NONE: of lookup i) is (b+1, 0.5 (b+1)), so its dot with row r is 6 r
 * (b+1). The weights are 1, 0, 3, 1, 2, 0.5. */
static const int64_t hand_ids[] = {1, 4, 1, 3, 3, 1}, hand_lengths[] = {3, 0, 1, 2};

static void begin_by_hand(struct builder *b, enum pooling pooling) {
    static const float weights[] = {1, 0, 3, 1, 2, 0.5f};
    builder_begin(b, 1, true);
    b->weighted = true;
    builder_feature(b, builder_table(b, 6, 2), pooling, 3);
    for (int q = 0, at = 0; q < 4; at += (int)hand_lengths[q++])
        builder_bag(b, hand_lengths[q], hand_ids + at);
    builder_finish(b);
    const bool each = pooling == POOL_NONE;
    for (int r = 0; r < (each ? 6 : 4); r++)
        for (int d = 0; d < 2; d++) builder_grad(b, 0, r)[d] = (d ? 0.5f : 1) * (float)(r + 1);
    memcpy((float *)b->in.lookup_weights, weights, sizeof weights);
    builder_rule(b, 0, RULE_sgd);
    builder_set(&b->rules[0], "lr", 100); /* a row after the step is another row */
    builder_recount(b);
    builder_start(b);
    for (int s = 0; s < 2; s++)
        for (int64_t r = 0; r < 6; r++) {
            float *row = array_row(&(s ? b->before : b->tables).tables[0].weight, r);
            row[0] = (float)r, row[1] = 10 * (float)r;
        }
}

static void by_hand(const struct kernel *k, enum pooling pooling, const float want[6]) {
    for (int w = 0; w < builder_ways(k); w++) {
        struct builder b;
        char text[400];
        float got[6];
        begin_by_hand(&b, pooling);
        if (output_run(&b, k, builder_way[w], got, text)) fail_msg("%s", text);
        for (int i = 0; i < 6; i++)
            if (fabsf(got[i] - want[i]) > 1e-6f * fabsf(want[i]))
                fail_msg("pooling %d, lookup %d: got %g", pooling, i, (double)got[i]);
        builder_free(&b);
    }
}

static void worked_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    by_hand(k, POOL_SUM, (const float[]){6, 24, 6, 0, 0, 24});
    by_hand(k, POOL_MEAN, (const float[]){2, 8, 2, 0, 0, 24});
    by_hand(k, POOL_NONE, (const float[]){6, 48, 18, 72, 90, 36});
}

/* --- kernels and batches that are refused */

static void refused(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct builder b;
    struct error err = {""};
    struct place_scratch scratch = {0};
    builder_begin(&b, 1, true);
    builder_feature(&b, builder_table(&b, 40, 12), POOL_SUM, -1);
    builder_random_bags(&b, 30, 9);
    builder_finish(&b);
    struct place_setup setup = {.shapes = b.in.tables,
                                .num_tables = 1,
                                .batches = &b.in,
                                .index = &b.index,
                                .ring = 1,
                                .threads = 1,
                                .weight_grad = true};
    struct place *p = place_open(k->place, &setup, &err);
    if (!p) fail_msg("%s", err.text);
    assert_int_equal(runner_scratch_open(p, k, &scratch, &err), -1);
    const bool able = writes_it(k);
    if (!strstr(err.text, able ? "no per-sample weights" : "does not write the gradient"))
        fail_msg("%s", err.text);
    p->ops->close(p);
    builder_free(&b);
}

/* --- measured as a workload asks */

static void measured(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const char spec[] =
        "workload w\ntables 2\nrows 300\ndim 20\nbatch 40\nlength uniform 0 9\n"
        "ids zipf\nalpha 1\nweighted 1\nweight_grad 1\n";
    struct workload w = generate(spec, 2, GRAD_EXACT);
    struct measure m;
    struct scratch_use use;
    struct check_result result;
    struct error err = {""};
    assert_true(strstr(w.text, "weight_grad 1"));
    if (measure_open(&m, &w, k->operation, GRAD_EXACT, 2, &err) ||
        measure_open_place(&m, k->place, &err))
        fail_msg("%s", err.text);
    const struct traffic alone = traffic_of(k->operation, &w.batches[0], &m.index[0]);
    const int64_t floats = k->operation == OP_STEP ? w.batches[0].lookups : 0;
    assert_int_equal(m.traffic[0].compulsory, alone.compulsory + 4 * floats);
    const bool able = writes_it(k);
    for (int mode = MODE_COLD; mode <= MODE_ITERATION; mode++) {
        if (mode == MODE_WARM || (mode == MODE_ITERATION && k->operation != OP_STEP)) continue;
        int status = measure_admit(&m, k, (enum cache_mode)mode, &use, &result, &err);
        if (status != (able ? 0 : -1)) fail_msg("%s", status > 0 ? result.message : err.text);
        if (!able) continue;
        status = measure_check(&m, k, (enum cache_mode)mode, 1, &result, &err);
        if (status) fail_msg("%s", status > 0 ? result.message : err.text);
    }
    measure_close(&m);
    workload_free(&w);
}

TESTS(weight_grad) {
    for (const struct registered *r = registry(); r->kernel; r++) {
        const struct kernel *k = r->kernel;
        if (k->operation == OP_STEP || k->operation == OP_WEIGHT_GRAD)
            add_test("refused", refused, k, NULL), add_test("measured", measured, k, NULL);
    }
    add_tests("worked by hand", worked_by_hand, NULL);
    return run_listed("weight grad");
}
