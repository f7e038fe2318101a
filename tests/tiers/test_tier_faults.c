/* SPDX-License-Identifier: MIT
 *
 * Tables in files while calls fail: each call in turn that opens, reads, writes, syncs, renames or removes a file, with
 * threads and with io_uring. Whatever fails is one line that names a file, nothing can be committed after an error of a
 * put, and the next one that opens finds the rows of the last commit, all of them and nothing else: also if the journal
 * lost what was not synced. What is refused stays as it is, byte for byte.
 */
#include "tests/support/file_faults.h"

#include <dirent.h>
#include <pthread.h>
#include <xxhash.h>

#include "tests/tiers/row_file_case.h"

/* --- what runs while calls fail */

struct outcome {
    int64_t done, underway; /* steps: committed, and of the commit that has begun */
    struct error err;       /* of what failed first */
};

static int commits(struct disk *s, int64_t steps, struct outcome *o) {
    o->underway = steps;
    if (row_file_commit(s->file, (uint64_t)steps, &o->err)) return -1;
    o->done = steps;
    return 0;
}

static int works(struct disk *s, int64_t first, int64_t last, struct outcome *o) {
    for (int64_t step = first; step <= last; step++) {
        if (take_step(s, step, &o->err)) return -1;
        if (step % 2) row_file_put_soon(s->file);
        if (step % 3 == 0 && commits(s, step, o)) return -1;
    }
    return 0;
}

static void turn_on(enum fault_how how, int at, int error) {
    fault.how = how;
    fault.at = at;
    fault.error = error;
    fault.calls = 0;
    fault.counts = false;
    fault.on = true;
}

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

/* An error of one line that says which file. */
static void expect_line(const struct error *err, const char *when) {
    static const char *const files[] = {"rows.", "journal.", "sums.", "commit", "tier_faults"};
    bool names = false;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        names |= !!strstr(err->text, files[i]);
    const bool is_known = fault.how == NOTHING || strstr(err->text, strerror(fault.error));
    if (!names || !is_known || strchr(err->text, '\n')) fail_msg("%s: '%s'", when, err->text);
}

/* Whoever opens it later finds the rows of a commit, and goes on. */
static void expect_whole(struct disk *s, const struct outcome *o, const char *when) {
    struct outcome more = {0};
    disk_open(s);
    const int64_t mark = (int64_t)row_file_mark(s->file);
    if (mark != o->done && mark != o->underway)
        fail_msg("%s: mark %d, wanted %d", when, (int)mark, (int)o->done);
    expect_steps(s, mark, when);
    if (works(s, mark + 1, mark + 3, &more)) fail_msg("%s: later: %s", when, more.err.text);
    disk_close(s);
    disk_open(s);
    expect_steps(s, mark + 3, when);
    disk_close(s);
}

/* Files with two commits, and steps that are not committed: there is something to undo. */
static void prepare(struct disk *s, bool is_new) {
    struct outcome o = {0};
    state_no_folder(s->name);
    if (is_new) return;
    disk_open(s);
    if (works(s, 1, 8, &o)) fail_msg("%s", o.err.text);
    disk_close(s);
}

/* Opens and works while call `at` fails. Returns whether there was such a call. */
static bool with_fault(struct disk *s, bool is_new, enum fault_how how, int at, int error) {
    char when[100];
    struct outcome o = {.done = is_new ? 0 : 6};
    struct error later;
    snprintf(when, sizeof when, "%s, %s, how %d, error %d, call %d", io_engine_names[fault.engine],
             is_new ? "new" : "old", how, error, at);
    prepare(s, is_new);
    const int before = descriptors();
    turn_on(how, at, error);
    s->file = row_file_open(&s->setup, &o.err);
    o.underway = o.done;
    const bool failed = !s->file || works(s, (int64_t)row_file_mark(s->file) + 1, 15, &o);
    fault.on = false;
    const bool was_there = fault.calls >= at;
    if (failed) expect_line(&o.err, when);
    if (fault.counts && !failed) fail_msg("%s: nobody said so", when);
    if (failed && (!was_there || how == SHORT || how == INTERRUPTED))
        fail_msg("%s: %s", when, o.err.text);
    if (failed && s->file && (s->puts || o.underway != o.done) &&
        row_file_commit(s->file, 99, &later) == 0)
        fail_msg("%s: committed after '%s'", when, o.err.text);
    disk_close(s);
    assert_int_equal(descriptors(), before);
    expect_whole(s, &o, when);
    return was_there;
}

struct fault_test {
    const char *test;
    enum io_engine engine;
    enum fault_how how;
    int error;
};
static const struct fault_test faults_of[] = {
    {"threads, EIO once", IO_THREADS, FAIL_ONCE, EIO},
    {"threads, ENOSPC from then on", IO_THREADS, FAIL_ALWAYS, ENOSPC},
    {"threads, nothing is moved", IO_THREADS, NOTHING, 0},
    {"io_uring, EIO once", IO_URING, FAIL_ONCE, EIO},
    {"io_uring, ENOSPC from then on", IO_URING, FAIL_ALWAYS, ENOSPC},
    {"io_uring, nothing is moved", IO_URING, NOTHING, 0}};

static const struct fault_test *test_of(void **state, struct disk *s) {
    const struct fault_test *t = ((const struct kernel_test *)*state)->param;
    fault.engine = t->engine;
    disk_begin(s, "tier_faults");
    disk_open(s);
    const bool is_it = row_file_engine(s->file) == t->engine;
    disk_close(s);
    if (!is_it) disk_end(s);
    if (!is_it) skip(); /* the kernel allows no io_uring */
    return t;
}

static void each_call(void **state) {
    struct disk s;
    const struct fault_test *t = test_of(state, &s);
    for (int is_new = 0; is_new < 2; is_new++) {
        int call = 1; /* those that move rows are many, and alike */
        while (with_fault(&s, is_new, t->how, call, t->error))
            call += call < 60 ? 1 : WITH_SANITIZER ? 31 : 7;
        assert_in_range(call, 100, 5000);
    }
    disk_end(&s);
}

static const struct fault_test partial_of[] = {
    {"threads, short and interrupted", IO_THREADS, SHORT, 0},
    {"io_uring, short and interrupted", IO_URING, SHORT, 0}};

static void partial(void **state) {
    struct disk s;
    test_of(state, &s);
    for (int is_new = 0; is_new < 2; is_new++) {
        assert_true(with_fault(&s, is_new, SHORT, 1, 0));
        assert_true(with_fault(&s, is_new, INTERRUPTED, 1, EINTR));
    }
    disk_end(&s);
}

/* --- what is refused stays as it is */

static uint64_t files_hash(const struct disk *s) {
    uint64_t hash = 0;
    DIR *folder = opendir(s->path.text);
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        char path[PATH_MAX + 260];
        size_t size = 0;
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", s->path.text, e->d_name);
        unsigned char *bytes = state_contents(path, &size);
        hash += XXH3_64bits_withSeed(bytes, size, XXH3_64bits(e->d_name, strlen(e->d_name)));
        free(bytes);
    }
    closedir(folder);
    return hash;
}

static void expect_refused(struct disk *s, const char *said) {
    struct error err = {""};
    const uint64_t before = files_hash(s);
    struct row_file *f = row_file_open(&s->setup, &err);
    fault.on = false;
    if (f || !strstr(err.text, said)) fail_msg("'%s', wanted '%s'", f ? "opened" : err.text, said);
    assert_true(files_hash(s) == before);
}

static void unharmed(void **state) {
    struct disk s;
    struct outcome o = {.done = 6, .underway = 6};
    struct table_shape other[TABLES];
    test_of(state, &s);
    prepare(&s, false); /* with a journal to be undone */
    static const int errors[] = {EROFS, EACCES};
    for (int i = 0; i < 2; i++) {
        turn_on(READ_ONLY, 0, errors[i]);
        expect_refused(&s,
                       i ? "rows.0: cannot open for reading and writing: Permission denied"
                         : "rows.0: cannot open for reading and writing: Read-only file system");
    }
    memcpy(other, shapes, sizeof other);
    s.setup.shapes = other;
    other[1].rows++;
    expect_refused(&s, "rows.1: holds another table");
    other[1].rows--;
    other[0].rule = RULE_lamb;
    expect_refused(&s, "rows.0: holds another table");
    s.setup.shapes = shapes;
    disk_open(&s);
    expect_refused(&s, "another process has it open");
    disk_close(&s);
    /* Without the commit these rows could be anybody's: nothing is overwritten. */
    const int folder = __real_open(s.path.text, O_RDONLY | O_DIRECTORY);
    assert_int_equal(__real_renameat(folder, "commit", folder, "elsewhere"), 0);
    expect_refused(&s, "commit: is missing, and rows are there");
    assert_int_equal(__real_renameat(folder, "elsewhere", folder, "commit"), 0);
    assert_int_equal(__real_renameat(folder, "journal.3", folder, "elsewhere"), 0);
    expect_refused(&s, "journal.3: cannot open: No such file or directory");
    assert_int_equal(__real_renameat(folder, "elsewhere", folder, "journal.3"), 0);
    close(folder);
    expect_whole(&s, &o, "after all of that");
    disk_end(&s);
}

/* The last record of the journal is cut at any place, or damaged: its row was not overwritten yet. */
static void torn_journal(void **state) {
    struct disk s;
    struct error err;
    test_of(state, &s);
    const int64_t bytes = record_of(&shapes[0], RECORD_BLOCK).bytes + 24;
    for (int64_t cut = 0; cut <= bytes; cut += cut < 30 ? 3 : 101) {
        const struct outcome o = {.done = 6, .underway = 6};
        char path[PATH_MAX + 20];
        struct stat st;
        int64_t rows[TOUCHED];
        prepare(&s, false);
        disk_open(&s);
        assert_int_equal(take_step(&s, 7, &err), 0);
        const int64_t count = rows_of(11, 0, rows);
        assert_int_equal(row_file_fetch(s.file, 0, rows, count, s.records, &err), 0);
        disk_close(&s);
        snprintf(path, sizeof path, "%s/journal.3", s.path.text);
        assert_int_equal(stat(path, &st), 0);
        const int fd = __real_open(path, O_RDWR);
        if (cut) assert_int_equal(ftruncate(fd, st.st_size - cut), 0);
        if (!cut) assert_int_equal(__real_pwrite(fd, "damage", 6, st.st_size - 50), 6);
        close(fd);
        expect_whole(&s, &o, "torn");
    }
    disk_end(&s);
}

/* What of the journal was not synced is lost, and all rows that were overwritten are there. */
static void unsynced_journal(void **state) {
    struct disk s;
    test_of(state, &s);
    for (int64_t steps = 7; steps <= 14; steps++) {
        struct outcome o = {0};
        char path[PATH_MAX + 20];
        prepare(&s, true);
        disk_open(&s);
        if (works(&s, 1, 3, &o)) fail_msg("%s", o.err.text);
        fault.journal = 0; /* a new one */
        if (works(&s, 4, 5, &o) || take_step(&s, steps, &o.err)) fail_msg("%s", o.err.text);
        disk_close(&s);
        snprintf(path, sizeof path, "%s/journal.2", s.path.text);
        assert_true(fault.journal > 0);
        assert_int_equal(truncate(path, fault.journal), 0);
        expect_whole(&s, &o, "unsynced");
    }
    disk_end(&s);
}

static atomic_bool has_ended;

static void *end_pipe(void *end) {
    usleep(20000);
    has_ended = true;
    close(*(int *)end);
    return NULL;
}

/* The ring takes no more while reads are in flight: they end first, and no later run can begin. A pipe has one block, and
 * the other reads wait until it ends. */
static void refusing_ring(void **state) {
    enum { BLOCK = 512, COUNT = 40 };
    static char data[COUNT][BLOCK];
    struct io_request r[COUNT];
    struct error err;
    struct disk s;
    pthread_t ender;
    int ends[2];
    test_of(state, &s);
    disk_end(&s);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], data, BLOCK), BLOCK);
    for (int i = 0; i < COUNT; i++) r[i] = (struct io_request){0, data[i], BLOCK};
    struct io *io = io_open(IO_URING, 8, &err);
    assert_non_null(io);
    has_ended = false;
    assert_int_equal(pthread_create(&ender, NULL, end_pipe, &ends[1]), 0);
    turn_on(FAIL_ONCE, 3,
            ENOMEM); /* the first call submits, the second one is the block that has come */
    const int status = io_read(io, ends[0], "a pipe", r, COUNT, &err);
    fault.on = false;
    const bool waited = has_ended;
    pthread_join(ender, NULL);
    assert_int_equal(status, -1);
    assert_string_equal(err.text, "a pipe: io_uring: Cannot allocate memory");
    assert_true(waited);
    assert_int_equal(io_read(io, ends[0], "a file", r, COUNT, &err), -1);
    assert_string_equal(err.text, "a file: io_uring: Cannot allocate memory");
    io_close(io);
    close(ends[0]);
}

TESTS(tier_faults) {
    static const struct fault_test threads = {"", IO_THREADS, FAIL_ONCE, 0},
                                   uring = {"", IO_URING, FAIL_ONCE, 0};
    shapes[0].rows = 60;
    shapes[1].rows = 30;
    for (size_t i = 0; i < sizeof faults_of / sizeof *faults_of; i++)
        add_test(faults_of[i].test, each_call, NULL, &faults_of[i]);
    for (size_t i = 0; i < sizeof partial_of / sizeof *partial_of; i++)
        add_test(partial_of[i].test, partial, NULL, &partial_of[i]);
    add_test("what is refused is unharmed", unharmed, NULL, &threads);
    add_test("a torn journal", torn_journal, NULL, &threads);
    add_test("a journal that was not synced", unsynced_journal, NULL, &threads);
    add_test("a ring that takes no more", refusing_ring, NULL, &uring);
    return run_listed("tables in files, with faults");
}
