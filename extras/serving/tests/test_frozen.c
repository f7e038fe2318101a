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
#include "extras/serving/tests/frozen_case.h"

#include "tests/support/cmocka_cases.h"

/* --- rows of every type */

/* In long double, code * scale + bias is exact but for rounding far below a step. */
static void judge_int8(const float *from, const uint8_t *row, int32_t dim) {
    const struct int8_tail tail = int8_tail(row, dim);
    const struct extent x = row_extent(from, dim);
    const long double range = (long double)x.most - x.least;
    assert_true(tail.bias == x.least && tail.scale * 255.0L >= range);
    assert_true(tail.scale <= range / 255 * (1 + 0x1p-22L) + 0x1p-149L);
    for (int32_t d = 0; d < dim; d++) {
        const long double is = (long double)tail.scale * row[d] + tail.bias;
        assert_true(fabsl(from[d] - is) <= tail.scale / 2.0L * (1 + 1e-9L));
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
            /* The widest are more than are converted at once. */
            const int64_t rows = dims[k] == DIM_MOST ? 9000 : ROWS;
            struct memory_table t = table_of(rows, dims[k]);
            struct frozen made = written(&t.frozen, type, &n);
            assert_int_equal(made.type, type);
            assert_int_equal(made.rows, rows);
            assert_int_equal(made.dim, dims[k]);
            assert_int_equal(made.row_bytes, type == FROZEN_INT8 ? dims[k] + 8
                                             : type == FP32      ? 4 * dims[k]
                                             : type == FP8       ? dims[k]
                                                                 : 2 * dims[k]);
            for (int64_t row = 0; row < rows; row++)
                judge_row(type, t.element + row * dims[k], frozen_row(&made, row), dims[k]);
            const struct frozen_error e = frozen_compare(&t.frozen, &made);
            const bool exact = type == FP32 || (type == FROZEN_INT8 && dims[k] == 1);
            assert_true(e.worst_bound <= 1 && exact == (e.worst == 0));
            frozen_close(&made);
            assert_null(made.data);
            free(t.element);
        }
}

static void test_refused_elements(void **state) {
    (void)state;
    static const struct {
        int type;
        float value;
        const char *said; /* NULL: it is taken */
    } cases[] = {
        {FP32, NAN, "element [41][5] is nan; all"},
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
    const struct names n = names_of("refused");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int type = cases[i].type;
        struct memory_table t = table_of(ROWS, 8);
        struct error err = {""};
        t.element[41 * 8 + 5] = cases[i].value;
        if (!cases[i].said) {
            struct frozen made = written(&t.frozen, type, &n);
            judge_row(type, t.element + 41 * 8, frozen_row(&made, 41), 8);
            frozen_close(&made);
        } else {
            assert_int_equal(frozen_write(&t.frozen, type, n.rows.text, n.text.text, &err), -1);
            if (!strstr(err.text, cases[i].said)) fail_msg("%s", err.text);
        }
        free(t.element);
    }
}

/* Two units in the last place, or for int8 two steps, are more than the bound. */
static void test_compare_finds_a_wrong_row(void **state) {
    (void)state;
    struct memory_table t = table_of(ROWS, 8);
    const int row = 11; /* uniform */
    for (int type = 0; type < FROZEN_TYPES; type++) {
        const int64_t bytes = frozen_row_bytes(type, 8);
        char *rows = malloc((size_t)(ROWS * bytes)), *at = rows + row * bytes;
        for (int r = 0; r < ROWS; r++) frozen_row_put(type, t.element + r * 8, 8, rows + r * bytes);
        const struct frozen made = {
            .type = type, .rows = ROWS, .dim = 8, .row_bytes = bytes, .data = rows};
        const struct frozen_error e = frozen_compare(&t.frozen, &made);
        assert_true(e.worst_bound <= 1);
        if (type == FP8) /* rows that are almost 0 */
            assert_int_equal(e.rough_rows, 3 * ROWS / 12);
        else if (type != BF16 && type != FP16)
            assert_int_equal(e.rough_rows, 0);
        if (type == FROZEN_INT8)
            at[3] = (char)((uint8_t)at[3] > 99 ? at[3] - 2 : at[3] + 2);
        else
            dtype_put((enum dtype)type, at, 3, dtype_bits((enum dtype)type, at, 3) + 2);
        assert_true(frozen_compare(&t.frozen, &made).worst_bound > 1);
        free(rows);
    }
    free(t.element);
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
    expect_refusal(&folder, 0, "cannot open");
    expect_refusal(&(struct names){n.rows, folder.rows}, 0, "cannot open");
    const int64_t shape[] = {2, 3}, data[6] = {0};
    const struct work_path npy = work_path("frozen", "wrong.npy");
    assert_int_equal(npy_write(npy.text, NPY_INT64, 2, shape, data, &err), 0);
    assert_int_equal(frozen_open(npy.text, 0, &t, &err), -1);
    assert_non_null(strstr(err.text, "integers; a table is"));
    assert_int_equal(npy_write(npy.text, NPY_FLOAT32, 1, shape, data, &err), 0);
    assert_int_equal(frozen_open(npy.text, 0, &t, &err), -1);
    assert_non_null(strstr(err.text, "not a table"));
    work_write(npy.text, "not an array", 12);
    assert_int_equal(frozen_open(npy.text, 0, &t, &err), -1);
    assert_non_null(strstr(err.text, "not a .npy file"));
    struct memory_table full = table_of(ROWS, 8);
    assert_int_equal(frozen_write(&full.frozen, FP32, "/dev/full", n.text.text, &err), -1);
    assert_non_null(strstr(err.text, "/dev/full: cannot write: No space left"));
    free(full.element);
}

TESTS(frozen) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_every_type),
        cmocka_unit_test(test_refused_elements),
        cmocka_unit_test(test_compare_finds_a_wrong_row),
        cmocka_unit_test(test_every_damage),
        cmocka_unit_test(test_foreign_files),
    };
    return cmocka_run_group_tests_name("frozen", tests, NULL, NULL);
}
