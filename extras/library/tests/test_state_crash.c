/* SPDX-License-Identifier: MIT
 *
 * A save that is killed at each of its writes, syncs and renames, and that may lose what was not
 * synced, leaves the old state or the new one, whole; one where a call fails leaves what was
 * there, and nothing else. The program is linked with -Wl,--wrap for these calls. No real sync is
 * made.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extras/library/tests/state_case.h"

#include "tests/support/kernel_tests.h"

/* --- calls that are counted, fail, or are the last ones before a crash */

enum crash_how { FAILS, DIES, LOSES_CONTENT, LOSES_ALL };

enum { CRASH_STATUS = 77, FILES = 20 };
#define KEPT "../kept"

static struct {
    bool on, ended, retried; /* retried: a sync after a failed one of the same file */
    enum crash_how how;
    int at, calls, error, num_files;
    ino_t failed;
    struct {
        int fd;
        ino_t of, folder; /* folder: that was not synced since the file came into it; otherwise 0 */
        bool dirty;       /* written since it was synced */
    } file[FILES];
    struct {
        int folder;
        ino_t of; /* the folder; 0: it is synced */
        char from[80], to[80];
    } renamed; /* a link KEPT has the file that had the name before */
} crash;

ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __real_renameat(int from, const char *a, int to, const char *b);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __wrap_fsync(int fd);
int __wrap_renameat(int from, const char *a, int to, const char *b);

static ino_t inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

/* The path of an open file, or of its folder. */
static const char *path_of(int fd, bool folder) {
    static char path[PATH_MAX];
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) abort();
    path[length] = '\0';
    if (folder) *strrchr(path, '/') = '\0';
    return path;
}

/* A file that was not synced has zeros afterwards, or is gone if its folder was not synced; a
 * folder has the name from before. */
static void crash_now(void) {
    struct stat st;
    for (int i = 0; crash.how >= LOSES_CONTENT && i < crash.num_files; i++)
        if (crash.file[i].dirty && fstat(crash.file[i].fd, &st) == 0 &&
            (ftruncate(crash.file[i].fd, 0) || ftruncate(crash.file[i].fd, st.st_size)))
            abort();
    for (int i = 0; crash.how == LOSES_ALL && i < crash.num_files; i++)
        if (crash.file[i].folder) unlink(path_of(crash.file[i].fd, false));
    if (crash.how == LOSES_ALL && crash.renamed.of) {
        const int folder = crash.renamed.folder;
        __real_renameat(folder, crash.renamed.to, folder, crash.renamed.from);
        __real_renameat(folder, KEPT, folder, crash.renamed.to);
    }
    _exit(crash.ended ? 0 : CRASH_STATUS);
}

static bool fails(void) {
    if (!crash.on || ++crash.calls != crash.at) return false;
    if (crash.how != FAILS) crash_now();
    errno = crash.error;
    return true;
}

/* A crash comes after half of a write. */
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    const ino_t of = inode_of(fd);
    int i = 0;
    if (crash.on && crash.how != FAILS && crash.calls + 1 == crash.at &&
        __real_pwrite(fd, bytes, size / 2, at) < 0)
        abort();
    if (fails()) return -1;
    if (!crash.on) return __real_pwrite(fd, bytes, size, at);
    while (i < crash.num_files && crash.file[i].of != of) i++;
    if (i == FILES) abort();
    if (i == crash.num_files) {
        struct stat st;
        crash.file[crash.num_files++].fd = dup(fd);
        crash.file[i].folder = stat(path_of(fd, true), &st) ? 0 : st.st_ino;
    }
    crash.file[i].of = of;
    crash.file[i].dirty = true;
    return __real_pwrite(fd, bytes, size > 7 ? size / 2 : size, at); /* the rest in another one */
}

int __wrap_fsync(int fd) {
    const ino_t of = inode_of(fd);
    crash.retried |= crash.on && crash.failed == of;
    if (fails()) {
        crash.failed = of;
        return -1;
    }
    for (int i = 0; i < crash.num_files; i++) {
        crash.file[i].dirty &= crash.file[i].of != of;
        if (crash.file[i].folder == of) crash.file[i].folder = 0;
    }
    if (crash.renamed.of == of) crash.renamed.of = 0;
    return 0;
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    if (crash.on) {
        unlinkat(from, KEPT, 0);
        linkat(to, b, from, KEPT, 0);
    }
    const int status = fails() ? -1 : __real_renameat(from, a, to, b);
    if (status || !crash.on || crash.renamed.folder) return status;
    crash.renamed.folder = dup(from);
    crash.renamed.of = inode_of(from);
    snprintf(crash.renamed.from, sizeof crash.renamed.from, "%s", a);
    snprintf(crash.renamed.to, sizeof crash.renamed.to, "%s", b);
    return 0;
}

static void start(enum crash_how how, int at, int error) {
    memset(&crash, 0, sizeof crash);
    crash.how = how;
    crash.at = at;
    crash.error = error;
    crash.on = true;
}

/* --- states */

static const struct embfuse_table tables[] = {{.rows = 3, .dim = 2, .rule = "adagrad"},
                                              {.rows = 2, .dim = 3, .rule = "sgd"}};

static struct state_case last, next, again, to;
static struct state_case *const cases[] = {&last, &next, &again, &to};

static void must_save(struct state_case *c, const struct work_path *at) {
    struct embfuse_error why;
    if (embfuse_save(c->model, at->text, &why)) fail_msg("%s", why.text);
}

/* A file that is not there, or has a state. */
static struct work_path place(bool has_state) {
    const struct work_path at = state_file("crash/folder");
    if (has_state) must_save(&last, &at);
    return at;
}

/* The state that a load gives, whole; NULL: there is no file. */
static const struct state_case *loaded_from(const struct work_path *at, const char *when) {
    struct embfuse_error why;
    state_case_scramble(&to, 5);
    const int status = embfuse_load(to.model, at->text, &why);
    if (status && !strstr(why.text, "No such file")) fail_msg("%s: %s", when, why.text);
    if (status) return NULL;
    for (int i = 0; i < 3; i++)
        if (!state_case_differs(&to, cases[i])) return cases[i];
    fail_msg("%s: what is loaded was never saved", when);
    return NULL;
}

/* Files in a folder. */
static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count ? count - 2 : 0;
}

static int files_beside(const struct work_path *at) {
    struct work_path folder = *at;
    *strrchr(folder.text, '/') = '\0';
    return entries(folder.text);
}

/* After whatever happened, the next save works, and cleans up. */
static void saves_again(const struct work_path *at, const char *when) {
    must_save(&again, at);
    if (loaded_from(at, when) != &again) fail_msg("%s: the next save is not loaded", when);
    if (files_beside(at) != 1) fail_msg("%s: %d files", when, files_beside(at));
}

/* Saves in a child that ends at call `at`, or after the save: then this is false. */
static bool crashes(const struct work_path *place, int at, enum crash_how how) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        start(how, at, 0);
        if (embfuse_save(next.model, place->text, NULL)) _exit(1);
        crash.ended = true;
        crash_now();
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 1)
        fail_msg("call %d: the child ended with %x", at, (unsigned)status);
    return WEXITSTATUS(status) == CRASH_STATUS;
}

static void crash_anywhere(void **state) {
    const enum crash_how how = *(const enum crash_how *)((const struct kernel_test *)*state)->param;
    for (int has_state = 0; has_state < 2; has_state++) {
        bool in_save = true, seen[2] = {false, false};
        int at = 1;
        for (; in_save; at++) {
            char when[60];
            snprintf(when, sizeof when, "%d states, call %d", has_state, at);
            const struct work_path p = place(has_state);
            in_save = crashes(&p, at, how);
            const struct state_case *is = loaded_from(&p, when);
            if (is != (has_state ? &last : NULL) && is != &next)
                fail_msg("%s: another state", when);
            if (!in_save && is != &next) fail_msg("%s: a finished save was lost", when);
            seen[is == &next] = true;
            saves_again(&p, when);
        }
        assert_in_range(at, 15, 80); /* the calls were counted */
        assert_true(seen[0] && seen[1]);
    }
}

static void fail_anywhere(void **state) {
    const int error = *(const int *)((const struct kernel_test *)*state)->param;
    int failed = 0, fine = 0, but = 0;
    for (int call = 1; call == 1 || crash.calls >= call - 1; call++) {
        char when[60];
        snprintf(when, sizeof when, "call %d", call);
        const struct work_path p = place(true);
        struct embfuse_error why = {""};
        const int before = entries("/proc/self/fd");
        start(FAILS, call, error);
        const int status = embfuse_save(next.model, p.text, &why);
        crash.on = false;
        for (int i = 0; i < crash.num_files; i++) close(crash.file[i].fd);
        if (crash.renamed.folder) close(crash.renamed.folder);
        assert_int_equal(entries("/proc/self/fd"), before);
        if (crash.retried) fail_msg("%s: a failed sync was tried again", when);
        const struct state_case *is = loaded_from(&p, when);
        const bool saved = status == 0 || strstr(why.text, ": saved, but its folder");
        if (status && (status != EMBFUSE_FILE_ERROR || !strstr(why.text, strerror(error))))
            fail_msg("%s: status %d, %s", when, status, why.text);
        if (is != (saved ? &next : &last) || files_beside(&p) != 1)
            fail_msg("%s: status %d, %d files", when, status, files_beside(&p));
        but += status && saved;
        failed += status != 0;
        fine += status == 0;
        saves_again(&p, when);
    }
    assert_true(failed > (error == EINTR ? 2 : 5) && fine >= (error == EINTR ? 8 : 1));
    assert_int_equal(but, 1); /* the sync of the folder */
}

TESTS(state_crash) {
    static const enum crash_how hows[] = {DIES, LOSES_CONTENT, LOSES_ALL};
    static const int errors[] = {ENOSPC, EINTR};
    for (int i = 0; i < 4; i++) {
        state_case_open(cases[i], tables, 2, NULL, 0, (uint64_t)i + 1);
        embfuse_set_steps(cases[i]->model, 1, i + 1, NULL);
    }
    add_test("a crash", crash_anywhere, NULL, &hows[0]);
    add_test("a crash that loses content", crash_anywhere, NULL, &hows[1]);
    add_test("a crash that loses all", crash_anywhere, NULL, &hows[2]);
    add_test("a call fails: ENOSPC", fail_anywhere, NULL, &errors[0]);
    add_test("a call fails: EINTR", fail_anywhere, NULL, &errors[1]);
    const int status = run_listed("state crash");
    for (int i = 0; i < 4; i++) state_case_free(cases[i]);
    return status;
}
