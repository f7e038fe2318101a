/* SPDX-License-Identifier: MIT
 *
 * Stores of records. What is put into a store comes back. Each call that makes, reads or writes a file has a fault in
 * turn: it fails, or moves too few bytes. A store refuses files that are there already. The program is linked with
 * -Wl,--wrap for these calls.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "extras/tiers/tests/folder.h"
#include "tests/support/batch_builder.h"
#include "tests/support/kernel_tests.h"
#include "kernels/rng.h"
#include "extras/tiers/store.h"

/* --- faults */

enum fault_how {
    FAILS,
    NOTHING, /* that call moves no bytes */
    LITTLE,  /* every third call is interrupted; others move a third of the bytes, at least one */
};

static struct {
    atomic_bool on; /* the test sets the other members while this is off and no thread works */
    enum fault_how how;
    int at, error;
    atomic_int calls;
} fault;

#define WRAPS(type, name, ...)                                                                     \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);
WRAPS(int, openat, int folder, const char *path, int flags, ...)
WRAPS(int, mkdir, const char *path, mode_t mode)
WRAPS(ssize_t, pwrite, int fd, const void *bytes, size_t size, off_t at)
WRAPS(ssize_t, pread, int fd, void *bytes, size_t size, off_t at)

/* Counts a call. True: it fails, with errno. */
static bool fails(void) {
    if (!fault.on) return false;
    const int call = atomic_fetch_add(&fault.calls, 1) + 1;
    errno = fault.error;
    return fault.how == FAILS && call == fault.at;
}

/* Returns how many of its bytes a call moves, or -1 and errno. */
static ssize_t moves(size_t bytes) {
    if (fails()) return -1;
    if (!fault.on) return (ssize_t)bytes;
    if (fault.how == NOTHING && fault.calls == fault.at) return 0;
    if (fault.how != LITTLE) return (ssize_t)bytes;
    if (fault.calls % 3) return (ssize_t)((bytes + 2) / 3);
    errno = EINTR;
    return -1;
}

int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails() ? -1 : __real_openat(folder, path, flags, mode);
}

int __wrap_mkdir(const char *path, mode_t mode) {
    return fails() ? -1 : __real_mkdir(path, mode);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    const ssize_t n = moves(size);
    return n > 0 ? __real_pwrite(fd, bytes, (size_t)n, at) : n;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    const ssize_t n = moves(size);
    return n > 0 ? __real_pread(fd, bytes, (size_t)n, at) : n;
}

/* --- records: each must have the content that the last step with its row has put */

enum { TABLES = 2, ROWS = 60, TOUCHED = 12, STEPS = 5 };

static const struct store_table tables[TABLES] = {{ROWS, 512}, {30, 1536}};

struct disk {
    const struct store_kind *kind;
    struct work_path path;
    struct store_setup setup;
    struct store *store;
    char *records;
};

static void disk_begin(struct disk *s, const struct store_kind *kind) {
    *s = (struct disk){.kind = kind, .path = no_folder("tier_rows")};
    s->setup = (struct store_setup){
        .directory = s->path.text, .tables = tables, .num_tables = TABLES, .depth = 8};
    s->records = must_have(aligned_alloc(4096, (size_t)ROWS * 4096));
}

static void disk_end(struct disk *s) {
    no_folder("tier_rows");
    free(s->records);
}

static void pattern(char *record, int32_t table, int64_t row, int64_t step) {
    for (int64_t i = 0; i < tables[table].bytes; i++)
        record[i] = (char)rng_key(rng_key((uint64_t)step, (uint64_t)(table * ROWS + row)),
                                  (uint64_t)(i / 7));
}

/* Distinct rows of a step, some of them consecutive. Step 0 has all rows. */
static int64_t rows_of(int64_t step, int32_t table, int64_t rows[ROWS]) {
    const int64_t all = tables[table].rows,
                  first = (int64_t)(rng_key(77 + (uint64_t)table, (uint64_t)step) % (uint64_t)all);
    for (int64_t i = 0; i < ROWS; i++) rows[i] = step ? (first + i * i / 3 * 3 + i % 3) % all : i;
    for (int64_t i = 0; step && i < TOUCHED; i++)
        for (int64_t k = 0; k < i; k++)
            if (rows[i] == rows[k]) return i;
    return step ? TOUCHED : all;
}

static int take_step(struct disk *s, int64_t step, struct error *err) {
    for (int32_t t = 0; t < TABLES; t++) {
        int64_t rows[ROWS];
        const int64_t count = rows_of(step, t, rows);
        if (step && s->kind->fetch(s->store, t, rows, count, s->records, err)) return -1;
        for (int64_t i = 0; i < count; i++)
            pattern(s->records + i * tables[t].bytes, t, rows[i], step);
        if (s->kind->put(s->store, t, rows, count, s->records, err)) return -1;
    }
    return 0;
}

/* Fails unless every record of the table has its content after `steps` steps. */
static void expect_table(struct disk *s, int32_t t, int64_t steps, const char *what) {
    struct error err;
    int64_t last[ROWS] = {0}, rows[ROWS];
    char want[1536];
    for (int64_t step = 1; step <= steps; step++)
        for (int64_t i = rows_of(step, t, rows) - 1; i >= 0; i--) last[rows[i]] = step;
    if (s->kind->fetch(s->store, t, rows, rows_of(0, t, rows), s->records, &err))
        fail_msg("%s: %s", what, err.text);
    for (int64_t row = 0; row < tables[t].rows; row++) {
        pattern(want, t, row, last[row]);
        if (memcmp(want, s->records + row * tables[t].bytes, (size_t)tables[t].bytes))
            fail_msg("%s: table %d, row %d is not as after %d steps", what, t, (int)row,
                     (int)steps);
    }
}

/* Opens, takes steps, and closes. */
static int works(struct disk *s, const char *what, bool compares, struct error *err) {
    int status = (s->store = s->kind->open(&s->setup, err)) ? 0 : -1;
    if (status) return -1;
    for (int64_t step = 0; status == 0 && step <= STEPS; step++) {
        for (int32_t t = 0; compares && step && t < TABLES; t++) expect_table(s, t, step - 1, what);
        status = take_step(s, step, err);
    }
    s->kind->close(s->store);
    return status;
}

static int entries(const char *path) {
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static void comes_back(void **state) {
    const struct store_kind *kind = ((const struct kernel_test *)*state)->param;
    for (int direct = 0; direct < 2; direct++) {
        struct disk s;
        struct error err;
        disk_begin(&s, kind);
        s.setup.direct = direct;
        s.setup.depth = direct ? 1 : 1024;
        const int status = works(&s, kind->name, true, &err);
        if (status && strstr(err.text, "this build has no RocksDB")) skip();
        if (status) fail_msg("%s", err.text);
        if (kind == &file_store) assert_int_equal(entries(s.path.text), 2); /* . and .. */
        disk_end(&s);
    }
}

/* --- what fails */

struct fault_test {
    const char *test;
    enum fault_how how;
    int error;
};

static const struct fault_test faults[] = {
    {"the disk is full", FAILS, ENOSPC}, {"nothing is moved", NOTHING, 0}, {"little", LITTLE, 0}};

/* Runs works() while call `at` has a fault. If it fails, its error must be the right one; in any case no file and no
 * descriptor may stay, and works() must succeed afterwards. Returns whether there was such a call. */
static bool with_fault(struct disk *s, const struct fault_test *t, int at) {
    char when[100];
    struct error err = {""};
    snprintf(when, sizeof when, "%s, call %d", t->test, at);
    const int before = entries("/proc/self/fd");
    fault.how = t->how, fault.at = at, fault.error = t->error;
    fault.calls = 0;
    fault.on = true;
    const bool failed = works(s, when, t->how == LITTLE, &err) != 0;
    fault.on = false;
    const bool was_there = fault.calls >= at;
    if (t->how == FAILS && failed != was_there) fail_msg("%s: nothing failed", when);
    if (failed && t->how == FAILS && !strstr(err.text, strerror(t->error)))
        fail_msg("%s: '%s'", when, err.text);
    if (failed && (!was_there || t->how == LITTLE)) fail_msg("%s: %s", when, err.text);
    assert_int_equal(entries("/proc/self/fd"), before);
    if (works(s, when, false, &err)) fail_msg("%s: later: %s", when, err.text);
    return was_there;
}

static void each_call(void **state) {
    const struct fault_test *t = ((const struct kernel_test *)*state)->param;
    struct disk s;
    int call = 1;
    disk_begin(&s, &file_store);
    while (with_fault(&s, t, call) && t->how != LITTLE) call++;
    assert_true(t->how == LITTLE || call > 50);
    disk_end(&s);
}

/* A store refuses the files of another one that is open. A killed store leaves the same files. */
static void refused(void **state) {
    (void)state;
    struct error err;
    struct disk s;
    disk_begin(&s, &file_store);
    s.store = file_store.open(&s.setup, &err);
    const int files = entries(s.path.text);
    assert_int_equal(files, 2 + TABLES);
    assert_null(file_store.open(&s.setup, &err));
    assert_non_null(strstr(err.text, "rows.0: is there already. Another run uses it, or a killed "
                                     "run left it: then remove it, it is scratch"));
    assert_int_equal(entries(s.path.text), files);
    file_store.close(s.store);
    assert_int_equal(entries(s.path.text), 2);
    disk_end(&s);
    const struct store_setup nowhere = {.directory = "/proc/self/nothing/there", .depth = 1};
    assert_null(file_store.open(&nowhere, &err));
    assert_non_null(strstr(err.text, "/proc/self/nothing/there: cannot create: "));
}

TESTS(tier_rows) {
    add_test("what is put into files comes back", comes_back, NULL, &file_store);
    add_test("what is put into memory comes back", comes_back, NULL, &memory_store);
    add_test("what is put into RocksDB comes back", comes_back, NULL, &rocksdb_store);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        add_test(faults[i].test, each_call, NULL, &faults[i]);
    add_test("refused", refused, NULL, NULL);
    return run_listed("stores of rows");
}
