/* SPDX-License-Identifier: MIT
 *
 * Saved states that are damaged, foreign or of another model, and paths that name none. A load
 * refuses them with a line and changes nothing; a save replaces none of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "extras/library/state.h"
#include "extras/library/tests/state_case.h"

#include "tests/support/kernel_tests.h"

enum { READS = 7 }; /* of a load until all is verified: length, header, five arrays */

static const struct embfuse_table tables[] = {
    {.rows = 3, .dim = 2, .rule = "adam_row_bias", .weight_type = EMBFUSE_BF16},
    {.rows = 2, .dim = 3, .rule = "sgd", .weight_type = EMBFUSE_FP8, .rounding = 1}};

/* A file with the state of `saved`. The model `to` has another one. */
struct one_file {
    struct work_path file;
    struct state_case saved, to, before; /* before: as `to` */
    unsigned char *bytes;                /* of the file */
    size_t size;
};

static void set(struct state_case *c, int n) {
    for (int32_t t = 0; t < c->num_tables; t++) embfuse_set_steps(c->model, t, n, NULL);
    embfuse_set(c->model, -1, "lr", n, NULL);
    set_rounding_seed(c->model, (uint64_t)n);
    state_case_scramble(c, (uint64_t)n);
}

static void begin(struct one_file *s, const char *name) {
    struct state_case *all[] = {&s->saved, &s->to, &s->before};
    s->file = state_file(name);
    for (int i = 0; i < 3; i++) {
        state_case_open(all[i], tables, 2, NULL, 4, 0);
        set(all[i], i ? 3 : 2);
    }
    assert_int_equal(embfuse_save(s->saved.model, s->file.text, NULL), 0);
    s->bytes = state_contents(s->file.text, &s->size);
    assert_in_range(s->size, 1000, 2000);
}

static void end(struct one_file *s) {
    state_case_free(&s->saved);
    state_case_free(&s->to);
    state_case_free(&s->before);
    free(s->bytes);
}

/* A load, or a save, has this status and says this. */
static void expect_call(struct state_case *c, const char *path, bool load, int status,
                        const char *said) {
    struct embfuse_error why = {""};
    const int is = load ? embfuse_load(c->model, path, &why) : embfuse_save(c->model, path, &why);
    if (is != status || !strstr(why.text, said))
        fail_msg("%s: status %d, '%s'; wanted %d, '%s'", path ? path : "no path", is, why.text,
                 status, said);
}

/* The load gives the saved state, or says why and changes nothing. A save does not replace what is refused. */
static void expect(struct one_file *s, const char *what, int status, const char *said) {
    expect_call(&s->to, s->file.text, true, status, said);
    if (status == EMBFUSE_REFUSED) {
        expect_call(&s->to, s->file.text, false, status, said);
        expect_call(&s->to, s->file.text, false, status, "; save to another file, or remove it");
    }
    const char *differs = state_case_differs(&s->to, status ? &s->before : &s->saved);
    if (differs) fail_msg("%s: %s", what, differs);
    if (status == 0) set(&s->to, 3);
}

/* The same for any status but 0. */
static void expect_refused(struct one_file *s, const char *what) {
    struct embfuse_error why = {""};
    const int is = embfuse_load(s->to.model, s->file.text, &why);
    if ((is != EMBFUSE_FILE_ERROR && is != EMBFUSE_REFUSED) || !strstr(why.text, s->file.text))
        fail_msg("%s: status %d, '%s'", what, is, why.text);
    if (strchr(why.text, '\n') || state_case_differs(&s->to, &s->before))
        fail_msg("%s: more than a line, or a change", what);
}

/* Each bit, and every length. */
static void every_byte(void **state) {
    (void)state;
    struct one_file s;
    char what[80];
    begin(&s, "bytes");
    const int fd = open(s.file.text, O_RDWR);
    for (size_t at = 0; at < s.size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            const unsigned char other = (unsigned char)(s.bytes[at] ^ 1 << bit);
            snprintf(what, sizeof what, "bit %d of byte %zu", bit, at);
            assert_int_equal(pwrite(fd, &other, 1, (off_t)at), 1);
            expect_refused(&s, what);
        }
        assert_int_equal(pwrite(fd, &s.bytes[at], 1, (off_t)at), 1);
    }
    expect(&s, "whole again", 0, "");
    assert_int_equal(ftruncate(fd, (off_t)s.size + 1), 0);
    expect(&s, "a byte more", EMBFUSE_FILE_ERROR, "longer or shorter than its arrays");
    for (size_t size = s.size; size-- > 0;) {
        snprintf(what, sizeof what, "%zu bytes", size);
        assert_int_equal(ftruncate(fd, (off_t)size), 0);
        expect_refused(&s, what);
    }
    close(fd);
    unlink(s.file.text);
    expect(&s, "no file", EMBFUSE_FILE_ERROR, "No such file");
    end(&s);
}

/* Replaces text in a string on the heap, which must have it. */
static char *edited(char *text, const char *from, const char *to) {
    char *at = strstr(text, from), *out = malloc(strlen(text) + strlen(to) + 1);
    if (!at) fail_msg("there is no %s in %s", from, text);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

static void write_header(struct one_file *s, const char *text, uint64_t length) {
    const uint64_t old = s->bytes[0] + 256u * s->bytes[1];
    FILE *f = fopen(s->file.text, "wb");
    assert_non_null(f);
    fwrite(&length, 8, 1, f);
    fwrite(text, 1, strlen(text), f);
    fwrite(s->bytes + 8 + old, 1, s->size - 8 - old, f);
    fclose(f);
}

/* The header as someone has edited it, or its metadata, whose checksum is right. */
static char *header_of(const struct one_file *s, const char *from, const char *to) {
    json_t *header = json_loadb((char *)s->bytes + 8, s->bytes[0] + 256u * s->bytes[1], 0, NULL),
           *metadata = json_object_get(header, "__metadata__");
    char *text = strdup(json_string_value(json_object_get(metadata, "embfuse")));
    state_sum sum;
    const bool of_state = strstr(text, from);
    if (of_state) text = edited(text, from, to);
    state_sum_print(sum, XXH3_64bits(text, strlen(text)));
    json_object_set_new(metadata, "embfuse", json_string(text));
    json_object_set_new(metadata, "xxh3", json_string(sum));
    free(text);
    text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    return of_state || !*from ? text : edited(text, from, to);
}

static void edited_headers(void **state) {
    (void)state;
    enum { BAD = EMBFUSE_FILE_ERROR, OTHER = EMBFUSE_REFUSED };
    static const struct {
        const char *from, *to;
        int status;
        const char *said;
    } edits[] = {
        {"\"version\":2", "\"version\":3", OTHER, "format version 3; this library reads 2"},
        {"\"version\":2", "\"version\":1", OTHER, "load it with embfuse "},
        {"\"version\":2", "\"version\":\"2\"", BAD, "Expected integer"},
        {"\"rounding_seed\":\"2\"", "\"rounding_seed\":\"2x\"", BAD, "rounding_seed"},
        {"\"tables\":[", "\"tables\":[{},", OTHER, "tables is 3, but the model's is 2"},
        {"adam_row_bias", "adamant", OTHER, "rule of table 0 is \"adamant\", but the model's"},
        {"stochastic", "nearest", OTHER, "rounding of table 1 is \"nearest\""},
        {"\"steps\":2", "\"steps\":-1", BAD, "steps"},
        {"\"steps\":2", "\"steps\":2,\"steps\":3", BAD, "duplicate object key"},
        {"\"steps\":2", "\"stops\":2", BAD, "Object item not found: steps"},
        {"\"lr\":2.0", "\"lr\":\"2\"", BAD, "lr: "},
        {"\"lr\":2.0", "\"lr\":1e99", BAD, "lr: "},
        {"\"lr\":2.0", "\"rate\":2.0", BAD, "rate: no hyper-parameter of the rule"},
        {"\"row_state\":\"", "\"row_state\":\"0", BAD, "xxh3: row_state"},
        {"\"row_state\":\"", "\"row\":\"", BAD, "xxh3: row_state"},
        /* Arrays lie in the order row_state, state.0, state.1, then table 0's weight, table 1's. */
        {"\"BF16\"", "\"F16\"", OTHER, "table.0.weight is {\"dtype\":\"F16\",\"shape\":[3,2]"},
        {"\"BF16\"", "\"BF16\",\"more\":1", OTHER, "but the model's is {\"dtype\":\"BF16\""},
        {"[2,3]", "[3,2]", OTHER, "table.1.weight is "},
        {"[2,3]", "[2,-3]", OTHER, "table.1.weight is "},
        {"[12,36]", "[13,37]", BAD, "overlap, or there is a hole"},
        {"[12,36]", "[36,60]", BAD, "overlap, or there is a hole"},
        {"[12,36]", "[12,37]", OTHER, "table.0.state.0 is "},
        {"[72,78]", "[73,79]", BAD, "overlap, or there is a hole"},
        {"[72,78]", "[-6,0]", OTHER, "table.1.weight is "},
        {"[72,78]", "[9223372036854775807,9223372036854775807]", OTHER, "table.1.weight is "},
        {"[72,78]", "[92233720368547758070,1]", BAD, "too big integer"},
        {"[72,78]", "72", OTHER, "table.1.weight is "},
        {"\"table.1.weight\"", "\"table.0.weight\"", BAD, "duplicate object key"},
        {"\"table.1.weight\"", "\"table.2.weight\"", OTHER, "table.1.weight is missing"},
        {"\"table.1.weight\"", "\"m\":{},\"table.1.weight\"", BAD, "more arrays than"},
        {"\"__metadata__\"", "\"metadata\"", BAD, "not a file of embfuse_save()"},
        {"\"xxh3\":\"", "\"xxh3\":\"0", BAD, "it has another checksum"},
        {"{\"__metadata__\"", "[\"__metadata__\"", BAD, "header: "},
        {"{\"__metadata__\":{", " {\"__metadata__\": {\n\"format\": \"pt\", ", 0, ""},
    };
    struct one_file s;
    begin(&s, "edited");
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *text = header_of(&s, edits[i].from, edits[i].to);
        write_header(&s, text, strlen(text));
        expect(&s, edits[i].to, edits[i].status, edits[i].said);
        free(text);
    }
    /* Two arrays of one size that have changed places are found by their checksums. */
    char *text = header_of(&s, "[12,36]", "[0,0]");
    text = edited(edited(text, "[36,60]", "[12,36]"), "[0,0]", "[36,60]");
    write_header(&s, text, strlen(text));
    expect(&s, "swapped", EMBFUSE_FILE_ERROR, "table.0.state.0 has another checksum");
    static const uint64_t lengths[] = {0, 1, 100000001, 1ull << 62, 1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        write_header(&s, text, lengths[i]);
        expect(&s, "a length", EMBFUSE_FILE_ERROR, "damaged, or not a file of embfuse_save()");
    }
    memset(text, '[', strlen(text));
    write_header(&s, text, strlen(text));
    expect(&s, "deep", EMBFUSE_FILE_ERROR, "header: ");
    free(text);
    end(&s);
}

ssize_t __real_pread(int fd, void *bytes, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at);
static int failing_read; /* the number of the next read that fails; 0: none */

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    if (failing_read == 0 || --failing_read) return __real_pread(fd, bytes, size, at);
    errno = EIO;
    return -1;
}

/* Links in a circle, and a disk that fails before the arrays change, and after that. */
static void unreadable(void **state) {
    (void)state;
    struct one_file s;
    struct embfuse_error why;
    char aside[PATH_MAX + 10];
    begin(&s, "unreadable");
    snprintf(aside, sizeof aside, "%s.aside", s.file.text);
    assert_int_equal(rename(s.file.text, aside) || symlink("model.safetensors", s.file.text), 0);
    expect(&s, "a circle", EMBFUSE_FILE_ERROR, "Too many levels of symbolic links");
    assert_int_equal(embfuse_save(s.saved.model, s.file.text, NULL), EMBFUSE_FILE_ERROR);
    assert_int_equal(rename(aside, s.file.text), 0);
    for (int n = 1; n <= READS + 1; n++) {
        failing_read = n;
        if (n <= READS) {
            expect(&s, "a read", EMBFUSE_FILE_ERROR, "cannot read: Input/output error");
        } else {
            assert_int_equal(embfuse_load(s.to.model, s.file.text, &why), EMBFUSE_FILE_ERROR);
            assert_non_null(strstr(why.text, "load again, the arrays are half read"));
        }
        assert_int_equal(failing_read, 0);
    }
    expect(&s, "it reads again", 0, "");
    end(&s);
}

static void bad_calls(void **state) {
    (void)state;
    const struct work_path file = state_file("calls"), other = work_path("state/calls", "other"),
                           part = work_path("state/calls", "model.safetensors.part"),
                           manifest = work_path("state/calls/old/state-00000001", "manifest");
    static const char old[] = "embfuse state 1\nlibrary 0.2.0\n";
    char folder[PATH_MAX + 10], name[400];
    struct state_case c;
    size_t size;
    state_case_open(&c, tables, 2, NULL, 0, 1);
    work_write(other.text, "some text", 9);
    work_write(manifest.text, old, strlen(old));
    snprintf(folder, sizeof folder, "%.*s", (int)(strstr(manifest.text, "/state-") - manifest.text),
             manifest.text);
    for (int load = 0; load < 2; load++) {
        expect_call(&(struct state_case){.num_tables = 0}, file.text, load, EMBFUSE_INVALID,
                    "is NULL");
        expect_call(&c, NULL, load, EMBFUSE_INVALID, "path is NULL");
        expect_call(&c, other.text, load, EMBFUSE_FILE_ERROR, "not a file of embfuse_save()");
        expect_call(&c, manifest.text, load, EMBFUSE_REFUSED,
                    "with the version that the manifest names");
        expect_call(&c, folder, load, EMBFUSE_REFUSED, "a folder, not a file; older versions");
    }
    free(state_contents(other.text, &size));
    assert_int_equal(size, 9); /* it is someone else's */
    expect_call(&c, file.text, true, EMBFUSE_FILE_ERROR, "cannot open: No such file");
    strcat(folder, "er/file");
    expect_call(&c, folder, false, EMBFUSE_FILE_ERROR, "its folder: No such file");
    snprintf(name, sizeof name, "%0300d", 0);
    expect_call(&c, name, false, EMBFUSE_FILE_ERROR, "File name too long");
    name[253] = '\0'; /* without room for .part */
    expect_call(&c, name, false, EMBFUSE_FILE_ERROR, "File name too long");
    assert_int_equal(symlink("other", part.text), 0);
    expect_call(&c, file.text, false, EMBFUSE_FILE_ERROR, "cannot create a file beside it");
    assert_int_equal(unlink(part.text) || work_write(part.text, old, sizeof old), 0);
    const int fd = open(part.text, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_call(&c, file.text, false, EMBFUSE_FILE_ERROR, "another save to this file is under way");
    close(fd);
    expect_call(&c, file.text, false, 0, "");
    expect_call(&c, file.text, false, 0, "");
    expect_call(&c, file.text, true, 0, "");
    assert_int_not_equal(access(part.text, F_OK), 0);
    state_case_free(&c);
}

static const char *saved_by_two;
static int refused_saves;

static void *save_often(void *model) {
    struct embfuse_error why;
    for (int i = 0; i < 100; i++) {
        if (embfuse_save(model, saved_by_two, &why) == 0) continue;
        if (!strstr(why.text, "another save to this file")) abort();
        __atomic_add_fetch(&refused_saves, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Each save is the only one or is refused, and the file is whole at every moment. */
static void two_savers(void **state) {
    (void)state;
    struct one_file s;
    pthread_t threads[2];
    begin(&s, "savers");
    set(&s.before, 4);
    saved_by_two = s.file.text;
    pthread_create(&threads[0], NULL, save_often, s.saved.model);
    pthread_create(&threads[1], NULL, save_often, s.before.model);
    for (int i = 0; i < 100; i++) {
        expect_call(&s.to, s.file.text, true, 0, "");
        if (state_case_differs(&s.to, &s.saved) && state_case_differs(&s.to, &s.before))
            fail_msg("load %d gives what nobody has saved", i);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_in_range(refused_saves, 0, 199);
    end(&s);
}

TESTS(state_damage) {
    add_test("each bit, every length", every_byte, NULL, NULL);
    add_test("edited headers", edited_headers, NULL, NULL);
    add_test("a state that cannot be read", unreadable, NULL, NULL);
    add_test("bad calls", bad_calls, NULL, NULL);
    add_test("two savers at once", two_savers, NULL, NULL);
    return run_listed("state damage");
}
