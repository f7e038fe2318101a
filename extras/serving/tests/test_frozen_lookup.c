/* SPDX-License-Identifier: MIT
 *
 * Frozen tables in use: the mapped lookup against the kernel of tables in memory, also through
 * the library; percentiles.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"
#include "extras/library/embfuse.h"
#include "extras/serving/latency.h"
#include "tests/support/batch_builder.h"
#include "extras/serving/tests/frozen_case.h"

#include "tests/support/cmocka_cases.h"

/* --- the lookup */

/* The output has the bits that the kernel gives on the rows as they are read. */
static void judge_lookup(const struct frozen *t, const struct batch *in, const float *output,
                         const char *what) {
    const int64_t elements = feature_rows(in->features) * (int64_t)t->dim;
    float *rows = malloc((size_t)(t->rows * t->dim) * sizeof *rows);
    float *want = malloc((size_t)(elements + 1) * sizeof *want);
    for (int64_t r = 0; r < t->rows; r++)
        frozen_row_get(t->type, frozen_row(t, r), t->dim, rows + r * t->dim);
    const struct table table = {.weight = {rows, t->dim * (int64_t)sizeof *rows}};
    registry_find(OP_FORWARD, "cpu_lookup", &(struct error){""})
        ->run(in, NULL, &table, &(struct launch){.threads = 1, .output = want});
    for (int64_t i = 0; i < elements; i++)
        if (float_bits(want[i]) != float_bits(output[i]))
            fail_msg("%s: element %lld: %g, not %g", what, (long long)i, output[i], want[i]);
    free(rows);
    free(want);
}

/* The name of the table whose files these are. */
static struct work_path table_name(const struct names *n) {
    struct work_path name = n->rows;
    *strrchr(name.text, '.') = '\0';
    return name;
}

/* The same lookup of the same files through the library has these bits. */
static void judge_library(const struct frozen *t, const struct names *n, const struct batch *in,
                          const float *wanted) {
    const struct work_path name = table_name(n);
    const struct embfuse_batch batch = {.size = sizeof batch,
                                        .bags = in->flat_bags,
                                        .lookups = in->lookups,
                                        .ids = in->ids,
                                        .offsets = in->offsets,
                                        .lookup_weights = in->lookup_weights,
                                        .id_type = in->id_type == ID_INT32 ? EMBFUSE_INT32
                                                                           : EMBFUSE_INT64};
    const struct feature *f = in->features;
    const size_t bytes = (size_t)feature_rows(f) * (size_t)t->dim * sizeof(float);
    struct embfuse_frozen *opened;
    struct embfuse_error why;
    struct embfuse_frozen_info info = {sizeof info};
    float *got = malloc(bytes + 1);
    if (embfuse_frozen_open(&opened, name.text, 1, &why) ||
        embfuse_frozen_describe(opened, &info, &why) ||
        embfuse_frozen_lookup(opened, &batch, (int32_t)f->pooling, f->padding_id, 2, got, &why))
        fail_msg("%s", why.text);
    assert_string_equal(info.type, frozen_type_name(t->type));
    assert_true(info.rows == t->rows && info.dim == t->dim && info.row_bytes == t->row_bytes);
    assert_memory_equal(info.data, t->data, (size_t)(t->rows * t->row_bytes));
    assert_memory_equal(got, wanted, bytes);
    embfuse_frozen_close(opened);
    free(got);
}

/* Every type and width: with any number of threads, through the library, and with rounded
 * answers. */
static void test_lookup(void **state) {
    (void)state;
    const struct names n = names_of("lookup");
    for (int variant = 0; variant < 2 * DIMS * 3; variant++) {
        const int type = variant % FROZEN_TYPES;
        const int32_t dim = dims[variant % DIMS];
        struct builder b;
        builder_begin(&b, (uint64_t)variant, false);
        b.id_type = variant % 2 ? ID_INT64 : ID_INT32;
        b.weighted = variant / 2 % 2;
        builder_feature(&b, builder_table(&b, ROWS, dim), (enum pooling)(variant % 3),
                        variant % 4 == 0 ? 1 : -1);
        builder_random_bags(&b, 20, 9);
        builder_random_bags(&b, 2, 300);
        builder_finish(&b);
        /* The library lays one feature out without gaps. */
        struct feature feature = b.in.features[0];
        struct batch in = b.in;
        feature.grad_offset = 0, feature.grad_stride = dim;
        in.features = &feature;
        const int64_t elements = feature_rows(&feature) * (int64_t)dim;
        struct memory_table t = table_of(ROWS, dim);
        struct frozen made = written(&t.frozen, type, &n);
        float *output = malloc((size_t)(elements + 1) * sizeof *output);
        uint16_t *narrow = malloc((size_t)(elements + 1) * sizeof *narrow);
        for (int threads = 1; threads <= 5; threads += 2) {
            memset(output, 0xff, (size_t)elements * sizeof *output);
            frozen_lookup(&made, &in, output, threads);
            judge_lookup(&made, &in, output, frozen_type_name(type));
        }
        judge_library(&made, &n, &in, output);
        in.grad_type = BF16;
        frozen_lookup(&made, &in, narrow, 2);
        for (int64_t i = 0; i < elements; i++)
            assert_int_equal(narrow[i], float_bits(dtype_round(BF16, output[i])) >> 16);
        free(output);
        free(narrow);
        frozen_close(&made);
        free(t.element);
        builder_free(&b);
    }
}

/* --- the library */

static void test_library_refuses(void **state) {
    (void)state;
    const struct names n = names_of("refuses");
    const struct work_path name = table_name(&n);
    struct memory_table t = table_of(ROWS, 4);
    struct frozen made = written(&t.frozen, FROZEN_INT8, &n);
    frozen_close(&made);
    struct embfuse_error why;
    struct embfuse_frozen *opened = (void *)&t;
    struct embfuse_frozen_info info = {0};
    assert_int_equal(embfuse_frozen_open(&opened, "nowhere", 0, &why), EMBFUSE_FILE_ERROR);
    assert_null(opened);
    assert_non_null(strstr(why.text, "nowhere.table: cannot open"));
    assert_int_equal(embfuse_frozen_open(&opened, name.text, 0, &why), EMBFUSE_OK);
    assert_int_equal(embfuse_frozen_describe(opened, &info, &why), EMBFUSE_INVALID);
    const int64_t ids[] = {0, ROWS}, offsets[] = {0, 2};
    struct embfuse_batch batch = {.size = sizeof batch,
                                  .bags = 1,
                                  .lookups = 2,
                                  .ids = ids,
                                  .offsets = offsets,
                                  .id_type = EMBFUSE_INT64};
    float output[4] = {7, 7, 7, 7};
    const struct {
        int status;
        int32_t pooling, padding, threads;
        const char *said;
    } wrong[] = {{EMBFUSE_BAD_BATCH, EMBFUSE_SUM, -1, 1, "60"},
                 {EMBFUSE_INVALID, 3, -1, 1, "pooling is"},
                 {EMBFUSE_INVALID, EMBFUSE_SUM, ROWS, 1, "padding_id is"},
                 {EMBFUSE_INVALID, EMBFUSE_SUM, -1, 0, "threads is"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(embfuse_frozen_lookup(opened, &batch, wrong[i].pooling, wrong[i].padding,
                                               wrong[i].threads, output, &why),
                         wrong[i].status);
        if (!strstr(why.text, wrong[i].said)) fail_msg("%s", why.text);
    }
    assert_int_equal(embfuse_frozen_lookup(opened, NULL, EMBFUSE_SUM, -1, 1, output, NULL),
                     EMBFUSE_INVALID);
    assert_int_equal(embfuse_frozen_lookup(opened, &batch, EMBFUSE_SUM, -1, 1, NULL, NULL),
                     EMBFUSE_INVALID);
    batch.bags = batch.lookups = 0; /* writes nothing */
    assert_int_equal(embfuse_frozen_lookup(opened, &batch, EMBFUSE_SUM, -1, 1, output, NULL), 0);
    for (int d = 0; d < 4; d++) assert_true(output[d] == 7);
    embfuse_frozen_close(opened);
    free(t.element);
}

/* --- times */

static void test_percentiles_by_hand(void **state) {
    (void)state;
    /* 2 passes of 100 requests: request i takes i + 1 in the first pass, and has 2 lookups but for
     * request 99, which has none. */
    double seconds[200];
    int64_t offsets[101];
    for (int i = 0; i < 200; i++) seconds[i] = i % 100 + 1;
    for (int i = 0; i <= 100; i++) offsets[i] = 7 + 2 * (i < 99 ? i : 99);
    const struct latency l = latency_of(seconds, 2, offsets, 100);
    assert_int_equal(l.requests, 100);
    assert_int_equal(l.lookups, 198);
    assert_true(l.p50 == 50 && l.p99 == 99);
    assert_true(l.lookup_p50 == 25 && l.lookup_p99 == 49.5);
    assert_true(fabs(l.lookups_per_second - 2 * 198 / 10100.0) < 1e-12);
    const struct latency none = latency_of(seconds, 1, offsets + 99, 1);
    assert_true(none.lookups == 0 && none.lookup_p50 == 0 && none.lookups_per_second == 0);
}

TESTS(frozen_lookup) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_library_refuses),
        cmocka_unit_test(test_percentiles_by_hand),
    };
    return cmocka_run_group_tests_name("frozen_lookup", tests, NULL, NULL);
}
