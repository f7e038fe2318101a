/* SPDX-License-Identifier: MIT
 *
 * Saved states that are damaged, foreign or of another model, and directories that are none. A load takes the older
 * state and tells of it, or changes nothing.
 */
#include <string.h>
#include <sys/file.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/library/state_pair.h"

/* --- every bit, every length */

static const char *const files[] = {"manifest",      "weight.0.npy",  "row_state.0.npy",
                                    "state.0.0.npy", "state.0.1.npy", "weight.1.npy"};
enum { FILES = sizeof files / sizeof *files };

static void every_bit(void **state) {
    const char *name = ((const struct kernel_test *)*state)->param;
    struct pair_of_states s;
    size_t size;
    begin(&s, "bits");
    char path[PATH_ROOM], what[80];
    strcpy(path, file_of(&s, 2, name));
    unsigned char *bytes = state_contents(path, &size);
    assert_in_range(size, 100, 2000);
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        work_write(path, bytes, size);
        bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        snprintf(what, sizeof what, "bit %zu", bit);
        expect_older(&s, what, name);
    }
    for (size_t cut = 0; cut < size; cut++) {
        work_write(path, bytes, cut);
        snprintf(what, sizeof what, "%zu bytes", cut);
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
    work_write(path, bytes, size); /* the newest is whole again */
    work_write(file_of(&s, 2, "more.npy"), "x", 1);
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    assert_int_equal(embfuse_load(s.to.model, s.folder.text, &loaded, NULL), 0);
    assert_int_equal(loaded.number, 2);
    expect_equal(&s.to, &s.last, "whole again");
    free(bytes);
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

struct other {
    struct embfuse_table table;
    const char *said;
    int32_t more; /* tables */
};
static const struct other others[] = {
    {{.rows = 4, .dim = 2, .rule = "adagrad"}, "table 0 has rows 4, but the model's has 3"},
    {{.rows = 3, .dim = 5, .rule = "adagrad"}, "table 0 has dim 5, but the model's has 2"},
    {{.rows = 3, .dim = 2, .rule = "adamax"}, "has rule adamax, but the model's has adagrad"},
    {{.rows = 3, .dim = 2, .rule = "adagrad", .weight_type = EMBFUSE_FP16},
     "has weight_type fp16, but the model's has fp32",
     0},
    {{.rows = 3, .dim = 2, .rule = "adagrad"}, "state-00000001: 2 tables, but the model has 1", 1},
};

static void another_model(void **state) {
    (void)state;
    static const struct embfuse_table mine = {.rows = 3, .dim = 2, .rule = "adagrad"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const struct work_path folder = state_folder("another");
        struct state_case from, to, before;
        struct embfuse_error why = {""};
        const struct embfuse_table twice[] = {others[i].table, others[i].table};
        state_case_open(&from, twice, 1 + others[i].more, NULL, 0, 1);
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

/* A .npy that is right by its sum, but of another type or shape than the manifest says. */
static void another_array(void **state) {
    (void)state;
    struct pair_of_states s;
    size_t size, bytes;
    begin(&s, "array");
    char *text = (char *)state_contents(file_of(&s, 2, "manifest"), &size), sums[2][40];
    char *array = (char *)state_contents(file_of(&s, 2, "weight.0.npy"), &bytes);
    static const char *const wrong[][2] = {
        {"<u2", "<f2"}, {"(3, 2)", "(2, 3)"}, {"(3, 2)", "(6,)  "}};
    for (int i = 0; i < 3; i++) {
        unsigned char *other = state_contents(file_of(&s, 1, "weight.0.npy"), &bytes);
        memcpy(other, array, bytes);
        memcpy(strstr((char *)other + 10, wrong[i][0]), wrong[i][1], strlen(wrong[i][1]));
        work_write(file_of(&s, 2, "weight.0.npy"), other, bytes);
        for (int k = 0; k < 2; k++)
            snprintf(sums[k], sizeof sums[k], "xxh3 %016llx",
                     (unsigned long long)XXH3_64bits(k ? other : (unsigned char *)array, bytes));
        const char *changed = edited(text, size - 21, &(struct edit){sums[0], sums[1], ""});
        seal(&s, 2, changed, strlen(changed));
        expect_older(&s, wrong[i][1], "type or shape are not those of the manifest");
        free(other);
    }
    free(array);
    free(text);
    end(&s);
}

/* --- arguments and directories */

static void bad_calls(void **state) {
    (void)state;
    struct state_case c;
    struct embfuse_model *m;
    struct embfuse_error why = {""};
    struct embfuse_loaded loaded = {.size = 8};
    const struct work_path folder = state_folder("calls"), none = state_no_folder("none");
    state_case_open(&c, tables, 2, NULL, 0, 1);
    assert_int_equal(embfuse_save(NULL, folder.text, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_save(c.model, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_load(NULL, folder.text, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_load(c.model, NULL, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_load(c.model, folder.text, &loaded, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "loaded.size is 8"));
    const struct embfuse_feature feature = {.padding_id = -1};
    float weight[6];
    assert_int_equal(embfuse_model_create(&m, tables, 1, &feature, 1, NULL, &why), 0);
    assert_int_equal(embfuse_bind(m, 0, 0, weight, 0, &why), 0);
    assert_int_equal(embfuse_save(m, folder.text, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "array 1 is not bound"));
    assert_int_equal(embfuse_load(m, folder.text, NULL, &why), EMBFUSE_INVALID);
    embfuse_model_free(m);
    assert_int_equal(embfuse_load(c.model, folder.text, NULL, &why), EMBFUSE_FILE_ERROR);
    assert_non_null(strstr(why.text, "no saved state; embfuse_save() writes one"));
    assert_int_equal(embfuse_load(c.model, none.text, NULL, &why), EMBFUSE_FILE_ERROR);
    assert_non_null(strstr(why.text, "cannot open: No such file"));
    state_case_free(&c);
}

static void expect_no_save(const struct state_case *c, const char *path, const char *said) {
    struct embfuse_error why = {""};
    if (embfuse_save(c->model, path, &why) != EMBFUSE_FILE_ERROR || !strstr(why.text, said))
        fail_msg("%s: '%s', wanted '%s'", path, why.text, said);
}

static void bad_directories(void **state) {
    (void)state;
    struct state_case c;
    struct embfuse_error why;
    char path[PATH_ROOM], most[PATH_MAX + 10];
    const struct work_path folder = state_folder("directories");
    state_case_open(&c, tables, 2, NULL, 0, 1);
    snprintf(path, sizeof path, "%s/x/y", folder.text);
    expect_no_save(&c, path, "cannot create: No such file");
    assert_int_equal(work_write(work_path("state/directories", "file").text, "x", 1), 0);
    snprintf(path, sizeof path, "%s/file", folder.text);
    expect_no_save(&c, path, "cannot open: Not a directory");
    assert_int_equal(embfuse_load(c.model, path, NULL, &why), EMBFUSE_FILE_ERROR);
    expect_no_save(&c, "", "cannot create");
    memset(most, 'x', sizeof most - 1);
    most[sizeof most - 1] = '\0';
    expect_no_save(&c, most, "File name too long");
    if (access("/proc/self", F_OK) == 0) expect_no_save(&c, "/proc/self", "cannot create");
    chmod(folder.text, 0555);
    if (access(folder.text, W_OK)) expect_no_save(&c, folder.text, "Permission denied");
    chmod(folder.text, 0777);
    /* an earlier crash's folder, with a file of someone else, is in the way */
    work_write(work_path("state/directories/state-00000001.part", "x").text, "x", 1);
    expect_no_save(&c, folder.text, "state-00000001.part: cannot create: File exists");
    assert_true(state_exists(&folder, "state-00000001.part/x"));
    state_no_folder("directories");
    state_folder("directories");
    const int fd = open(folder.text, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    expect_no_save(&c, folder.text, "another save to this directory is under way");
    close(fd);
    assert_int_equal(embfuse_save(c.model, folder.text, &why), 0);
    state_case_free(&c);
}

TESTS(state_damage) {
    char name[100];
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "every bit and length of %s", files[i]);
        add_test(name, every_bit, NULL, files[i]);
    }
    add_test("the whole one stays", the_whole_one_stays, NULL, NULL);
    add_test("a state of another model", another_model, NULL, NULL);
    add_test("another array in a file", another_array, NULL, NULL);
    add_test("bad calls", bad_calls, NULL, NULL);
    add_test("bad directories", bad_directories, NULL, NULL);
    return run_listed("state damage");
}
