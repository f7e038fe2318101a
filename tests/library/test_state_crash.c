/* SPDX-License-Identifier: MIT
 *
 * A save that is killed, or that loses what was not synced, at each of its calls leaves the old states or the new
 * one, whole; one that fails leaves what was there, and nothing else.
 */
#include "tests/library/crash_files.h"

#include <dirent.h>
#include <sys/wait.h>

#include "tests/library/state_case.h"

#include "tests/support/kernel_tests.h"

static const struct embfuse_table tables[] = {{.rows = 3, .dim = 2, .rule = "adagrad"},
                                              {.rows = 2, .dim = 3, .rule = "sgd"}};

static struct state_case old, last, next, again, to;
static struct state_case *const cases[] = {&old, &last, &next, &again, &to};

static void open_cases(void) {
    for (int i = 0; i < 5; i++) {
        state_case_open(cases[i], tables, 2, NULL, 0, (uint64_t)i + 1);
        embfuse_set_steps(cases[i]->model, 1, i + 1, NULL);
    }
}

static void close_cases(void) {
    for (int i = 0; i < 5; i++) state_case_free(cases[i]);
}

static const char name[] = "crash/of/state";

static void must_save(struct state_case *c, const struct work_path *at) {
    struct embfuse_error why;
    if (embfuse_save(c->model, at->text, &why)) fail_msg("%s", why.text);
}

/* An empty place, or one with two states. */
static struct work_path place(bool has_states) {
    state_no_folder("crash");
    const struct work_path at = work_path("state", name);
    work_path("state", "crash/stash/x"); /* makes the folder */
    if (has_states) must_save(&old, &at), must_save(&last, &at);
    return at;
}

static bool same(struct state_case *a, struct state_case *b) {
    return !state_case_differs(a, b) && !state_case_settings_differ(a, b);
}

/* The number of what a load gives; 0: there is nothing. It is whole and the newest, and nothing changed if there
 * is nothing. */
static int64_t loads(const struct work_path *at, const char *when) {
    struct embfuse_error why;
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    state_case_scramble(&to, 5);
    const int status = embfuse_load(to.model, at->text, &loaded, &why);
    if (status && !strstr(why.text, "no saved state") && !strstr(why.text, "cannot open"))
        fail_msg("%s: %s", when, why.text);
    if (status) return 0;
    if (loaded.passed_over) fail_msg("%s: %s", when, loaded.damage);
    return loaded.number;
}

static int entries(const struct work_path *at) {
    int count = 0;
    DIR *folder = opendir(at->text);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count ? count - 2 : 0;
}

/* After whatever happened, the next save works, and cleans up. */
static void saves_again(const struct work_path *at, const char *when) {
    must_save(&again, at);
    const int64_t number = loads(at, when);
    if (number < 1 || !same(&to, &again)) fail_msg("%s: the next save is not loaded", when);
    if (entries(at) != (number == 1 ? 1 : 2)) fail_msg("%s: %d entries", when, entries(at));
}

/* --- crashes */

/* Saves in a child that ends at call `at`, or after the save. Returns whether it ended in the save. */
static bool crashes(const struct work_path *place, int at, int loss) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        memset(&crash, 0, sizeof crash);
        crash.stash = __real_open(work_path("state", "crash/stash").text, O_RDONLY | O_DIRECTORY);
        crash.how = CRASH_HERE;
        crash.at = at;
        crash.loss = loss;
        crash.on = true;
        if (embfuse_save(next.model, place->text, NULL)) _exit(1);
        FILE *f = fopen(work_path("state/crash", "ended").text, "w");
        if (f) fclose(f);
        crash_now();
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != CRASH_STATUS)
        fail_msg("call %d: the child ended with %x", at, (unsigned)status);
    return access(work_path("state/crash", "ended").text, F_OK) != 0;
}

static void crash_anywhere(void **state) {
    const int loss = (int)((intptr_t)((const struct kernel_test *)*state)->param / 2);
    const bool has_states = (intptr_t)((const struct kernel_test *)*state)->param % 2;
    const int64_t before = has_states ? 2 : 0;
    bool in_save = true, seen[2] = {false, false};
    int at = 1;
    for (; in_save; at++) {
        char when[60];
        snprintf(when, sizeof when, "loss %d, call %d", loss, at);
        const struct work_path p = place(has_states);
        in_save = crashes(&p, at, loss);
        const int64_t number = loads(&p, when);
        if (number != before && number != before + 1) fail_msg("%s: %d", when, (int)number);
        if (number && !same(&to, number == before ? &last : &next))
            fail_msg("%s: another state", when);
        if (!in_save && number != before + 1) fail_msg("%s: a finished save was lost", when);
        seen[number - before] = true;
        saves_again(&p, when);
    }
    assert_in_range(at, 30, 80); /* the calls were counted */
    assert_true(seen[0] && seen[1]);
}

/* --- faults */

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

/* Saves `next` with a fault; *ended: there was no such call. Returns the status. */
static int save_with(const struct work_path *at, enum crash_how how, int call, int error,
                     bool *ended, struct embfuse_error *why) {
    const int before = descriptors();
    memset(&crash, 0, sizeof crash);
    crash.how = how;
    crash.at = call;
    crash.error = error;
    crash.on = true;
    const int status = embfuse_save(next.model, at->text, why);
    crash.on = false;
    *ended = crash.calls < call;
    for (int i = 0; i < crash.num_ops; i++) __real_close(crash.op[i].folder);
    for (int i = 0; i < crash.num_files; i++) __real_close(crash.file[i].fd);
    if (crash.retried) fail_msg("call %d: a failed sync was tried again", call);
    assert_int_equal(descriptors(), before);
    return status;
}

struct fault {
    const char *test;
    enum crash_how how;
    int error;
};
static const struct fault faults_of[] = {{"EIO once", FAIL_ONCE, EIO},
                                         {"ENOSPC once", FAIL_ONCE, ENOSPC},
                                         {"EACCES once", FAIL_ONCE, EACCES},
                                         {"EIO from then on", FAIL_ALWAYS, EIO},
                                         {"ENOSPC from then on", FAIL_ALWAYS, ENOSPC}};

static void fail_anywhere(void **state) {
    const struct fault *f = ((const struct kernel_test *)*state)->param;
    bool ended = false;
    int failed = 0, fine = 0;
    for (int call = 1; !ended; call++) {
        char when[60];
        snprintf(when, sizeof when, "%s, call %d", f->test, call);
        const struct work_path p = place(true);
        struct embfuse_error why = {""};
        const int status = save_with(&p, f->how, call, f->error, &ended, &why);
        const int64_t number = loads(&p, when);
        if (status && (status != EMBFUSE_FILE_ERROR || !strstr(why.text, strerror(f->error))))
            fail_msg("%s: status %d, %s", when, status, why.text);
        if (number && !same(&to, number == 2 ? &last : &next)) fail_msg("%s: another state", when);
        if (status == 0 && number != 3) fail_msg("%s: not saved", when);
        if (status && f->how == FAIL_ONCE && (number != 2 || entries(&p) != 2))
            fail_msg("%s: %d entries, %d is loaded", when, entries(&p), (int)number);
        failed += status != 0;
        fine += status == 0;
        saves_again(&p, when);
    }
    assert_true(failed > 25 && fine > 1);
}

/* Short writes, and interrupted ones. */
static void partial_writes(void **state) {
    (void)state;
    struct embfuse_error why = {""};
    bool ended = false;
    const struct work_path p = place(true);
    if (save_with(&p, FAIL_SHORT, 1, 0, &ended, &why)) fail_msg("%s", why.text);
    assert_true(crash.calls > 300);
    assert_int_equal(loads(&p, "short"), 3);
    assert_true(same(&to, &next));
    int fine = 0;
    for (int call = 1; !ended; call++) {
        const struct work_path q = place(false);
        if (save_with(&q, FAIL_ONCE, call, EINTR, &ended, &why)) continue;
        fine++;
        assert_int_equal(loads(&q, "interrupted"), 1);
        assert_true(same(&to, &next));
    }
    assert_true(fine >= 8); /* the writes of three arrays and a manifest */
}

/* A file system that cannot sync folders. */
static void no_folder_syncs(void **state) {
    (void)state;
    struct embfuse_error why = {""};
    bool ended;
    const struct work_path p = place(true);
    if (save_with(&p, FAIL_FOLDER_SYNCS, 1, EINVAL, &ended, &why)) fail_msg("%s", why.text);
    assert_int_equal(loads(&p, "no syncs"), 3);
    assert_int_equal(save_with(&p, FAIL_FOLDER_SYNCS, 1, EIO, &ended, &why), EMBFUSE_FILE_ERROR);
}

/* Reads that fail: of the first time, the older state is loaded; of the second, the arrays are half read. */
static void reads_fail(void **state) {
    (void)state;
    int older = 0, half = 0, status = 0;
    for (int call = 1;; call++) {
        const struct work_path p = place(true);
        struct embfuse_error why = {""};
        struct embfuse_loaded loaded = {.size = sizeof loaded};
        memset(&crash, 0, sizeof crash);
        crash.how = FAIL_ONCE;
        crash.at = call;
        crash.error = EIO;
        crash.on = true;
        status = embfuse_load(to.model, p.text, &loaded, &why);
        crash.on = false;
        if (crash.calls < call) break;
        half += status && strstr(why.text, "half read");
        if (status == 0 && loaded.number == 1) {
            assert_true(same(&to, &old));
            assert_non_null(strstr(loaded.damage, "Input/output error"));
            older++;
        } else if (status == 0) {
            assert_true(same(&to, &last));
        } else if (!strstr(why.text, "half read") && !strstr(why.text, "Input/output error")) {
            fail_msg("%s", why.text);
        }
    }
    assert_true(older > 6 && half > 6);
    memset(&crash, 0, sizeof crash);
    crash.how = FAIL_SHORT;
    crash.on = true;
    const struct work_path p = work_path("state", name);
    status = embfuse_load(to.model, p.text, NULL, NULL);
    crash.on = false;
    assert_int_equal(status, 0);
    assert_true(same(&to, &last) && crash.calls > 100);
}

TESTS(state_crash) {
    char text[80];
    open_cases();
    for (intptr_t i = 0; i < 2 * CRASH_LOSSES; i++) {
        snprintf(text, sizeof text, "a crash that loses %s, %s",
                 i / 2 == LOSES_NOTHING   ? "nothing"
                 : i / 2 == LOSES_ALL     ? "all"
                 : i / 2 == LOSES_CONTENT ? "content"
                                          : "some",
                 i % 2 ? "two states are there" : "the first save");
        add_test(text, crash_anywhere, NULL, (const void *)i);
    }
    for (size_t i = 0; i < sizeof faults_of / sizeof *faults_of; i++)
        add_test(faults_of[i].test, fail_anywhere, NULL, &faults_of[i]);
    add_test("partial writes", partial_writes, NULL, NULL);
    add_test("no syncs of folders", no_folder_syncs, NULL, NULL);
    add_test("reads that fail", reads_fail, NULL, NULL);
    const int status = run_listed("state crash");
    close_cases();
    return status;
}
