/* SPDX-License-Identifier: MIT
 *
 * Tables in files, row by row: what is stored comes back, what was not committed does not. A fault
 * at each call in turn that opens, reads, writes, syncs, renames or removes a file, with threads
 * and with io_uring: it fails, moves too few bytes, or the process ends before it and the disk
 * loses what was not synced. The next one that opens finds the rows of the last commit. Damage and
 * other tables are refused.
 */
#include "tests/tiers/file_faults.h"

#include "tests/library/state_case.h"
#include "tests/support/batch_builder.h"
#include "tests/support/kernel_tests.h"
#include "tiers/row_file.h"

enum { TABLES = 2, ROWS = 60, SEED = 5, TOUCHED = 12, SYNCED = 6 /* a multiple of 3 */ };

static const struct table_shape shapes[TABLES] = {
    {.rows = ROWS, .dim = 16, .rule = RULE_adam, .weight_type = BF16, .momentum_type = FP32},
    {.rows = 30,
     .dim = 130,
     .rule = RULE_rowwise_adagrad,
     .weight_type = FP32,
     .row_state = ROW_STATE_BESIDE}};

struct disk {
    struct work_path path;
    struct store_setup setup;
    struct row_file *file;
    char *records;
};

static void disk_begin(struct disk *s) {
    *s = (struct disk){.path = state_no_folder("tier_rows")};
    s->setup = (struct store_setup){.directory = s->path.text,
                                    .shapes = shapes,
                                    .num_tables = TABLES,
                                    .seed = SEED,
                                    .depth = 8};
    s->records = must_have(aligned_alloc(4096, (size_t)ROWS * 4096));
}

static void disk_open(struct disk *s) {
    struct error err;
    s->file = row_file_open(&s->setup, &err);
    if (!s->file) fail_msg("%s", err.text);
}

static void disk_close(struct disk *s) {
    row_file_close(s->file);
    s->file = NULL;
}

static void disk_end(struct disk *s) {
    disk_close(s);
    state_no_folder("tier_rows");
    free(s->records);
}

/* --- what rows should be: initial values, or those of the last step that has changed them */

static void pattern(char *record, int64_t bytes, int32_t table, int64_t row, int64_t step) {
    for (int64_t i = 0; i < bytes; i++)
        record[i] = (char)rng_key(rng_key((uint64_t)step, (uint64_t)(table * ROWS + row)),
                                  (uint64_t)(i / 7));
}

static int64_t record_bytes(int32_t table) {
    int64_t bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) bytes += table_memory_stride(&shapes[table], a);
    return bytes;
}

/* Distinct rows of a step. */
static int64_t rows_of(int64_t step, int32_t table, int64_t rows[TOUCHED]) {
    const int64_t all = shapes[table].rows,
                  first = (int64_t)(rng_key(77 + (uint64_t)table, (uint64_t)step) % (uint64_t)all);
    for (int64_t i = 0; i < TOUCHED; i++) rows[i] = (first + i * i * 3) % all;
    for (int64_t i = 0; i < TOUCHED; i++)
        for (int64_t k = 0; k < i; k++)
            if (rows[i] == rows[k]) return i;
    return TOUCHED;
}

static int take_step(struct disk *s, int64_t step, struct error *err) {
    for (int32_t t = 0; t < TABLES; t++) {
        int64_t rows[TOUCHED];
        const int64_t count = rows_of(step, t, rows),
                      stride = record_of(&shapes[t], RECORD_BLOCK).bytes;
        /* Every third step stores rows that stayed in memory. */
        if (step % 3 && row_file_fetch(s->file, t, rows, count, s->records, err)) return -1;
        if (step % 2) row_file_put_soon(s->file);
        memset(s->records, 0, (size_t)(count * stride));
        for (int64_t i = 0; i < count; i++)
            pattern(s->records + i * stride, record_bytes(t), t, rows[i], step);
        if (row_file_put(s->file, t, rows, count, s->records, err)) return -1;
    }
    return 0;
}

/* All rows of all tables are those after so many steps. */
static void expect_steps(struct disk *s, int64_t steps, const char *what) {
    struct error err;
    struct table_set initial;
    if (tables_create(&initial, shapes, TABLES, SEED, &err)) fail_msg("%s", err.text);
    for (int32_t t = 0; t < TABLES; t++) {
        int64_t last[ROWS] = {0}, all[ROWS];
        const struct record layout = record_of(&shapes[t], RECORD_BLOCK);
        const int64_t stride = layout.bytes;
        char *want = must_have(calloc(1, (size_t)stride));
        for (int64_t step = 1; step <= steps; step++) {
            int64_t rows[TOUCHED];
            const int64_t count = rows_of(step, t, rows);
            for (int64_t i = 0; i < count; i++) last[rows[i]] = step;
        }
        for (int64_t r = 0; r < shapes[t].rows; r++) all[r] = r;
        if (row_file_fetch(s->file, t, all, shapes[t].rows, s->records, &err))
            fail_msg("%s: %s", what, err.text);
        for (int64_t r = 0; r < shapes[t].rows; r++) {
            memset(want, 0, (size_t)stride);
            if (last[r])
                pattern(want, record_bytes(t), t, r, last[r]);
            else
                record_pack(&layout, want, &initial.tables[t], r);
            if (memcmp(want, s->records + r * stride, (size_t)stride))
                fail_msg("%s: table %d, row %d is not as after %d steps", what, t, (int)r,
                         (int)steps);
        }
        free(want);
    }
    tables_free(&initial);
}

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

/* Steps; every third one commits. */
static int works(struct disk *s, int64_t first, int64_t last, struct outcome *o) {
    for (int64_t step = first; step <= last; step++) {
        if (take_step(s, step, &o->err)) return -1;
        if (step % 3 == 0 && commits(s, step, o)) return -1;
    }
    return 0;
}

static int descriptors(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
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
    state_no_folder("tier_rows");
    if (is_new) return;
    disk_open(s);
    if (works(s, 1, SYNCED + 2, &o)) fail_msg("%s", o.err.text);
    disk_close(s);
}

struct fault_test {
    const char *test;
    enum io_engine engine;
    enum fault_how how;
    int error;
};

/* Opens and works while something happens to call `at`. Returns whether there was such a call. */
static bool with_fault(struct disk *s, const struct fault_test *t, bool is_new, int at) {
    char when[100];
    struct outcome o = {.done = is_new ? 0 : SYNCED};
    snprintf(when, sizeof when, "%s, %s, call %d", t->test, is_new ? "new" : "old", at);
    prepare(s, is_new);
    const int before = descriptors();
    fault.how = t->how, fault.at = at, fault.error = t->error;
    fault.calls = 0;
    fault.counts = false;
    fault.on = true;
    s->file = row_file_open(&s->setup, &o.err);
    o.underway = o.done;
    const bool failed = !s->file || works(s, (int64_t)row_file_mark(s->file) + 1, 15, &o);
    const bool was_there = fault.calls >= at;
    if (failed && t->how < NOTHING && !strstr(o.err.text, strerror(t->error)))
        fail_msg("%s: '%s'", when, o.err.text);
    if (fault.counts && !failed) fail_msg("%s: nobody said so", when);
    if (failed && (!was_there || t->how == LITTLE)) fail_msg("%s: %s", when, o.err.text);
    fault.on = t->how == ENDS; /* what the process does after its end has no effect */
    disk_close(s);
    fault.on = false;
    if (t->how == ENDS) lose_unsynced((uint64_t)at);
    assert_int_equal(descriptors(), before);
    expect_whole(s, &o, when);
    return was_there;
}

static const struct fault_test faults[] = {{"threads, EIO once", IO_THREADS, FAIL_ONCE, EIO},
                                           {"threads, the process ends", IO_THREADS, ENDS, ENOSPC},
                                           {"threads, nothing is moved", IO_THREADS, NOTHING, 0},
                                           {"threads, little", IO_THREADS, LITTLE, 0},
                                           {"io_uring, EIO once", IO_URING, FAIL_ONCE, EIO},
                                           {"io_uring, the process ends", IO_URING, ENDS, ENOSPC},
                                           {"io_uring, nothing is moved", IO_URING, NOTHING, 0},
                                           {"io_uring, little", IO_URING, LITTLE, 0}};

static void each_call(void **state) {
    const struct fault_test *t = ((const struct kernel_test *)*state)->param;
    struct disk s;
    fault.engine = t->engine;
    disk_begin(&s);
    struct error err;
    struct store *store = row_file_store(&s.setup, &err);
    assert_non_null(store);
    const bool is_it = strcmp(store->engine, io_engine_names[t->engine]) == 0;
    assert_true(is_it || t->engine == IO_URING);
    store->ops->close(store);
    for (int is_new = 0; is_it && is_new < 2; is_new++) {
        if (t->how == LITTLE) assert_true(with_fault(&s, t, is_new, 1));
        if (t->how == LITTLE) continue;
        int call = 1; /* those that move rows are many, and alike */
        while (with_fault(&s, t, is_new, call)) call += call < 60 ? 1 : WITH_SANITIZER ? 31 : 7;
        assert_in_range(call, 100, 5000);
    }
    disk_end(&s);
    if (!is_it) skip(); /* the kernel allows no io_uring */
}

/* --- without faults */

static void comes_back(void **state) {
    (void)state;
    for (int direct = 0; direct < 2; direct++) {
        struct disk s;
        struct outcome o = {0};
        disk_begin(&s);
        s.setup.direct = direct;
        s.setup.depth = direct ? 1 : 1024;
        disk_open(&s);
        expect_steps(&s, 0, "new");
        assert_int_equal(works(&s, 1, 20, &o), 0);
        expect_steps(&s, 20, "not committed yet");
        disk_close(&s);
        o.underway = o.done;
        expect_whole(&s, &o, "another process");
        disk_end(&s);
    }
}

/* --- what is refused */

static void expect_refused(struct disk *s, const char *said) {
    struct error err = {""};
    struct row_file *f = row_file_open(&s->setup, &err);
    if (f || !strstr(err.text, said)) fail_msg("'%s', wanted '%s'", f ? "opened" : err.text, said);
}

static void flip(const struct disk *s, const char *name, int64_t at) {
    char path[PATH_MAX + 60], byte;
    snprintf(path, sizeof path, "%s/%s", s->path.text, name);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* A bit is flipped; other tables; and a record, which says so when its row is fetched. */
static void refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t at;
        const char *said;
    } damages[] = {{"rows.0", 0, "is no file of rows"},
                   {"rows.0", 8, "another version"},
                   {"rows.1", 16, "its head is damaged: its checksum differs"},
                   {"sums.3", 300, "sums.3: is damaged: its checksum differs"},
                   {"commit", 17, "commit: is damaged: its checksum differs"}};
    struct disk s;
    struct outcome o = {.done = SYNCED, .underway = SYNCED};
    struct error err;
    struct table_shape other[TABLES];
    disk_begin(&s);
    prepare(&s, false); /* with a journal to be undone */
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        flip(&s, damages[i].name, damages[i].at);
        expect_refused(&s, damages[i].said);
        flip(&s, damages[i].name, damages[i].at);
    }
    memcpy(other, shapes, sizeof other);
    other[1].rows++;
    s.setup.shapes = other;
    expect_refused(&s, "rows.1: holds another table");
    s.setup.shapes = shapes;
    disk_open(&s);
    expect_refused(&s, "another process has it open");
    disk_close(&s);
    const int64_t seven = 7, place = 4096 + 7 * record_of(&shapes[0], RECORD_BLOCK).bytes;
    flip(&s, "rows.0", place);
    disk_open(&s);
    assert_int_equal(row_file_fetch(s.file, 0, &seven, 1, s.records, &err), -1);
    assert_non_null(strstr(err.text, "rows.0: row 7 is damaged: its checksum differs"));
    disk_close(&s);
    flip(&s, "rows.0", place);
    expect_whole(&s, &o, "after all of that");
    disk_end(&s);
}

TESTS(tier_rows) {
    add_test("what is stored comes back", comes_back, NULL, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        add_test(faults[i].test, each_call, NULL, &faults[i]);
    add_test("refused", refused, NULL, NULL);
    return run_listed("tables in files, row by row");
}
