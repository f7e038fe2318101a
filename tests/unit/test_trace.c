/* SPDX-License-Identifier: MIT
 *
 * The trace readers: what the text layout means, one case for every way in which a trace can
 * be wrong, traces that are written and read again, and compressed files cut at every byte.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "harness/workload/npy.h"
#include "harness/workload/trace.h"
#include "harness/memory.h"
#include "kernels/rng.h"
#include "tests/support/batch_builder.h"
#include "tests/support/work_files.h"

#include "tests/support/cmocka_cases.h"

static struct trace read_good(const char *path) {
    struct trace t;
    struct error err = {""};
    if (trace_read(path, &t, &err)) fail_msg("%s", err.text);
    return t;
}

/* The message begins with a name and says why. */
static void assert_refused(const char *path, const char *names, const char *says) {
    struct trace t = {.bags = 9};
    struct error err = {""};
    assert_int_equal(trace_read(path, &t, &err), -1);
    if (strncmp(err.text, names, strlen(names)) || !strstr(err.text, says) ||
        strchr(err.text, '\n'))
        fail_msg("expected \"%s ... %s ...\", got \"%s\"", names, says, err.text);
    assert_memory_equal(&t, &(struct trace){0}, sizeof t);
}

/* Bags as text: "1 2|3||". */
static void assert_bags(const struct trace *t, const char *want) {
    char text[100] = "";
    int n = 0;
    int64_t rows = 0;
    assert_int_equal(t->offsets[t->bags], t->lookups);
    for (int64_t b = 0; b < t->bags; b++) {
        for (int64_t i = t->offsets[b]; i < t->offsets[b + 1]; i++) {
            n += sprintf(text + n, "%s%lld", i > t->offsets[b] ? " " : "", (long long)t->ids[i]);
            rows = t->ids[i] >= rows ? t->ids[i] + 1 : rows;
        }
        n += sprintf(text + n, "|");
    }
    assert_string_equal(text, want);
    assert_int_equal(t->rows, rows);
}

/* --- text ----------------------------------------------------------------------------------- */

struct text_case {
    const char *test, *text, *bags; /* NULL: refused */
    const char *says;
};

static const struct text_case texts[] = {
    {"one id", "7\n", "7|", 0},
    {"carriage returns", "1 2\r\n3\r\n", "1 2|3|", 0},
    {"many blanks", "  1  2   3 \n 4 \n", "1 2 3|4|", 0},
    {"a table", "196 242\n186\t302\t3\n", 0, "line 2: a tab; blanks separate ids"},
    {"what makes a trace of it", "186\t302\n", 0, "make import FROM="},
    {"empty bags", "\n1\n \n\r\n", "|1|||", 0},
    {"largest id", "281474976710655\n", "281474976710655|", 0},
    {"empty text", "", 0, "empty trace"},
    {"comma", "1,2\n", 0, "line 1: ',' is not a digit"},
    {"negative id", "1\n2 -1\n", 0, "line 2: negative id"},
    {"minus between digits", "1-2\n", 0, "line 1: '-' is not a digit"},
    {"carriage return inside a line", "1\r2\n", 0, "line 1: 0x0d is not a digit"},
    {"byte over 127", "\xc3\xa4\n", 0, "line 1: 0xc3 is not a digit"},
    {"id of 2^48", "1\n281474976710656\n", 0, "line 2: an id is not below 2^48"},
};

static void text_means(void **state) {
    const struct text_case *c = *state;
    struct work_path path = work_path("trace", "x.txt");
    assert_int_equal(work_write(path.text, c->text, strlen(c->text)), 0);
    if (!c->bags) {
        assert_refused(path.text, path.text, c->says);
        return;
    }
    struct trace t = read_good(path.text);
    assert_bags(&t, c->bags);
    trace_free(&t);
    assert_null(t.ids);
}

/* --- every kind of file --------------------------------------------------------------------- */

static void write_gz(const char *path, const char *text, size_t size, const char *mode) {
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)size), size);
    assert_int_equal(gzclose(f), Z_OK);
}

/* A trace that is longer than the pieces of a reader; ids grow with their numbers, bags are ragged. */
static char *long_text(size_t *size) {
    enum { BAGS = 20000, LONGEST = 7, CHARACTERS = 16 };
    char *text = malloc(BAGS * LONGEST * CHARACTERS);
    int64_t next = 0;
    assert_non_null(text);
    *size = 0;
    for (uint64_t b = 0; b < BAGS; b++) {
        for (uint64_t k = rng_u64(1, b) % LONGEST; k; k--, next++)
            *size += (size_t)sprintf(text + *size, "%lld ", (long long)(next * next));
        text[(*size)++] = '\n';
    }
    return text;
}

static void assert_long_trace(const char *path) {
    struct trace t = read_good(path);
    assert_int_equal(t.bags, 20000);
    assert_int_equal(t.rows, (t.lookups - 1) * (t.lookups - 1) + 1);
    for (int64_t b = 0; b < t.bags; b++)
        assert_int_equal(t.offsets[b + 1] - t.offsets[b], rng_u64(1, (uint64_t)b) % 7);
    for (int64_t i = 0; i < t.lookups; i++) assert_int_equal(t.ids[i], i * i);
    trace_free(&t);
}

/* As text, in two members of gzip, as text with gzip's ending, and as arrays with both endings. */
static void written_and_read(void **state) {
    struct work_path path = work_path("trace", "drawn.txt"),
                     gz = work_path("trace", "drawn.txt.gz"),
                     ids = work_path("trace", "drawn.ids.npy"),
                     npy = work_path("trace", "drawn.npy"),
                     offsets = work_path("trace", "drawn.offsets.npy");
    struct error err;
    size_t size;
    char *text = long_text(&size);
    (void)state;
    assert_int_equal(work_write(path.text, text, size), 0);
    assert_long_trace(path.text);
    write_gz(gz.text, text, size / 2, "wb1");
    write_gz(gz.text, text + size / 2, size - size / 2, "ab1");
    assert_long_trace(gz.text);
    assert_int_equal(work_write(gz.text, text, size), 0);
    assert_long_trace(gz.text);
    struct trace t = read_good(path.text);
    const int64_t ends = t.bags + 1;
    if (npy_write(ids.text, NPY_INT64, 1, &t.lookups, t.ids, &err) ||
        npy_write(npy.text, NPY_INT64, 1, &t.lookups, t.ids, &err) ||
        npy_write(offsets.text, NPY_INT64, 1, &ends, t.offsets, &err))
        fail_msg("%s", err.text);
    assert_long_trace(ids.text);
    assert_long_trace(npy.text);
    free(text);
    trace_free(&t);
}

/* No proper prefix of a compressed trace is a trace; and a changed byte makes a trace invalid:
 * in the data, in the check sum, or in the length. */
static void cut_or_corrupt_gz(void **state) {
    struct work_path path = work_path("trace", "cut.txt.gz");
    char text[1000] = "";
    unsigned char bytes[sizeof text];
    (void)state;
    for (int i = 0; strlen(text) < sizeof text - 16; i++)
        sprintf(text + strlen(text), "%d%c", i * 7919 % 10007, i % 5 ? ' ' : '\n');
    write_gz(path.text, text, strlen(text), "wb");
    FILE *f = fopen(path.text, "rb");
    assert_non_null(f);
    const size_t size = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(size, 100, sizeof bytes - 1);
    /* Zeros behind it are padding; the begin of another member, or text, would be lost. */
    static const char *const behind[] = {"\0\0\0", "\x1f\x8b\x08", "1 2", "\0\0\63"};
    for (int i = 0; i < 4; i++) {
        memcpy(bytes + size, behind[i], 3);
        assert_int_equal(work_write(path.text, bytes, size + 3), 0);
        if (i)
            assert_refused(path.text, path.text,
                           i == 1 ? "cut short" : "bytes behind the compressed stream");
        if (i) continue;
        struct trace trace;
        struct error err;
        assert_int_equal(trace_read_text(path.text, &trace, &err), 0);
        trace_free(&trace);
    }
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(work_write(path.text, bytes, cut), 0);
        assert_refused(path.text, path.text, cut > 1 ? "cut short" : "; ");
    }
    const size_t at[] = {12, size / 4, size / 2, size - 12, size - 8, size - 5, size - 4, size - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        bytes[at[i]] ^= 0x10;
        assert_int_equal(work_write(path.text, bytes, size), 0);
        assert_refused(path.text, path.text, "the compressed stream is");
        bytes[at[i]] ^= 0x10;
    }
}

/* Opening a pipe must not wait for a writer, and reading a device must not wait for its end. */
static void no_regular_file(void **state) {
    static const char *const names[] = {"none.txt", "none.txt.gz", "none.ids.npy"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct work_path path = work_path("trace/special", names[i]);
        unlink(path.text);
        assert_refused(path.text, path.text, "cannot open: No such file or directory");
        assert_int_equal(mkfifo(path.text, 0600), 0);
        assert_refused(path.text, path.text, "a pipe, not a regular file");
        unlink(path.text);
        assert_int_equal(symlink("/dev/zero", path.text), 0);
        assert_refused(path.text, path.text, "a device, not a regular file");
        unlink(path.text);
    }
    assert_refused("a.csv", "a.csv",
                   "accepted are *.txt, *.txt.gz and *.npy; make import FROM='a.csv'");
}

/* --- memory --------------------------------------------------------------------------------- */

/* What memory_available() returns here, instead of the machine's value. */
static int64_t available = INT64_MAX;
int64_t __wrap_memory_available(void);
int64_t __wrap_memory_available(void) {
    return available;
}

static struct work_path repeated_gz(const char *name, const char *piece, int times) {
    struct work_path path = work_path("trace", name);
    gzFile f = gzopen(path.text, "wb1");
    assert_non_null(f);
    for (int i = 0; i < times; i++) assert_int_equal(gzputs(f, piece), strlen(piece));
    assert_int_equal(gzclose(f), Z_OK);
    return path;
}

/* The reader refuses too large a trace in a small file while it counts, before it allocates. */
static void gz_larger_than_memory(void **state) {
    (void)state;
    struct work_path bags = repeated_gz("bags.txt.gz", "\n\n\n\n\n\n\n1", 1 << 17);
    struct work_path blanks = repeated_gz("blanks.txt.gz", "        ", 1 << 17);
    available = 1 << 20;
    assert_refused(bags.text, bags.text, "needs more than the 0.0 GiB that are available");
    available = 1 << 18;
    assert_refused(blanks.text, blanks.text, "GiB of text; use a shorter trace");
    available = INT64_MAX;
}

/* --- arrays --------------------------------------------------------------------------------- */

struct array_spec {
    enum npy_type type;
    int64_t count, values[4];
};

struct arrays_case {
    const char *test;
    struct array_spec ids, offsets;
    const char *names, *says; /* the file and what is wrong with it; NULL: bags 1 2 and 3 */
};

static const char ids_file[] = "a.ids.npy", offsets_file[] = "a.offsets.npy";

/* clang-format off */
static const struct arrays_case arrays[] = {
    {"arrays of int64", {NPY_INT64, 3, {1, 2, 3}}, {NPY_INT64, 3, {0, 2, 3}}, NULL, NULL},
    {"arrays of int32", {NPY_INT32, 3, {1, 2, 3}}, {NPY_INT32, 3, {0, 2, 3}}, NULL, NULL},
    {"ids are floats", {NPY_FLOAT32, 1, {0}}, {NPY_INT64, 2, {0, 1}}, ids_file, "1 dimensions of float32"},
    {"negative id", {NPY_INT64, 2, {0, -7}}, {NPY_INT64, 2, {0, 2}}, ids_file, "element 1 is -7"},
    {"id of 2^48", {NPY_INT64, 1, {(int64_t)1 << 48}}, {NPY_INT64, 2, {0, 1}}, ids_file, "element 0 is 281474"},
    {"no ids", {NPY_INT64, 0, {0}}, {NPY_INT64, 2, {0, 0}}, ids_file, "empty trace"},
    {"no offsets", {NPY_INT64, 1, {0}}, {NPY_INT64, 0, {0}}, offsets_file, "no elements"},
    {"offsets start late", {NPY_INT64, 2, {0, 0}}, {NPY_INT64, 2, {1, 2}}, offsets_file, "element 0 is 1; offsets"},
    {"offsets fall", {NPY_INT64, 2, {0, 0}}, {NPY_INT64, 4, {0, 2, 1, 2}}, offsets_file, "element 2 is 1, less"},
    {"offsets end early", {NPY_INT64, 3, {0, 0, 0}}, {NPY_INT64, 2, {0, 2}}, offsets_file, "is 2, but there are 3 ids"},
    {"offsets end late", {NPY_INT64, 1, {0}}, {NPY_INT64, 3, {0, 1, 5}}, offsets_file, "2, is 5, but there are 1 ids"},
};
/* clang-format on */

static struct work_path write_array(const char *file, const struct array_spec *a) {
    struct work_path path = work_path("trace", file);
    int32_t narrow[4] = {0}; /* also for float32, since only the type matters */
    for (int i = 0; i < 4; i++) narrow[i] = (int32_t)a->values[i];
    const void *data = a->type == NPY_INT64 ? (const void *)a->values : narrow;
    struct error err = {""};
    if (npy_write(path.text, a->type, 1, &a->count, data, &err)) fail_msg("%s", err.text);
    return path;
}

static void arrays_mean(void **state) {
    const struct arrays_case *c = *state;
    struct work_path ids = write_array(ids_file, &c->ids);
    struct work_path offsets = write_array(offsets_file, &c->offsets);
    if (c->names) {
        assert_refused(ids.text, c->names == ids_file ? ids.text : offsets.text, c->says);
        return;
    }
    struct trace t = read_good(ids.text);
    assert_bags(&t, "1 2|3|");
    trace_free(&t);
}

/* X.npy alone has an id in every bag; X.ids.npy needs X.offsets.npy. */
static void without_offsets(void **state) {
    struct work_path ids = write_array("b.ids.npy", &arrays[0].ids),
                     alone = write_array("c.npy", &arrays[0].ids);
    (void)state;
    assert_refused(ids.text, "", "bag b is ids[offsets[b]] to ids[offsets[b+1]-1]");
    struct trace t = read_good(alone.text);
    assert_bags(&t, "1|2|3|");
    trace_free(&t);
}

TESTS(trace) {
    ADD_CASES(texts, text_means);
    ADD_TEST(written_and_read);
    ADD_TEST(cut_or_corrupt_gz);
    ADD_TEST(no_regular_file);
    ADD_TEST(gz_larger_than_memory);
    ADD_CASES(arrays, arrays_mean);
    ADD_TEST(without_offsets);
    return run_listed("trace");
}
