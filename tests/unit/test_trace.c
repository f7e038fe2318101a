/* SPDX-License-Identifier: MIT
 *
 * The trace readers: what the text layout means, one test for every way in which a trace can be
 * wrong, compressed files cut at every byte, and the real traces against the numbers of their
 * README (in $EMBFUSE_TRACES, otherwise ../shared/traces; skipped without traces).
 */
#include <errno.h>
#include <malloc.h>
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
#include "tests/support/batch_builder.h"
#include "tests/support/work_files.h"

#include "tests/support/cmocka_cases.h"

/* --- text ----------------------------------------------------------------------------------- */

static int parse(const char *text, size_t size, struct trace *out, struct error *err) {
    struct work_path path = work_path("trace", "x.txt");
    assert_int_equal(work_write(path.text, text, size), 0);
    return trace_read(path.text, out, err);
}

enum { MAX_BAGS = 4, MAX_IDS = 6 };

struct good_text {
    const char *test, *text;
    int64_t bags, offsets[MAX_BAGS + 1], ids[MAX_IDS], rows;
};

static const struct good_text good_texts[] = {
    {"one id", "7\n", 1, {0, 1}, {7}, 8},
    {"id 0", "0\n", 1, {0, 1}, {0}, 1},
    {"two bags", "1 2 3\n40 5\n", 2, {0, 3, 5}, {1, 2, 3, 40, 5}, 41},
    {"no newline at the end", "1 2\n3", 2, {0, 2, 3}, {1, 2, 3}, 4},
    {"carriage returns", "1 2\r\n3\r\n", 2, {0, 2, 3}, {1, 2, 3}, 4},
    {"carriage return at the end", "1 2\r", 1, {0, 2}, {1, 2}, 3},
    {"tabs and many blanks", " \t1  2\t\t3 \n\t4\t\n", 2, {0, 3, 4}, {1, 2, 3, 4}, 5},
    {"empty bags", "\n1\n \n\r\n", 4, {0, 0, 1, 1, 1}, {1}, 2},
    {"blanks after the last newline", "1\n ", 2, {0, 1, 1}, {1}, 2},
    {"same id again", "5 5 5\n5", 2, {0, 3, 4}, {5, 5, 5, 5}, 6},
    {"leading zeros", "007 0000000000000000000000001", 1, {0, 2}, {7, 1}, 8},
    {"largest id", "281474976710655\n", 1, {0, 1}, {281474976710655}, 281474976710656},
};
enum { NUM_GOOD = sizeof good_texts / sizeof good_texts[0] };

static void assert_trace(const struct trace *t, int64_t bags, const int64_t *offsets,
                         const int64_t *ids, int64_t rows) {
    assert_int_equal(t->bags, bags);
    assert_int_equal(t->lookups, offsets[bags]);
    assert_int_equal(t->rows, rows);
    assert_memory_equal(t->offsets, offsets, (size_t)(bags + 1) * sizeof *offsets);
    assert_memory_equal(t->ids, ids, (size_t)t->lookups * sizeof *ids);
}

static void test_good_text(void **state) {
    const struct good_text *g = *state;
    struct trace t;
    struct error err = {""};
    if (parse(g->text, strlen(g->text), &t, &err)) fail_msg("%s", err.text);
    assert_trace(&t, g->bags, g->offsets, g->ids, g->rows);
    trace_free(&t);
    assert_null(t.ids);
}

struct bad_text {
    const char *test, *text, *says;
};

static const struct bad_text bad_texts[] = {
    {"empty text", "", "x.txt: empty trace"},
    {"no lookup", "\n\n \n", "x.txt: empty trace"},
    {"letter", "1 2\n3 x\n", "x.txt: line 2: 'x' is not a digit"},
    {"letter after digits", "1\n\n12a\n", "x.txt: line 3: 'a' is not a digit"},
    {"comma", "1,2\n", "x.txt: line 1: ',' is not a digit"},
    {"fraction", "1.5\n", "x.txt: line 1: '.' is not a digit"},
    {"plus sign", "+1\n", "x.txt: line 1: '+' is not a digit"},
    {"negative id", "1\n2 -1\n", "x.txt: line 2: negative id"},
    {"minus alone", "1 - 2\n", "x.txt: line 1: '-' is not a digit"},
    {"minus at the end", "1 -", "x.txt: line 1: '-' is not a digit"},
    {"minus between digits", "1-2\n", "x.txt: line 1: '-' is not a digit"},
    {"carriage return inside a line", "1\r2\n", "x.txt: line 1: 0x0d is not a digit"},
    {"two carriage returns", "1\r\r\n", "x.txt: line 1: 0x0d is not a digit"},
    {"vertical tab", "1\v2\n", "x.txt: line 1: 0x0b is not a digit"},
    {"byte over 127", "\xc3\xa4\n", "x.txt: line 1: 0xc3 is not a digit"},
    {"id of 2^48", "1\n281474976710656\n", "x.txt: line 2: an id is not below 2^48"},
    {"id of 40 digits", "9999999999999999999999999999999999999999", "not below 2^48"},
};
enum { NUM_BAD = sizeof bad_texts / sizeof bad_texts[0] };

static void assert_refused(int failed, const struct trace *t, const struct error *err,
                           const char *says) {
    assert_int_equal(failed, -1);
    if (!strstr(err->text, says) || strchr(err->text, '\n'))
        fail_msg("expected \"... %s ...\", got \"%s\"", says, err->text);
    assert_memory_equal(t, &(struct trace){0}, sizeof *t);
}

static void test_bad_text(void **state) {
    const struct bad_text *b = *state;
    struct trace t = {.bags = 9};
    struct error err = {""};
    int failed = parse(b->text, strlen(b->text), &t, &err);
    assert_refused(failed, &t, &err, b->says);
}

static void test_nul_byte(void **state) {
    (void)state;
    struct trace t = {.bags = 9};
    struct error err = {""};
    int failed = parse("1\0002\n", 4, &t, &err);
    assert_refused(failed, &t, &err, "line 1: 0x00 is not a digit");
}

/* Enough to make every array grow several times: line b has b % 7 ids of the form 3*i. */
static void test_long_text(void **state) {
    (void)state;
    enum { LINES = 40000, ROOM = LINES * 7 * 8 };
    char *text = malloc(ROOM);
    assert_non_null(text);
    int64_t n = 0, i = 0;
    for (int64_t b = 0; b < LINES; b++) {
        for (int64_t k = 0; k < b % 7; k++) n += sprintf(text + n, "%lld ", (long long)(3 * i++));
        text[n++] = '\n';
    }
    struct trace t;
    struct error err = {""};
    if (parse(text, (size_t)n, &t, &err)) fail_msg("%s", err.text);
    free(text);
    assert_int_equal(t.bags, LINES);
    assert_int_equal(t.lookups, i);
    for (int64_t b = 0; b < LINES; b++)
        if (t.offsets[b + 1] - t.offsets[b] != b % 7) fail_msg("bag %lld", (long long)b);
    for (int64_t k = 0; k < i; k++)
        if (t.ids[k] != 3 * k) fail_msg("lookup %lld", (long long)k);
    trace_free(&t);
}

/* --- files ---------------------------------------------------------------------------------- */

static void assert_read_refused(const char *path, const char *names, const char *says) {
    struct trace t = {.bags = 9};
    struct error err = {""};
    int failed = trace_read(path, &t, &err);
    assert_refused(failed, &t, &err, says);
    if (strncmp(err.text, names, strlen(names)) != 0)
        fail_msg("expected \"%s...\", got \"%s\"", names, err.text);
}

static void assert_reads_1_2_3(const char *path) {
    struct trace t;
    struct error err = {""};
    if (trace_read(path, &t, &err)) fail_msg("%s", err.text);
    assert_trace(&t, 2, (int64_t[]){0, 2, 3}, (int64_t[]){1, 2, 3}, 4);
    trace_free(&t);
}

static void test_read_text(void **state) {
    (void)state;
    struct work_path path = work_path("trace", "a.txt");
    assert_int_equal(work_write(path.text, "1 2\n3\n", 6), 0);
    assert_reads_1_2_3(path.text);
}

static void write_gz(const char *path, const char *text, const char *mode) {
    gzFile f = gzopen(path, mode);
    assert_non_null(f);
    assert_int_equal(gzwrite(f, text, (unsigned)strlen(text)), strlen(text));
    assert_int_equal(gzclose(f), Z_OK);
}

static void test_read_gz(void **state) {
    (void)state;
    struct work_path path = work_path("trace", "a.txt.gz");
    write_gz(path.text, "1 2\n", "wb");
    write_gz(path.text, "3\n", "ab"); /* a second gzip member */
    assert_reads_1_2_3(path.text);
}

static void test_read_plain_text_named_gz(void **state) {
    (void)state;
    struct work_path path = work_path("trace", "plain.txt.gz");
    assert_int_equal(work_write(path.text, "1 2\n3\n", 6), 0);
    assert_reads_1_2_3(path.text);
}

/* A compressed file of a few kB, in *bytes on the heap. */
static size_t compressed_sample(unsigned char **bytes) {
    struct work_path path = work_path("trace", "sample.txt.gz");
    char text[4096];
    int n = 0;
    for (int i = 0; n < (int)sizeof text - 16; i++)
        n += sprintf(text + n, "%d%c", i * 7919 % 10007, i % 5 ? ' ' : '\n');
    write_gz(path.text, text, "wb");
    FILE *f = fopen(path.text, "rb");
    assert_non_null(f);
    *bytes = malloc(sizeof text);
    assert_non_null(*bytes);
    size_t size = fread(*bytes, 1, sizeof text, f);
    fclose(f);
    assert_in_range(size, 100, sizeof text - 1);
    return size;
}

/* No proper prefix of a compressed trace is a trace, wherever the cut falls. */
static void test_cut_gz(void **state) {
    (void)state;
    struct work_path path = work_path("trace", "cut.txt.gz");
    unsigned char *bytes;
    size_t size = compressed_sample(&bytes);
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(work_write(path.text, bytes, cut), 0);
        assert_read_refused(path.text, path.text, cut > 1 ? "cut short" : "; ");
    }
    free(bytes);
}

/* A changed byte makes it invalid: in the data, in the check sum, or in the length. */
static void test_corrupt_gz(void **state) {
    (void)state;
    struct work_path path = work_path("trace", "corrupt.txt.gz");
    unsigned char *bytes;
    size_t size = compressed_sample(&bytes);
    const size_t at[] = {12, size / 4, size / 2, size - 12, size - 8, size - 5, size - 4, size - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        bytes[at[i]] ^= 0x10;
        assert_int_equal(work_write(path.text, bytes, size), 0);
        assert_read_refused(path.text, path.text, "the compressed stream is");
        bytes[at[i]] ^= 0x10;
    }
    free(bytes);
}

static void test_read_missing_file(void **state) {
    (void)state;
    const char *why = "cannot open: No such file or directory";
    assert_read_refused("tests/none.txt", "tests/none.txt: ", why);
    assert_read_refused("tests/none.txt.gz", "tests/none.txt.gz: ", why);
    assert_read_refused("tests/none.ids.npy", "tests/none.ids.npy: ", why);
}

static void test_read_folder(void **state) {
    (void)state;
    struct work_path inside = work_path("trace/folder.txt", "file");
    struct work_path path = work_path("trace", "folder.txt");
    assert_int_equal(work_write(inside.text, "", 0), 0);
    assert_read_refused(path.text, path.text, "a folder, not a regular file");
}

/* Opening a pipe must not wait for a writer, and reading a device must not wait for its end. */
static void test_read_endless(void **state) {
    (void)state;
    const char *const names[] = {"pipe.txt", "pipe.txt.gz", "pipe.npy"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct work_path path = work_path("trace", names[i]);
        unlink(path.text);
        assert_int_equal(mkfifo(path.text, 0600), 0);
        assert_read_refused(path.text, path.text, "a pipe, not a regular file");
        unlink(path.text);
        assert_int_equal(symlink("/dev/zero", path.text), 0);
        assert_read_refused(path.text, path.text, "a device, not a regular file");
        unlink(path.text);
    }
}

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
static void test_gz_larger_than_memory(void **state) {
    (void)state;
    struct work_path bags = repeated_gz("bags.txt.gz", "\n\n\n\n\n\n\n1", 1 << 17);
    struct work_path blanks = repeated_gz("blanks.txt.gz", "        ", 1 << 17);
    available = 1 << 20;
    assert_read_refused(bags.text, bags.text, "needs more than the 0.0 GiB that are available");
    available = 1 << 18;
    assert_read_refused(blanks.text, blanks.text, "GiB of text; use a shorter trace");
    available = INT64_MAX;
}

/* The whole text is never in memory, and its arrays are allocated once, at their final size. */
static void test_gz_in_pieces(void **state) {
    (void)state;
    enum { TIMES = 1 << 20, ARRAYS = 7 * TIMES * 8 };
    struct work_path path = repeated_gz("pieces.txt.gz", "1000000000 2 3\n4 5\n", TIMES);
    struct trace t;
    struct error err = {""};
    malloc_trim(0); /* otherwise malloc reuses memory of earlier tests, unseen */
    struct memory_watch watch = memory_watch();
    if (WITH_SANITIZER || watch.before < 0) skip();
    if (trace_read(path.text, &t, &err)) fail_msg("%s", err.text);
    int64_t peak = memory_watch_peak(watch);
    assert_int_equal(t.lookups, 5 * TIMES);
    assert_int_equal(t.bags, 2 * TIMES);
    trace_free(&t);
    assert_in_range(peak, 0, ARRAYS * 5 / 4);
}

static void test_unknown_ending(void **state) {
    (void)state;
    const char *paths[] = {"a.csv", "a.npz", "a.txt.bz2", "txt", ""};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        assert_read_refused(paths[i], paths[i], "accepted are *.txt, *.txt.gz and *.npy");
}

/* --- arrays --------------------------------------------------------------------------------- */

struct npy_case {
    enum npy_type type;
    int num_dims;
    int64_t shape[2];
    int64_t values[4];
};

struct arrays {
    const char *test;
    struct npy_case ids, offsets;
    const char *names, *says; /* the file and what is wrong with it; NULL: valid */
};

static const char ids_file[] = "a.ids.npy", offsets_file[] = "a.offsets.npy";

static const struct arrays array_cases[] = {
    {"arrays of int64", {NPY_INT64, 1, {3}, {1, 2, 3}}, {NPY_INT64, 1, {3}, {0, 2, 3}}, 0, 0},
    {"arrays of int32", {NPY_INT32, 1, {3}, {1, 2, 3}}, {NPY_INT32, 1, {3}, {0, 2, 3}}, 0, 0},
    {"arrays of both", {NPY_INT32, 1, {3}, {1, 2, 3}}, {NPY_INT64, 1, {3}, {0, 2, 3}}, 0, 0},
    {"ids are floats",
     {NPY_FLOAT32, 1, {1}, {0}},
     {NPY_INT64, 1, {2}, {0, 1}},
     ids_file,
     "1 dimensions of float32"},
    {"ids have two dimensions",
     {NPY_INT64, 2, {1, 2}, {1, 2}},
     {NPY_INT64, 1, {2}, {0, 2}},
     ids_file,
     "2 dimensions of integers"},
    {"negative id in int64",
     {NPY_INT64, 1, {2}, {0, -7}},
     {NPY_INT64, 1, {2}, {0, 2}},
     ids_file,
     "element 1 is -7"},
    {"negative id in int32",
     {NPY_INT32, 1, {2}, {0, -7}},
     {NPY_INT64, 1, {2}, {0, 2}},
     ids_file,
     "element 1 is -7"},
    {"id of 2^48 in an array",
     {NPY_INT64, 1, {1}, {(int64_t)1 << 48}},
     {NPY_INT64, 1, {2}, {0, 1}},
     ids_file,
     "element 0 is 281474976710656"},
    {"id of 2^63-1 in an array",
     {NPY_INT64, 1, {1}, {INT64_MAX}},
     {NPY_INT64, 1, {2}, {0, 1}},
     ids_file,
     "element 0 is 9223372036854775807"},
    {"no ids", {NPY_INT64, 1, {0}, {0}}, {NPY_INT64, 1, {2}, {0, 0}}, ids_file, "empty trace"},
    {"no offsets", {NPY_INT64, 1, {1}, {0}}, {NPY_INT32, 1, {0}, {0}}, offsets_file, "no elements"},
    {"offsets have no dimension",
     {NPY_INT64, 1, {1}, {0}},
     {NPY_INT64, 0, {0}, {0}},
     offsets_file,
     "0 dimensions"},
    {"offsets do not start at 0",
     {NPY_INT64, 1, {2}, {0, 0}},
     {NPY_INT64, 1, {2}, {1, 2}},
     offsets_file,
     "element 0 is 1; offsets start at 0"},
    {"offsets fall",
     {NPY_INT64, 1, {2}, {0, 0}},
     {NPY_INT64, 1, {4}, {0, 2, 1, 2}},
     offsets_file,
     "element 2 is 1, less than 2 before it"},
    {"offsets end early",
     {NPY_INT64, 1, {3}, {0, 0, 0}},
     {NPY_INT64, 1, {2}, {0, 2}},
     offsets_file,
     "the last element, 1, is 2, but there are 3 ids"},
    {"offsets end late",
     {NPY_INT64, 1, {1}, {0}},
     {NPY_INT64, 1, {3}, {0, 1, 5}},
     offsets_file,
     "the last element, 2, is 5, but there are 1 ids"},
};
enum { NUM_ARRAYS = sizeof array_cases / sizeof array_cases[0] };

static struct work_path write_array(const char *file, const struct npy_case *a) {
    struct work_path path = work_path("trace", file);
    int32_t narrow[4] = {0}; /* also for float32, since only the type matters */
    for (int i = 0; i < 4; i++) narrow[i] = (int32_t)a->values[i];
    const void *data = a->type == NPY_INT64 ? (const void *)a->values : narrow;
    struct error err = {""};
    if (npy_write(path.text, a->type, a->num_dims, a->shape, data, &err)) fail_msg("%s", err.text);
    return path;
}

static void test_arrays(void **state) {
    const struct arrays *c = *state;
    struct work_path ids = write_array(ids_file, &c->ids);
    struct work_path offsets = write_array(offsets_file, &c->offsets);
    if (!c->names)
        assert_reads_1_2_3(ids.text);
    else
        assert_read_refused(ids.text, c->names == ids_file ? ids.text : offsets.text, c->says);
}

static void test_offsets_file_missing(void **state) {
    (void)state;
    struct work_path ids = write_array("b.ids.npy", &array_cases[0].ids);
    struct work_path offsets = work_path("trace", "b.offsets.npy");
    assert_read_refused(ids.text, offsets.text, "bag b is ids[offsets[b]] to ids[offsets[b+1]-1]");
    assert_read_refused(offsets.text, offsets.text, "the offsets of a trace; name the file of its");
}

static void test_one_id_a_bag(void **state) {
    (void)state;
    struct work_path path = write_array("c.npy", &array_cases[0].ids);
    struct trace t;
    struct error err = {""};
    if (trace_read(path.text, &t, &err)) fail_msg("%s", err.text);
    assert_trace(&t, 3, (int64_t[]){0, 1, 2, 3}, (int64_t[]){1, 2, 3}, 4);
    trace_free(&t);
}

static void test_offsets_beside_npy(void **state) {
    (void)state;
    struct work_path path = write_array("d.npy", &array_cases[0].ids);
    write_array("d.offsets.npy", &array_cases[0].offsets);
    assert_reads_1_2_3(path.text);
}

/* --- real traces ---------------------------------------------------------------------------- */

/* The table in traces/README.md. */
struct real_trace {
    const char *file;
    int64_t bags, lookups, distinct, rows, longest;
};

static const struct real_trace real_traces[] = {
    {"gpt2_novels_1024.txt.gz", 2048, 2097152, 26936, 50257, 1024},
    {"tang_poems.txt.gz", 57427, 3068870, 9534, 9534, 2384},
    {"retail_items.txt.gz", 25901, 541909, 4070, 4070, 1114},
    {"retail_customer.txt.gz", 25901, 25901, 4373, 4373, 1},
    {"retail_country.txt.gz", 25901, 25901, 38, 38, 1},
};
enum { NUM_REAL = sizeof real_traces / sizeof real_traces[0] };

static int64_t distinct_ids(const struct trace *t) {
    unsigned char *seen = calloc((size_t)t->rows, 1);
    assert_non_null(seen);
    int64_t distinct = 0;
    for (int64_t i = 0; i < t->lookups; i++) {
        distinct += !seen[t->ids[i]];
        seen[t->ids[i]] = 1;
    }
    free(seen);
    return distinct;
}

static int64_t longest_bag(const struct trace *t) {
    int64_t longest = 0;
    for (int64_t b = 0; b < t->bags; b++)
        if (t->offsets[b + 1] - t->offsets[b] > longest)
            longest = t->offsets[b + 1] - t->offsets[b];
    return longest;
}

static void test_real_trace(void **state) {
    const struct real_trace *r = *state;
    const char *folder = getenv("EMBFUSE_TRACES");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder ? folder : "../shared/traces", r->file);
    if (access(path, F_OK)) skip();
    struct trace t;
    struct error err = {""};
    if (trace_read(path, &t, &err)) fail_msg("%s", err.text);
    assert_int_equal(t.bags, r->bags);
    assert_int_equal(t.lookups, r->lookups);
    assert_int_equal(t.offsets[t.bags], r->lookups);
    assert_int_equal(t.rows, r->rows);
    assert_int_equal(longest_bag(&t), r->longest);
    assert_int_equal(distinct_ids(&t), r->distinct);
    trace_free(&t);
}

TESTS(trace) {
    const struct CMUnitTest single[] = {
        cmocka_unit_test(test_nul_byte),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_read_text),
        cmocka_unit_test(test_read_gz),
        cmocka_unit_test(test_read_plain_text_named_gz),
        cmocka_unit_test(test_cut_gz),
        cmocka_unit_test(test_corrupt_gz),
        cmocka_unit_test(test_read_missing_file),
        cmocka_unit_test(test_read_folder),
        cmocka_unit_test(test_read_endless),
        cmocka_unit_test(test_gz_larger_than_memory),
        cmocka_unit_test(test_gz_in_pieces),
        cmocka_unit_test(test_unknown_ending),
        cmocka_unit_test(test_offsets_file_missing),
        cmocka_unit_test(test_one_id_a_bag),
        cmocka_unit_test(test_offsets_beside_npy),
    };
    enum { NUM_SINGLE = sizeof single / sizeof single[0] };
    struct CMUnitTest tests[NUM_GOOD + NUM_BAD + NUM_ARRAYS + NUM_REAL + NUM_SINGLE];
    struct CMUnitTest *t = tests;
    for (int i = 0; i < NUM_GOOD; i++)
        *t++ = case_test(good_texts[i].test, test_good_text, &good_texts[i]);
    for (int i = 0; i < NUM_BAD; i++)
        *t++ = case_test(bad_texts[i].test, test_bad_text, &bad_texts[i]);
    for (int i = 0; i < NUM_ARRAYS; i++)
        *t++ = case_test(array_cases[i].test, test_arrays, &array_cases[i]);
    for (int i = 0; i < NUM_REAL; i++)
        *t++ = case_test(real_traces[i].file, test_real_trace, &real_traces[i]);
    memcpy(t, single, sizeof single);
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
