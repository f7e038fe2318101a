/* SPDX-License-Identifier: MIT
 *
 * Saved states that are damaged, foreign or of another model, and directories that are none. A load
 * takes the older state and tells of it, or changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "extras/library/model.h"
#include "extras/library/tests/state_case.h"

#include "tests/support/kernel_tests.h"

enum { PATH_ROOM = PATH_MAX + 200 };

static const struct embfuse_table tables[] = {
    {.rows = 3, .dim = 2, .rule = "adam_row_bias", .weight_type = EMBFUSE_BF16},
    {.rows = 2, .dim = 3, .rule = "sgd", .weight_type = EMBFUSE_FP8, .rounding = 1}};

/* A directory with two states: that of `old` is number 1, that of `last` number 2. The model `to`
 * has a third. */
struct pair_of_states {
    struct work_path folder;
    struct state_case old, last, to, before; /* before: as `to` */
};

static void put(struct state_case *c, int n) {
    for (int32_t t = 0; t < c->num_tables; t++) embfuse_set_steps(c->model, t, n, NULL);
    embfuse_set(c->model, -1, "lr", n, NULL);
    set_rounding_seed(c->model, (uint64_t)n);
    state_case_scramble(c, (uint64_t)n);
}

static void begin(struct pair_of_states *s, const char *name) {
    struct state_case *all[] = {&s->old, &s->last, &s->to, &s->before};
    s->folder = state_folder(name);
    for (int n = 0; n < 4; n++) {
        state_case_open(all[n], tables, 2, NULL, 4, 0);
        put(all[n], n < 3 ? n + 1 : 3);
        if (n < 2) assert_int_equal(embfuse_save(all[n]->model, s->folder.text, NULL), 0);
    }
}

static void end(struct pair_of_states *s) {
    state_case_free(&s->old);
    state_case_free(&s->last);
    state_case_free(&s->to);
    state_case_free(&s->before);
}

/* The load gives the state of that number, and says why another was passed over; 0: it fails, says
 * why, and changes nothing. */
static void expect(struct pair_of_states *s, int number, const char *what, const char *said) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    const int status = embfuse_load(s->to.model, s->folder.text, &loaded, &why);
    if ((status == 0) != (number > 0) || loaded.number != number)
        fail_msg("%s: loaded %d: %s", what, (int)loaded.number, why.text);
    const char *message = number ? loaded.damage : why.text;
    if (!strstr(message, said)) fail_msg("%s: '%s', wanted '%s'", what, message, said);
    const char *differs = state_case_differs(&s->to, number == 1 ? &s->old
                                                     : number    ? &s->last
                                                                 : &s->before);
    if (differs) fail_msg("%s: %s", what, differs);
    put(&s->to, 3);
}

static const char *file_of(const struct pair_of_states *s, int number, const char *name) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/state-%08d/%s", s->folder.text, number, name);
    return path;
}

/* One bit of each byte, and every length. */
static void every_byte(void **state) {
    const char *name = ((const struct kernel_test *)*state)->param;
    struct pair_of_states s;
    size_t size;
    begin(&s, "bytes");
    char path[PATH_ROOM], what[80];
    strcpy(path, file_of(&s, 2, name));
    unsigned char *bytes = state_contents(path, &size);
    assert_in_range(size, 100, 2000);
    for (size_t at = 0; at < size; at++) {
        snprintf(what, sizeof what, "byte %zu", at);
        bytes[at] ^= (unsigned char)(1u << at % 8);
        work_write(path, bytes, size);
        bytes[at] ^= (unsigned char)(1u << at % 8);
        expect(&s, 1, what, name);
        work_write(path, bytes, at);
        expect(&s, 1, what, name);
    }
    bytes[size] = '\n';
    work_write(path, bytes, size + 1);
    expect(&s, 1, "a byte more", name);
    unlink(path);
    expect(&s, 1, "no file", "No such file");
    mkdir(path, 0777);
    expect(&s, 1, "a folder", "a folder, not a regular file");
    rmdir(path);
    work_write(file_of(&s, 1, name), bytes, size / 2);
    expect(&s, 0, "both damaged", "no other state there is whole");
    work_write(path, bytes, size);
    work_write(file_of(&s, 2, "more.npy"), "x", 1);
    expect(&s, 2, "whole again", "");
    free(bytes);
    end(&s);
}

/* Manifests that someone has edited, with a right checksum. */
static void edited_manifests(void **state) {
    (void)state;
    static const struct {
        const char *from, *to, *said;
        int loaded;
    } edits[] = {
        {"rounding_seed 2\n", "", "rounding_seed or a table is missing", 1},
        {"rows 3", "rows 9300000000000000000", "rows is a whole number", 1},
        {"rule adam_row_bias ", "rule adamant ", "rule is one of", 1},
        {"shape 3,2", "shape 3,3", "the table has file weight.0.npy, type uint16, shape 3,2", 1},
        {"bytes 1", "bytes 9", "but the manifest says 9", 1},
        {"library", "\n# a comment\n  library", "", 2},
        {"embfuse state 1", "embfuse state 2", "format version 2; this library reads 1", 0},
    };
    struct pair_of_states s;
    size_t size;
    begin(&s, "edited");
    char *text = (char *)state_contents(file_of(&s, 2, "manifest"), &size), out[4096];
    const size_t body = (size_t)(strstr(text, "\nend ") + 1 - text);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const char *at = strstr(text, edits[i].from), *rest = at + strlen(edits[i].from);
        const int written = snprintf(out, sizeof out, "%.*s%s%.*s", (int)(at - text), text,
                                     edits[i].to, (int)(text + body - rest), rest);
        snprintf(out + written, sizeof out - (size_t)written, "end %016llx\n",
                 (unsigned long long)XXH3_64bits(out, (size_t)written));
        work_write(file_of(&s, 2, "manifest"), out, strlen(out));
        expect(&s, edits[i].loaded, edits[i].to, edits[i].said);
    }
    free(text);
    end(&s);
}

/* A damaged state does not count as the older one that stays. */
static void the_whole_one_stays(void **state) {
    (void)state;
    struct pair_of_states s;
    begin(&s, "stays");
    work_write(file_of(&s, 2, "manifest"), "x", 1);
    assert_int_equal(embfuse_save(s.before.model, s.folder.text, NULL), 0);
    assert_true(state_exists(&s.folder, "state-00000001/weight.0.npy"));
    assert_false(state_exists(&s.folder, "state-00000002"));
    work_write(file_of(&s, 3, "manifest"), "x", 1);
    expect(&s, 1, "third", "state-00000003/manifest");
    end(&s);
}

static void another_model(void **state) {
    (void)state;
    static const struct embfuse_table mine = {.rows = 3, .dim = 2, .rule = "adagrad"};
    static const char *const said[] = {
        "has rows 4, but the model's has 3", "has rule adamax, but the model's has adagrad",
        "has weight_type fp16, but the model's has fp32", "2 tables, but the model has 1"};
    for (int i = 0; i < 4; i++) {
        const struct work_path folder = state_folder("another");
        struct state_case from, to, before;
        struct embfuse_error why = {""};
        struct embfuse_table other[] = {mine, mine};
        if (i == 0) other[0].rows = 4;
        if (i == 1) other[0].rule = "adamax";
        if (i == 2) other[0].weight_type = EMBFUSE_FP16;
        state_case_open(&from, other, i == 3 ? 2 : 1, NULL, 0, 1);
        state_case_open(&to, &mine, 1, NULL, 0, 2);
        state_case_open(&before, &mine, 1, NULL, 0, 2);
        assert_int_equal(embfuse_save(from.model, folder.text, &why), 0);
        assert_int_equal(embfuse_load(to.model, folder.text, NULL, &why), EMBFUSE_REFUSED);
        if (!strstr(why.text, said[i])) fail_msg("%s", why.text);
        assert_null(state_case_differs(&to, &before));
        assert_int_equal(embfuse_save(to.model, folder.text, &why), EMBFUSE_REFUSED);
        if (!strstr(why.text, said[i]) || !strstr(why.text, "save to another one"))
            fail_msg("%s", why.text);
        assert_int_equal(embfuse_load(from.model, folder.text, NULL, &why), 0);
        state_case_free(&from);
        state_case_free(&to);
        state_case_free(&before);
    }
}

ssize_t __real_pread(int fd, void *bytes, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at);
static int failing_read; /* the number of the next read that fails; 0: none */

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    if (failing_read == 0 || --failing_read) return __real_pread(fd, bytes, size, at);
    errno = EIO;
    return -1;
}

/* The newest state is whole, but cannot be read: links in a circle, a disk that fails. */
static void unreadable(void **state) {
    (void)state;
    static const char *const files[] = {"manifest", "weight.0.npy", "state.0.1.npy"};
    struct pair_of_states s;
    char path[PATH_ROOM], aside[PATH_ROOM];
    begin(&s, "unreadable");
    strcpy(aside, file_of(&s, 1, "aside"));
    for (int i = 0; i < 3; i++) {
        strcpy(path, file_of(&s, 2, files[i]));
        assert_int_equal(rename(path, aside) || symlink(files[i], path), 0);
        expect(&s, 0, files[i], "Too many levels of symbolic links; no older state was loaded");
        if (i == 0) /* whose is it? */
            assert_int_equal(embfuse_save(s.last.model, s.folder.text, NULL), EMBFUSE_FILE_ERROR);
        assert_int_equal(rename(aside, path), 0);
    }
    for (int n = 1; n <= 8; n++) { /* before the arrays change */
        failing_read = n;
        expect(&s, 0, "a read", "Input/output error; no older state was loaded");
        assert_int_equal(failing_read, 0);
    }
    expect(&s, 2, "it reads again", "");
    end(&s);
}

static void expect_no(const struct state_case *c, const char *path, bool load, int status,
                      const char *said) {
    struct embfuse_error why = {""};
    const int is =
        load ? embfuse_load(c->model, path, NULL, &why) : embfuse_save(c->model, path, &why);
    if (is != status || !strstr(why.text, said))
        fail_msg("%s: status %d, '%s'; wanted %d, '%s'", path, is, why.text, status, said);
}

static void bad_calls(void **state) {
    (void)state;
    const struct work_path folder = state_folder("calls"), none = state_no_folder("none"),
                           file = work_path("state/calls", "file");
    struct state_case c;
    state_case_open(&c, tables, 2, NULL, 0, 1);
    work_write(file.text, "x", 1);
    for (int load = 0; load < 2; load++) {
        expect_no(&(struct state_case){0}, folder.text, load, EMBFUSE_INVALID, "is NULL");
        expect_no(&c, file.text, load, EMBFUSE_FILE_ERROR, "cannot open: Not a directory");
    }
    expect_no(&c, folder.text, true, EMBFUSE_FILE_ERROR, "no saved state; embfuse_save() writes");
    expect_no(&c, none.text, true, EMBFUSE_FILE_ERROR, "cannot open: No such file");
    const int fd = open(folder.text, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_no(&c, folder.text, false, EMBFUSE_FILE_ERROR, "another save to this directory");
    close(fd);
    expect_no(&c, folder.text, false, 0, "");
    expect_no(&c, folder.text, false, 0, "");
    expect_no(&c, folder.text, false, 0, "");
    assert_true(state_exists(&folder, "file")); /* it is someone else's */
    assert_true(state_exists(&folder, "state-00000003") && state_exists(&folder, "state-00000002"));
    assert_false(state_exists(&folder, "state-00000001"));
    state_case_free(&c);
}

TESTS(state_damage) {
    static const char *const files[] = {"manifest", "weight.0.npy", "state.0.1.npy",
                                        "weight.1.npy"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        add_test(files[i], every_byte, NULL, files[i]);
    add_test("edited manifests", edited_manifests, NULL, NULL);
    add_test("the whole one stays", the_whole_one_stays, NULL, NULL);
    add_test("a state of another model", another_model, NULL, NULL);
    add_test("a state that cannot be read", unreadable, NULL, NULL);
    add_test("bad calls", bad_calls, NULL, NULL);
    return run_listed("state damage");
}
