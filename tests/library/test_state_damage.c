/* SPDX-License-Identifier: MIT
 *
 * Saved states that are damaged, foreign or of another model, and directories that are none. A load
 * takes the older state and tells of it, or changes nothing.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include "lib/model.h"
#include "tests/library/state_case.h"

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

static void expect_equal(struct state_case *a, struct state_case *b, const char *what) {
    const char *differs = state_case_differs(a, b);
    if (differs) fail_msg("%s: %s", what, differs);
}

/* The load gives the older state, and says why. Then the model is as before. */
static void expect_older(struct pair_of_states *s, const char *what, const char *said) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    if (embfuse_load(s->to.model, s->folder.text, &loaded, &why))
        fail_msg("%s: %s", what, why.text);
    if (loaded.number != 1 || loaded.passed_over != 1)
        fail_msg("%s: loaded %d, passed over %d", what, (int)loaded.number, loaded.passed_over);
    if (!strstr(loaded.damage, said)) fail_msg("%s: '%s', wanted '%s'", what, loaded.damage, said);
    expect_equal(&s->to, &s->old, what);
    put(&s->to, 3);
}

static void expect_newest(struct pair_of_states *s, const char *what) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    if (embfuse_load(s->to.model, s->folder.text, &loaded, &why))
        fail_msg("%s: %s", what, why.text);
    assert_int_equal(loaded.number, 2);
    expect_equal(&s->to, &s->last, what);
    put(&s->to, 3);
}

static void expect_error(struct pair_of_states *s, int status, const char *said) {
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = sizeof loaded, .number = -5};
    const int is = embfuse_load(s->to.model, s->folder.text, &loaded, &why);
    if (is != status || !strstr(why.text, said))
        fail_msg("status %d: '%s', wanted %d: '%s'", is, why.text, status, said);
    assert_int_equal(loaded.number, -5);
    expect_equal(&s->to, &s->before, said);
}

static const char *file_of(const struct pair_of_states *s, int number, const char *name) {
    static char path[PATH_ROOM];
    snprintf(path, sizeof path, "%s/state-%08d/%s", s->folder.text, number, name);
    return path;
}

/* --- every byte, every length */

static const char *const files[] = {"manifest",      "weight.0.npy",  "row_state.0.npy",
                                    "state.0.0.npy", "state.0.1.npy", "weight.1.npy"};
enum { FILES = sizeof files / sizeof *files };

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
        expect_older(&s, what, name);
        work_write(path, bytes, at);
        expect_older(&s, what, name);
    }
    bytes[size] = '\n';
    work_write(path, bytes, size + 1);
    expect_older(&s, "a byte more", name);
    unlink(path);
    expect_older(&s, "no file", "No such file");
    mkdir(path, 0777);
    expect_older(&s, "a folder", "a folder, not a regular file");
    rmdir(path);
    work_write(file_of(&s, 1, name), bytes, size / 2);
    expect_error(&s, EMBFUSE_FILE_ERROR, "no other state there is whole");
    work_write(path, bytes, size);
    work_write(file_of(&s, 2, "more.npy"), "x", 1);
    expect_newest(&s, "whole again");
    free(bytes);
    end(&s);
}

/* --- manifests that someone has edited, with a right checksum */

enum outcome { OLDER, NEWEST, REFUSED };

static const struct edit {
    const char *from, *to; /* to NULL: `from` is left out with all that follows */
    const char *said;
    enum outcome outcome;
} edits[] = {
    {"rounding_seed 2\n", "", "rounding_seed or a table is missing", OLDER},
    {"rounding_seed 2\n", "rounding_seed 2\nrounding_seed 2\n", "write once: rounding_seed N", 0},
    {"rounding_seed 2\n", "rounding_seed 18446744073709551616\n", "seed is a whole number", OLDER},
    {"rounding_seed 2\n", "rounding_seed -2\n", "rounding_seed is a whole number", OLDER},
    {"rounding_seed 2\n", "rounding_seed 2 3\n", "write once: rounding_seed N", OLDER},
    {"library", "bibliothek", "'bibliothek' begins no line here", OLDER},
    {"library", "hyper lr 1\nlibrary", "'hyper' begins no line here", OLDER},
    {"library", "file weight.0.npy\nlibrary", "'file' begins no line here", OLDER},
    {"rows 3", "rows 0", "a table line lacks something", OLDER},
    {"rows 3", "rows 9300000000000000000", "rows is a whole number", OLDER},
    {"rows 3", "rows 3 rows 3", "rows twice", OLDER},
    {"dim 2 ", "", "a table line lacks something", OLDER},
    {"dim 2 ", "dim 2147483648 ", "dim is a whole number", OLDER},
    {"rule adam_row_bias ", "", "a table line lacks something", OLDER},
    {"rule adam_row_bias ", "rule adamant ", "rule is one of", OLDER},
    {"weight_type bf16", "weight_type bf15", "weight_type is one of", OLDER},
    {" steps 2", "", "a table line lacks something", OLDER},
    {"steps 2", "steps 2.0", "steps is a whole number", OLDER},
    {"hyper lr 2 ", "hyper lr nan ", "lr is a number, not 'nan'", OLDER},
    {"beta1 ", "beta1 1", "beta1 is a number from 0 to below 1", OLDER},
    {"hyper lr", "hyper momentum 1 lr", "'momentum' in this line", OLDER},
    {"file weight.0.npy", "file weight.npy", "the table has file weight.0.npy, type uint16", OLDER},
    {"shape 3,2", "shape 3,3", "the table has file weight.0.npy, type uint16, shape 3,2", OLDER},
    {"type uint16", "type float16", "the table has file weight.0.npy", OLDER},
    {"bytes 1", "bytes x1", "bytes is a whole number", OLDER},
    {"bytes 1", "bytes 9", "but the manifest says 9", OLDER},
    {"xxh3 ", "xxh3 x", "xxh3 is a whole number of hexadecimal digits", OLDER},
    {"xxh3 ", "xxh3 1", "xxh3 is a whole number of hexadecimal digits", OLDER},
    {"table rows 2", "file a\ntable rows 2", "a file more than the table has", OLDER},
    {"file weight.1.npy", NULL, "the line of weight.1.npy is missing", OLDER},
    {"file state.0.1.npy", "# file state.0.1.npy", "the line of state.0.1.npy is missing", OLDER},
    {"table", NULL, "rounding_seed or a table is missing", OLDER},
    {"embfuse state 1", "embfuse stage 1", "not the manifest of a saved state", OLDER},
    {"library", "\n# a comment\n  library", "", NEWEST},
    {"rounding nearest ", "", "", NEWEST},
    {"table rows 3 dim 2 ", "table dim 2 rows 3 ", "", NEWEST},
    {" beta1 0.9", "", "", NEWEST},
    {"embfuse state 1", "embfuse state 2", "format version 2; this library reads 1", REFUSED},
};

/* The manifest of state 2 after an edit, with a new checksum in its last line. */
static void edit(const struct pair_of_states *s, const char *text, const struct edit *e) {
    static char out[4096];
    const size_t body = (size_t)(strstr(text, "\nend ") + 1 - text);
    const char *at = strstr(text, e->from);
    if (!at) fail_msg("the manifest lacks '%s'", e->from);
    const char *rest = e->to ? at + strlen(e->from) : text + body;
    const int size = snprintf(out, sizeof out, "%.*s%s%.*s", (int)(at - text), text,
                              e->to ? e->to : "", (int)(text + body - rest), rest);
    snprintf(out + size, sizeof out - (size_t)size, "end %016llx\n",
             (unsigned long long)XXH3_64bits(out, (size_t)size));
    work_write(file_of(s, 2, "manifest"), out, strlen(out));
}

static void edited_manifests(void **state) {
    (void)state;
    struct pair_of_states s;
    size_t size;
    begin(&s, "edited");
    char *text = (char *)state_contents(file_of(&s, 2, "manifest"), &size);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        const struct edit *e = &edits[i];
        edit(&s, text, e);
        if (e->outcome == OLDER) expect_older(&s, e->to ? e->to : e->from, e->said);
        if (e->outcome == NEWEST) expect_newest(&s, e->to);
        if (e->outcome == REFUSED) expect_error(&s, EMBFUSE_REFUSED, e->said);
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
    expect_older(&s, "third", "state-00000003/manifest");
    end(&s);
}

/* --- another model, arguments and directories */

static const struct {
    const char *said;
    int32_t count; /* tables */
    struct embfuse_table table;
} others[] = {
    {"table 0 has rows 4, but the model's has 3", 1, {.rows = 4, .dim = 2, .rule = "adagrad"}},
    {"table 0 has dim 5, but the model's has 2", 1, {.rows = 3, .dim = 5, .rule = "adagrad"}},
    {"has rule adamax, but the model's has adagrad", 1, {.rows = 3, .dim = 2, .rule = "adamax"}},
    {"has weight_type fp16, but the model's has fp32",
     1,
     {.rows = 3, .dim = 2, .rule = "adagrad", .weight_type = EMBFUSE_FP16}},
    {"has momentum_type bf16, but the model's has fp32",
     1,
     {.rows = 3, .dim = 2, .rule = "adagrad", .momentum_type = EMBFUSE_BF16}},
    {"has rounding stochastic, but the model's has nearest",
     1,
     {.rows = 3, .dim = 2, .rule = "adagrad", .rounding = EMBFUSE_STOCHASTIC}},
    {"state-00000001: 2 tables, but the model has 1", 2, {.rows = 3, .dim = 2, .rule = "adagrad"}},
};

static void another_model(void **state) {
    (void)state;
    static const struct embfuse_table mine = {.rows = 3, .dim = 2, .rule = "adagrad"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct work_path folder = state_folder("another");
        struct state_case from, to, before;
        struct embfuse_error why = {""};
        const struct embfuse_table twice[] = {others[i].table, others[i].table};
        state_case_open(&from, twice, others[i].count, NULL, 0, 1);
        state_case_open(&to, &mine, 1, NULL, 0, 2);
        state_case_open(&before, &mine, 1, NULL, 0, 2);
        assert_int_equal(embfuse_save(from.model, folder.text, &why), 0);
        assert_int_equal(embfuse_load(to.model, folder.text, NULL, &why), EMBFUSE_REFUSED);
        if (!strstr(why.text, others[i].said)) fail_msg("%s", why.text);
        expect_equal(&to, &before, others[i].said);
        state_case_free(&from);
        state_case_free(&to);
        state_case_free(&before);
    }
}

/* The save and the load, or the save alone, fail with that status; the message of the last one has
 * these words. */
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
    const struct embfuse_feature feature = {.padding_id = -1};
    const struct work_path folder = state_folder("calls"), none = state_no_folder("none");
    struct embfuse_loaded loaded = {.size = 8};
    struct state_case c, bare = {0};
    float weight[6];
    state_case_open(&c, tables, 2, NULL, 0, 1);
    assert_int_equal(embfuse_load(c.model, folder.text, &loaded, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_model_create(&bare.model, tables, 1, &feature, 1, NULL, NULL), 0);
    assert_int_equal(embfuse_bind(bare.model, 0, 0, weight, 0, NULL), 0);
    for (int load = 0; load < 2; load++) {
        expect_no(&bare, folder.text, load, EMBFUSE_INVALID, "array 1 is not bound");
        expect_no(&(struct state_case){0}, folder.text, load, EMBFUSE_INVALID, "is NULL");
        expect_no(&c, NULL, load, EMBFUSE_INVALID, "is NULL");
    }
    expect_no(&c, folder.text, true, EMBFUSE_FILE_ERROR, "no saved state; embfuse_save() writes");
    expect_no(&c, none.text, true, EMBFUSE_FILE_ERROR, "cannot open: No such file");
    embfuse_model_free(bare.model);
    state_case_free(&c);
}

static void bad_directories(void **state) {
    (void)state;
    struct state_case c;
    char most[PATH_MAX + 10];
    const struct work_path folder = state_folder("directories");
    const struct work_path file = work_path("state/directories", "file"),
                           deep = work_path("state/directories/state-00000001.part", "x");
    state_case_open(&c, tables, 2, NULL, 0, 1);
    work_write(file.text, "x", 1);
    expect_no(&c, file.text, false, EMBFUSE_FILE_ERROR, "cannot open: Not a directory");
    expect_no(&c, file.text, true, EMBFUSE_FILE_ERROR, "cannot open: Not a directory");
    expect_no(&c, "", false, EMBFUSE_FILE_ERROR, "cannot create");
    memset(most, 'x', sizeof most - 1);
    most[sizeof most - 1] = '\0';
    expect_no(&c, most, false, EMBFUSE_FILE_ERROR, "File name too long");
    /* a crash's folder, with a file of someone else, is in the way */
    work_write(deep.text, "x", 1);
    expect_no(&c, folder.text, false, EMBFUSE_FILE_ERROR,
              "00000001.part: cannot create: File exists");
    assert_true(state_exists(&folder, "state-00000001.part/x"));
    unlink(deep.text);
    const int fd = open(folder.text, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_no(&c, folder.text, false, EMBFUSE_FILE_ERROR, "another save to this directory");
    close(fd);
    expect_no(&c, folder.text, false, 0, "");
    state_case_free(&c);
}

TESTS(state_damage) {
    char name[100];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "every byte and length of %s", files[i]);
        add_test(name, every_byte, NULL, files[i]);
    }
    add_test("edited manifests", edited_manifests, NULL, NULL);
    add_test("the whole one stays", the_whole_one_stays, NULL, NULL);
    add_test("a state of another model", another_model, NULL, NULL);
    add_test("bad calls", bad_calls, NULL, NULL);
    add_test("bad directories", bad_directories, NULL, NULL);
    return run_listed("state damage");
}
