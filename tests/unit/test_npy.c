/* SPDX-License-Identifier: MIT
 *
 * The .npy reader and writer: arrays that NumPy wrote (tests/golden/npy) are read, and written again
 * byte for byte; and one test for every way in which a file can be wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/workload/npy.h"
#include "tests/support/work_files.h"

#include "tests/support/cmocka_cases.h"

struct bytes {
    unsigned char at[1024];
    size_t size;
};

/* --- valid arrays ---------------------------------------------------------------------------- */

struct sample {
    const char *file;
    enum npy_type type;
    int num_dims;
    int64_t shape[NPY_MAX_DIMS];
};

static const struct sample samples[] = {
    {"f4_scalar.npy", NPY_FLOAT32, 0, {0}},
    {"f4_2x3.npy", NPY_FLOAT32, 2, {2, 3}},
    {"i4_5.npy", NPY_INT32, 1, {5}},
    {"i8_0.npy", NPY_INT64, 1, {0}},
    {"i8_2x1x3x2.npy", NPY_INT64, 4, {2, 1, 3, 2}},
    {"i4_3x0x1000.npy", NPY_INT32, 3, {3, 0, 1000}},
    {"f4_120.npy", NPY_FLOAT32, 1, {120}},
    {"f2_3x20.npy", NPY_FLOAT16, 2, {3, 20}},
    {"u2_70.npy", NPY_UINT16, 1, {70}},
    {"u1_2x50.npy", NPY_UINT8, 2, {2, 50}},
};

/* Written by NumPy with an explicit format version. */
static const struct sample versions[] = {
    {"i4_5.v2.npy", NPY_INT32, 1, {5}},
    {"i4_5.v3.npy", NPY_INT32, 1, {5}},
};

static int64_t count_of(const struct sample *s) {
    int64_t count = 1;
    for (int d = 0; d < s->num_dims; d++) count *= s->shape[d];
    return count;
}

/* The bytes of a file; fails the test if there are too many. */
static struct bytes bytes_of(const char *path) {
    struct bytes b;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    b.size = fread(b.at, 1, sizeof b.at, f);
    assert_in_range(b.size, 1, sizeof b.at - 1);
    fclose(f);
    return b;
}

/* The data are at the end of a file. */
static struct npy read_golden(const struct sample *s, struct bytes *file) {
    char path[256];
    struct npy a;
    struct error err = {""};
    snprintf(path, sizeof path, "tests/golden/npy/%s", s->file);
    *file = bytes_of(path);
    if (npy_read(path, &a, &err)) fail_msg("%s", err.text);
    assert_int_equal(a.type, s->type);
    assert_int_equal(a.num_dims, s->num_dims);
    assert_memory_equal(a.shape, s->shape, sizeof a.shape);
    assert_int_equal(a.count, count_of(s));
    assert_non_null(a.data);
    const size_t bytes = (size_t)a.count * npy_element_bytes(a.type);
    if (bytes) assert_memory_equal(a.data, file->at + file->size - bytes, bytes);
    return a;
}

static void reads_what_numpy_wrote(void **state) {
    struct bytes file;
    struct npy a = read_golden(*state, &file);
    npy_free(&a);
    assert_null(a.data);
}

static void writes_what_numpy_wrote(void **state) {
    const struct sample *s = *state;
    struct work_path path = work_path("npy", s->file);
    struct error err = {""};
    struct bytes want;
    struct npy a = read_golden(s, &want);
    if (npy_write(path.text, a.type, a.num_dims, a.shape, a.data, &err)) fail_msg("%s", err.text);
    npy_free(&a);
    const struct bytes got = bytes_of(path.text);
    assert_int_equal(got.size, want.size);
    assert_memory_equal(got.at, want.at, want.size);
}

/* --- invalid files --------------------------------------------------------------------------- */

/* A file of this version with this header, unpadded, and data_bytes bytes of data. */
static struct bytes file_with(int version, const char *header, size_t data_bytes) {
    struct bytes b = {.size = version == 1 ? 10 : 12};
    size_t n = strlen(header);
    memcpy(b.at, "\x93NUMPY", 6);
    b.at[6] = (unsigned char)version;
    b.at[8] = (unsigned char)n;
    b.at[9] = (unsigned char)(n >> 8);
    memcpy(b.at + b.size, header, n);
    b.size += n + data_bytes;
    assert_in_range(b.size, 1, sizeof b.at);
    return b;
}

/* Parses from a buffer of exactly the right size, for AddressSanitizer. */
static int parse(const struct bytes *b, struct npy *out, struct error *err) {
    void *copy = malloc(b->size ? b->size : 1);
    assert_non_null(copy);
    memcpy(copy, b->at, b->size);
    int failed = npy_parse("x.npy", copy, b->size, out, err);
    free(copy);
    return failed;
}

static void assert_refused(const struct bytes *b, const char *says) {
    struct npy a = {.num_dims = 9, .count = 9};
    struct error err = {""};
    assert_int_equal(parse(b, &a, &err), -1);
    if (strncmp(err.text, "x.npy: ", 7) != 0 || !strstr(err.text, says) || strchr(err.text, '\n'))
        fail_msg("expected \"x.npy: ... %s ...\", got \"%s\"", says, err.text);
    assert_memory_equal(&a, &(struct npy){0}, sizeof a);
}

struct wrong_header {
    const char *test, *header;
    size_t data_bytes;
    const char *says;
};

#define HEADER(descr, order, shape)                                                                \
    "{'descr': " descr ", 'fortran_order': " order ", 'shape': " shape ", }"
#define F4(shape)   HEADER("'<f4'", "False", shape)
#define TYPE(descr) HEADER(descr, "False", "(1,)")

static const struct wrong_header wrong_headers[] = {
    {"empty header", "", 0, "not a dict"},
    {"key twice", "{'descr': '<f4', 'descr': '<f4'}", 0, "twice the key 'descr'"},
    {"dtype f8", TYPE("'<f8'"), 8, "unsupported dtype <f8; convert it with astype: ids"},
    {"structured dtype", TYPE("[('a', '<f4'), ('b', '<i8')]"), 12, "structured arrays are not"},
    {"dtype with a shape", TYPE("('<f4', (2,))"), 8, "structured arrays are not read; save each"},
    {"dtype None", TYPE("None"), 4, "descr is not a string, found \"None, 'fortran_order\""},
    {"Fortran order", HEADER("'<f4'", "True", "(2, 2)"), 16, "Fortran (column-major) order"},
    {"too many dimensions", F4("(1, 1, 1, 1, 1)"), 4, "more than 4 dimensions"},
    {"negative dimension", F4("(2, -3)"), 4, "negative dimension -3"},
    {"dimensions that overflow", F4("(4294967296, 4294967296)"), 8, "4294967296) overflows"},
    {"data too short", F4("(2, 3)"), 23, "shape (2, 3) of <f4 needs 24 bytes of data, got 23"},
    {"trailing bytes", F4("(2,)"), 11, "3 trailing bytes after the 8 of shape (2,)"},
};

static void wrong_header(void **state) {
    const struct wrong_header *w = *state;
    for (int version = 1; version <= 3; version++) {
        struct bytes b = file_with(version, w->header, w->data_bytes);
        assert_refused(&b, w->says);
    }
}

/* What comes before the header: a good file with one byte of it changed. */
struct wrong_byte {
    const char *test;
    int version, at, value;
    const char *says;
};

static const struct wrong_byte wrong_bytes[] = {
    {"magic", 1, 5, 'P', "not a .npy file"},
    {"version 4.0", 1, 6, 4, "unknown .npy format version 4.0"},
    {"header of 4 GiB", 2, 11, 255, "the header ends at byte 42"},
};

static void wrong_byte(void **state) {
    const struct wrong_byte *w = *state;
    struct bytes b = file_with(w->version, F4("()"), 4);
    b.at[w->at] = (unsigned char)w->value;
    assert_refused(&b, w->says);
}

/* No prefix of a good file is a good file. */
static void every_cut_is_refused(void **state) {
    (void)state;
    for (int version = 1; version <= 3; version++) {
        struct bytes b = file_with(version, F4("(2,)"), 8);
        struct npy a;
        struct error err;
        assert_int_equal(parse(&b, &a, &err), 0);
        npy_free(&a);
        while (b.size--) assert_refused(&b, "; ");
    }
}

static void assert_write_fails(const char *path, int num_dims, const int64_t *shape,
                               const char *says) {
    struct error err = {""};
    int32_t data[4] = {0};
    assert_int_equal(npy_write(path, NPY_INT32, num_dims, shape, data, &err), -1);
    if (strncmp(err.text, path, strnlen(path, 60)) != 0)
        fail_msg("the message does not name %.60s: \"%s\"", path, err.text);
    if (!strstr(err.text, says)) fail_msg("expected \"%s\" in \"%s\"", says, err.text);
}

static void no_place_to_write(void **state) {
    struct work_path full = work_path("npy_bad", "full.npy");
    const int64_t shape[] = {4};
    (void)state;
    assert_write_fails("tests/golden/none/a.npy", 1, shape, "No such file or directory");
    const int64_t big[] = {(int64_t)1 << 40, (int64_t)1 << 40};
    assert_write_fails(full.text, 5, (int64_t[]){1, 1, 1, 1, 1}, "0 to 4 are possible");
    assert_write_fails(full.text, 2, big, "negative or overflows");
    unlink(full.text);
    if (access("/dev/full", W_OK) || symlink("/dev/full", full.text)) skip();
    assert_write_fails(full.text, 1, shape, "cannot write: No space left on device");
    assert_int_equal(access(full.text, F_OK), -1);
}

TESTS(npy) {
    ADD_CASES(samples, writes_what_numpy_wrote);
    ADD_CASES(versions, reads_what_numpy_wrote);
    ADD_CASES(wrong_headers, wrong_header);
    ADD_CASES(wrong_bytes, wrong_byte);
    ADD_TEST(every_cut_is_refused);
    ADD_TEST(no_place_to_write);
    return run_listed("npy");
}
