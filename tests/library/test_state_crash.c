/* SPDX-License-Identifier: MIT
 *
 * A save that is killed, or that loses what was not synced, at each of its calls leaves the old
 * states or the new one, whole; one that fails leaves what was there, and nothing else.
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

static void must_save(struct state_case *c, const struct work_path *at) {
    struct embfuse_error why;
    if (embfuse_save(c->model, at->text, &why)) fail_msg("%s", why.text);
}

/* An empty place, or one with two states. */
static struct work_path place(bool has_states) {
    state_no_folder("crash");
    const struct work_path at = work_path("state", "crash/of/state");
    work_path("state", "crash/stash/x"); /* makes the folder */
    if (has_states) must_save(&old, &at), must_save(&last, &at);
    return at;
}

/* The state that a load gives, with its number; NULL and 0: there is nothing. It is whole, and the
 * newest. */
static const struct state_case *loaded_from(const struct work_path *at, const char *when,
                                            int64_t *number) {
    struct embfuse_error why;
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    state_case_scramble(&to, 5);
    const int status = embfuse_load(to.model, at->text, &loaded, &why);
    *number = loaded.number;
    if (status && !strstr(why.text, "no saved state") && !strstr(why.text, "cannot open"))
        fail_msg("%s: %s", when, why.text);
    if (status) return NULL;
    if (loaded.passed_over) fail_msg("%s: %s", when, loaded.damage);
    for (int i = 0; i < 4; i++)
        if (!state_case_differs(&to, cases[i])) return cases[i];
    fail_msg("%s: what is loaded was never saved", when);
    return NULL;
}

static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count ? count - 2 : 0;
}

/* After whatever happened, the next save works, and cleans up. */
static void saves_again(const struct work_path *at, const char *when) {
    int64_t number;
    must_save(&again, at);
    if (loaded_from(at, when, &number) != &again) fail_msg("%s: the next save is not loaded", when);
    if (entries(at->text) != (number == 1 ? 1 : 2))
        fail_msg("%s: %d entries", when, entries(at->text));
}

static void start(enum crash_how how, int at, int error) {
    memset(&crash, 0, sizeof crash);
    crash.how = how;
    crash.at = at;
    crash.error = error;
    crash.on = true;
}

/* --- crashes */

/* Saves in a child that ends at call `at`, or after the save. Returns whether it ended in the
 * save. */
static bool crashes(const struct work_path *place, int at, int loss) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        const int stash =
            __real_open(work_path("state", "crash/stash").text, O_RDONLY | O_DIRECTORY);
        start(CRASH_HERE, at, 0);
        crash.stash = stash;
        crash.loss = loss;
        if (embfuse_save(next.model, place->text, NULL)) _exit(1);
        work_write(work_path("state/crash", "ended").text, "x", 1);
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
    const struct state_case *const before = has_states ? &last : NULL;
    bool in_save = true, seen[2] = {false, false};
    int at = 1;
    for (; in_save; at++) {
        char when[60];
        int64_t number;
        snprintf(when, sizeof when, "loss %d, call %d", loss, at);
        const struct work_path p = place(has_states);
        in_save = crashes(&p, at, loss);
        const struct state_case *is = loaded_from(&p, when, &number);
        if (is != before && is != &next) fail_msg("%s: another state", when);
        if (!in_save && is != &next) fail_msg("%s: a finished save was lost", when);
        seen[is == &next] = true;
        saves_again(&p, when);
    }
    assert_in_range(at, 30, 80); /* the calls were counted */
    assert_true(seen[0] && seen[1]);
}

/* --- faults */

/* Saves `next` with a fault; *ended: there was no such call. Returns the status. */
static int save_with(const struct work_path *at, enum crash_how how, int call, int error,
                     bool *ended, struct embfuse_error *why) {
    const int before = entries("/proc/self/fd");
    start(how, call, error);
    const int status = embfuse_save(next.model, at->text, why);
    crash.on = false;
    *ended = crash.calls < call;
    for (int i = 0; i < crash.num_ops; i++) __real_close(crash.op[i].folder);
    for (int i = 0; i < crash.num_files; i++) __real_close(crash.file[i].fd);
    if (crash.retried) fail_msg("call %d: a failed sync was tried again", call);
    assert_int_equal(entries("/proc/self/fd"), before);
    return status;
}

static const struct fault {
    const char *test;
    enum crash_how how;
    int error;
} faults_of[] = {{"ENOSPC once", FAIL_ONCE, ENOSPC},
                 {"EACCES once", FAIL_ONCE, EACCES},
                 {"EINTR once", FAIL_ONCE, EINTR},
                 {"EIO from then on", FAIL_ALWAYS, EIO}};

static void fail_anywhere(void **state) {
    const struct fault *f = ((const struct kernel_test *)*state)->param;
    bool ended = false;
    int failed = 0, fine = 0;
    for (int call = 1; !ended; call++) {
        char when[60];
        int64_t number;
        snprintf(when, sizeof when, "%s, call %d", f->test, call);
        const struct work_path p = place(true);
        struct embfuse_error why = {""};
        const int status = save_with(&p, f->how, call, f->error, &ended, &why);
        const struct state_case *is = loaded_from(&p, when, &number);
        if (status && (status != EMBFUSE_FILE_ERROR || !strstr(why.text, strerror(f->error))))
            fail_msg("%s: status %d, %s", when, status, why.text);
        if (is && is != (number == 2 ? &last : &next)) fail_msg("%s: another state", when);
        if (status == 0 && is != &next) fail_msg("%s: not saved", when);
        if (status && f->how == FAIL_ONCE && (is != &last || entries(p.text) != 2))
            fail_msg("%s: %d entries, %d is loaded", when, entries(p.text), (int)number);
        failed += status != 0;
        fine += status == 0;
        saves_again(&p, when);
    }
    assert_true(failed > 20 && fine > (f->error == EINTR ? 8 : 1)); /* writes are taken up again */
}

/* Short writes and reads; a file system that cannot sync folders. */
static void partial_writes(void **state) {
    (void)state;
    struct embfuse_error why = {""};
    bool ended;
    int64_t number;
    struct work_path p = place(true);
    if (save_with(&p, FAIL_SHORT, 1, 0, &ended, &why)) fail_msg("%s", why.text);
    assert_true(crash.calls > 300);
    start(FAIL_SHORT, 1, 0);
    const struct state_case *is = loaded_from(&p, "short", &number);
    crash.on = false;
    assert_true(is == &next && number == 3 && crash.calls > 100);
    p = place(true);
    if (save_with(&p, FAIL_FOLDER_SYNCS, 1, EINVAL, &ended, &why)) fail_msg("%s", why.text);
    assert_true(loaded_from(&p, "no syncs", &number) == &next);
}

/* Reads that fail: of the first time, the older state is loaded; of the second, the arrays are half
 * read. */
static void reads_fail(void **state) {
    (void)state;
    int older = 0, half = 0;
    const struct work_path p = place(true);
    for (int call = 1;; call++) {
        struct embfuse_error why = {""};
        struct embfuse_loaded loaded = {.size = sizeof loaded};
        start(FAIL_ONCE, call, EIO);
        const int status = embfuse_load(to.model, p.text, &loaded, &why);
        crash.on = false;
        if (crash.calls < call) break;
        if (!strstr(status ? why.text : loaded.damage, "Input/output error") && loaded.number != 2)
            fail_msg("%s%s", why.text, loaded.damage);
        if (status == 0) assert_null(state_case_differs(&to, loaded.number == 1 ? &old : &last));
        half += status && strstr(why.text, "half read");
        older += status == 0 && loaded.number == 1;
    }
    assert_true(older > 6 && half > 6);
}

TESTS(state_crash) {
    char text[80];
    for (int i = 0; i < 5; i++) {
        state_case_open(cases[i], tables, 2, NULL, 0, (uint64_t)i + 1);
        embfuse_set_steps(cases[i]->model, 1, i + 1, NULL);
    }
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
    add_test("reads that fail", reads_fail, NULL, NULL);
    const int status = run_listed("state crash");
    for (int i = 0; i < 5; i++) state_case_free(cases[i]);
    return status;
}
