/* SPDX-License-Identifier: MIT
 *
 * Frozen tables as files: every type on hostile rows, elements that a type cannot hold, and files
 * that are damaged or foreign.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/npy.h"
#include "tests/support/batch_builder.h"
#include "tests/serving/frozen_case.h"

#include "tests/support/cmocka_cases.h"

/* --- rows of every type */

/* In long double, code * scale + bias is exact but for rounding far below a step. */
static void judge_int8(const float *from, const uint8_t *row, int32_t dim) {
    const struct int8_tail tail = int8_tail(row, dim);
    const struct extent x = row_extent(from, dim);
    const long double range = (long double)x.most - x.least;
    assert_true(tail.bias == x.least);
    assert_true(tail.scale * 255.0L >= range);
    assert_true(tail.scale <= range / 255 * (1 + 0x1p-22L) + 0x1p-149L);
    for (int32_t d = 0; d < dim; d++) {
        const long double is = (long double)tail.scale * row[d] + tail.bias;
        float read[DIM_MOST];
        frozen_row_get(FROZEN_INT8, row, dim, read);
        assert_true(fabsl(from[d] - is) <= tail.scale / 2.0L * (1 + 1e-9L));
        assert_true(fabsl(read[d] - is) <=
                    0x1p-22L * fmaxl(fabsl((long double)x.least), fabsl((long double)x.most)) +
                        0x1p-149L);
        if (x.least == x.most) assert_true(read[d] == from[d]);
    }
}

static void judge_row(int type, const float *from, const void *row, int32_t dim) {
    float read[DIM_MOST];
    frozen_row_get(type, row, dim, read);
    if (type == FROZEN_INT8) {
        judge_int8(from, row, dim);
        return;
    }
    for (int32_t d = 0; d < dim; d++)
        assert_int_equal(float_bits(read[d]), float_bits(dtype_round((enum dtype)type, from[d])));
}

static void test_rows_of_every_type(void **state) {
    (void)state;
    const struct names n = names_of("types");
    for (int type = 0; type < FROZEN_TYPES; type++)
        for (int k = 0; k < DIMS; k++) {
            struct memory_table t = table_of(ROWS, dims[k]);
            struct frozen made = written(&t.frozen, type, &n);
            assert_int_equal(made.type, type);
            assert_int_equal(made.rows, ROWS);
            assert_int_equal(made.dim, dims[k]);
            assert_int_equal(made.row_bytes, type == FROZEN_INT8 ? dims[k] + 8
                                             : type == FP32      ? 4 * dims[k]
                                             : type == FP8       ? dims[k]
                                                                 : 2 * dims[k]);
            for (int64_t row = 0; row < ROWS; row++)
                judge_row(type, t.element + row * dims[k], frozen_row(&made, row), dims[k]);
            const struct frozen_error e = frozen_compare(&t.frozen, &made);
            const bool exact = type == FP32 || (type == FROZEN_INT8 && dims[k] == 1);
            assert_true(e.worst_bound <= 1 && exact == (e.worst == 0));
            frozen_close(&made);
            assert_null(made.data);
            free(t.element);
        }
}

/* The same bytes as in raw rows, in a file that the reader of .npy takes. */
static void test_npy(void **state) {
    (void)state;
    const struct names n = names_of("npy");
    const struct work_path path = work_path("frozen", "npy.npy");
    struct memory_table t = table_of(ROWS, 17);
    struct error err = {""};
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct frozen raw = written(&t.frozen, type, &n), mapped;
        struct npy a;
        if (frozen_write(&t.frozen, type, path.text, NULL, &err) ||
            frozen_open(path.text, FROZEN_SCAN, &mapped, &err) || npy_read(path.text, &a, &err))
            fail_msg("%s", err.text);
        assert_int_equal(mapped.type, type);
        assert_int_equal(a.type, npy_type_of((enum dtype)type));
        assert_int_equal(a.shape[0] * 1000 + a.shape[1], ROWS * 1000 + 17);
        assert_memory_equal(mapped.data, raw.data, (size_t)(ROWS * raw.row_bytes));
        assert_memory_equal(a.data, raw.data, (size_t)(ROWS * raw.row_bytes));
        npy_free(&a);
        frozen_close(&raw);
        frozen_close(&mapped);
    }
    assert_int_equal(frozen_write(&t.frozen, FROZEN_INT8, path.text, NULL, &err), -1);
    assert_non_null(strstr(err.text, "no rows with a scale"));
    assert_int_equal(frozen_open(path.text, FROZEN_VERIFY, &(struct frozen){0}, &err), -1);
    assert_non_null(strstr(err.text, "no checksum"));
    free(t.element);
}

/* More rows than are converted at once; another frozen table as the source. */
static void test_many_rows_and_a_frozen_source(void **state) {
    (void)state;
    const struct names n = names_of("many"), m = names_of("many2");
    const int64_t rows = 200000 / SMALLER;
    struct memory_table t = table_of(rows, 31);
    struct frozen bf16 = written(&t.frozen, BF16, &n), fp32 = written(&bf16, FP32, &m);
    for (int64_t i = 0; i < rows * 31; i++)
        assert_true(((const float *)fp32.data)[i] == dtype_round(BF16, t.element[i]));
    assert_true(frozen_compare(&bf16, &fp32).worst == 0);
    frozen_close(&bf16);
    frozen_close(&fp32);
    free(t.element);
}

static const struct {
    int type;
    float value;
    const char *said; /* NULL: it is taken */
} refusals[] = {
    {FP32, NAN, "element [41][5] is nan; all"},
    {BF16, INFINITY, "element [41][5] is inf; all"},
    {FROZEN_INT8, NAN, "element [41][5] is nan; all"},
    {FROZEN_INT8, -INFINITY, "element [41][5] is -inf; all"},
    {FP16, 65505, "element [41][5] is 65505, which fp16 cannot hold"},
    {FP16, -65504, NULL},
    {FP8, -449, "element [41][5] is -449, which fp8 cannot hold"},
    {FP8, 448, NULL},
    {BF16, FLT_MAX, "which bf16 cannot hold"},
    {FP32, -FLT_MAX, NULL},
    {FROZEN_INT8, FLT_MAX / 2, "which int8 cannot hold"},
    {FROZEN_INT8, -FLT_MAX / 4, NULL},
};

static void test_refused_elements(void **state) {
    (void)state;
    const struct names n = names_of("refused");
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const int type = refusals[i].type;
        struct memory_table t = table_of(ROWS, 8);
        struct error err = {""};
        t.element[41 * 8 + 5] = refusals[i].value;
        if (!refusals[i].said) {
            struct frozen made = written(&t.frozen, type, &n);
            judge_row(type, t.element + 41 * 8, frozen_row(&made, 41), 8);
            assert_true(frozen_compare(&t.frozen, &made).worst_bound <= 1);
            frozen_close(&made);
        } else {
            t.element[50 * 8] = refusals[i].value; /* the first is named */
            assert_int_equal(frozen_write(&t.frozen, type, n.rows.text, n.text.text, &err), -1);
            if (!strstr(err.text, refusals[i].said)) fail_msg("%s", err.text);
        }
        free(t.element);
    }
}

static void test_compare_finds_a_wrong_row(void **state) {
    (void)state;
    struct memory_table t = table_of(ROWS, 8), copy = table_of(ROWS, 8);
    const int row = 11; /* uniform */
    for (int type = 0; type < FROZEN_TYPES; type++) {
        const int64_t bytes = frozen_row_bytes(type, 8);
        char *rows = malloc((size_t)(ROWS * bytes));
        for (int r = 0; r < ROWS; r++) frozen_row_put(type, t.element + r * 8, 8, rows + r * bytes);
        const struct frozen made = {
            .type = type, .rows = ROWS, .dim = 8, .row_bytes = bytes, .data = rows};
        assert_true(frozen_compare(&t.frozen, &made).worst_bound <= 1);
        /* FP32, FP16, ...: two units in the last place; int8: two steps */
        float *x = copy.element + row * 8;
        char *at = rows + row * bytes;
        if (type == FROZEN_INT8)
            at[3] = (char)((uint8_t)at[3] > 99 ? at[3] - 2 : at[3] + 2);
        else
            dtype_put((enum dtype)type, at, 3, dtype_bits((enum dtype)type, at, 3) + 2);
        assert_true(frozen_compare(&t.frozen, &made).worst_bound > 1);
        frozen_row_put(type, x, 8, at);
        assert_true(frozen_compare(&t.frozen, &made).worst_bound <= 1);
        if (type == FROZEN_INT8) { /* a scale that is a hundredth too large; no number */
            struct int8_tail tail = int8_tail(at, 8);
            tail.scale *= 1.01f;
            memcpy(at + 8, &tail, sizeof tail);
            assert_true(frozen_compare(&t.frozen, &made).worst_bound > 1);
            tail.scale = NAN;
            memcpy(at + 8, &tail, sizeof tail);
            assert_true(frozen_compare(&t.frozen, &made).worst_bound > 1);
        }
        free(rows);
    }
    free(t.element);
    free(copy.element);
}

/* --- files that are not what they should be */

struct bytes {
    char data[4096];
    size_t size;
};

static struct bytes contents(const char *path) {
    struct bytes b;
    FILE *f = fopen(path, "rb");
    b.size = f ? fread(b.data, 1, sizeof b.data, f) : 0;
    if (f) fclose(f);
    return b;
}

static void expect_refusal(const struct names *n, int how, const char *said) {
    struct frozen t;
    struct error err = {""};
    if (frozen_open_raw(n->rows.text, n->text.text, how, &t, &err) != -1)
        fail_msg("opened; wanted: %s", said);
    if (!strstr(err.text, said)) fail_msg("'%s', wanted '%s'", err.text, said);
    assert_null(t.mapping);
}

static struct names small_table(const char *name, int type) {
    const struct names n = names_of(name);
    struct memory_table t = table_of(13, 3);
    struct frozen made = written(&t.frozen, type, &n);
    frozen_close(&made);
    free(t.element);
    return n;
}

/* One bit of every byte, and every length. A sum is compared where FROZEN_VERIFY asks for it. */
static void test_every_damage(void **state) {
    (void)state;
    for (int of_text = 0; of_text < 2; of_text++) {
        const struct names n = small_table("damage", of_text ? FROZEN_INT8 : FP16);
        const char *path = of_text ? n.text.text : n.rows.text;
        const struct bytes good = contents(path);
        struct bytes bad = good;
        assert_in_range(good.size, 13 * 3 * 2, 200);
        for (size_t at = 0; at < good.size; at++) {
            work_write(path, good.data, at);
            expect_refusal(&n, 0, of_text ? path : at ? "says 78; copy" : "empty");
            bad.data[at] = (char)(bad.data[at] ^ 1 << at % 8);
            work_write(path, bad.data, bad.size);
            expect_refusal(&n, of_text ? 0 : FROZEN_VERIFY,
                           of_text ? path : "its checksum is not the one");
            bad.data[at] = good.data[at];
        }
        bad.data[bad.size] = '\n';
        work_write(path, bad.data, bad.size + 1);
        expect_refusal(&n, 0, of_text ? "do not agree" : "79 bytes, but");
        bad.data[bad.size] = '\0';
        work_write(path, bad.data, bad.size + 1);
        expect_refusal(&n, 0, of_text ? "0 byte" : "79 bytes, but");
        work_write(path, good.data, good.size);
        struct frozen t;
        assert_int_equal(frozen_open_raw(n.rows.text, n.text.text, FROZEN_VERIFY, &t, NULL), 0);
        frozen_close(&t);
    }
}

static void test_foreign_files(void **state) {
    (void)state;
    const struct names n = small_table("foreign", FP32), next = small_table("next", FP32);
    static const char text[] = "embfuse frozen table 2\nand more\n";
    struct frozen t;
    struct error err = {""};
    work_write(next.text.text, text, sizeof text - 1);
    expect_refusal(&next, 0, "format version 2; this program reads 1");
    work_write(next.text.text, "rows 3\n", 7);
    expect_refusal(&next, 0, "not the text of a frozen table");
    const struct names folder = {work_path("frozen", "x/y"), n.text}; /* x is a folder */
    struct names up = folder;
    up.rows.text[strlen(up.rows.text) - 2] = '\0';
    expect_refusal(&up, 0, "a folder, not a regular file");
    expect_refusal(&folder, 0, "cannot open");
    expect_refusal(&(struct names){n.rows, folder.rows}, 0, "cannot open");
    char most[5000];
    memset(most, 'x', sizeof most - 1);
    most[sizeof most - 1] = '\0';
    assert_int_equal(frozen_open(most, 0, &t, &err), -1);
    assert_non_null(strstr(err.text, "too long"));
    const int64_t shape[] = {2, 3, 0};
    const struct work_path npy = work_path("frozen", "wrong.npy");
    static const int64_t data[6];
    const struct {
        enum npy_type type;
        int dims;
        const int64_t *shape;
        const char *said;
    } wrong[] = {{NPY_INT64, 2, shape, "integers; a table is"},
                 {NPY_FLOAT32, 1, shape, "not a table"},
                 {NPY_FLOAT32, 2, shape + 1, "not a table"},
                 {NPY_FLOAT32, 3, shape, "not a table"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(
            npy_write(npy.text, wrong[i].type, wrong[i].dims, wrong[i].shape, data, &err), 0);
        assert_int_equal(frozen_open(npy.text, 0, &t, &err), -1);
        if (!strstr(err.text, wrong[i].said)) fail_msg("%s", err.text);
        assert_null(t.mapping);
    }
    work_write(npy.text, "not an array", 12);
    assert_int_equal(frozen_open(npy.text, 0, &t, &err), -1);
    assert_non_null(strstr(err.text, "not a .npy file"));
}

static void test_write_to_a_full_device_or_nowhere(void **state) {
    (void)state;
    struct memory_table t = table_of(ROWS, 8);
    struct error err = {""};
    const struct work_path text = work_path("frozen", "full.table");
    assert_int_equal(frozen_write(&t.frozen, FP32, "/dev/full", text.text, &err), -1);
    assert_non_null(strstr(err.text, "/dev/full: cannot write: No space left"));
    assert_int_equal(frozen_write(&t.frozen, FP32, text.text, "/dev/full", &err), -1);
    assert_non_null(strstr(err.text, "No space left"));
    assert_int_equal(frozen_write(&t.frozen, FP32, "/nowhere/x", text.text, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/x: cannot create"));
    assert_int_equal(frozen_type_find("int7", &err), -1);
    assert_non_null(strstr(err.text, "unknown type 'int7'"));
    free(t.element);
}

TESTS(frozen) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_every_type),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_many_rows_and_a_frozen_source),
        cmocka_unit_test(test_refused_elements),
        cmocka_unit_test(test_compare_finds_a_wrong_row),
        cmocka_unit_test(test_every_damage),
        cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_write_to_a_full_device_or_nowhere),
    };
    return cmocka_run_group_tests_name("frozen", tests, NULL, NULL);
}
