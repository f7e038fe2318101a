/* SPDX-License-Identifier: MIT
 *
 * Tables in files, row by row: a new one has the initial values, what is stored comes back, and what was not committed
 * does not. A process that is killed at any moment leaves the rows of its last commit, all of them and nothing else.
 * Damage, other tables, a second process and a full disk are one line, and lose nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/tiers/row_file_case.h"

enum { STEPS = 100000 };

static void comes_back(void **state) {
    (void)state;
    struct error err;
    for (int direct = 0; direct < 2; direct++) {
        struct disk s;
        disk_begin(&s, "tier_rows");
        s.setup.direct = direct;
        disk_open(&s);
        assert_int_equal(record_of(&s.setup.shapes[0], RECORD_BLOCK).bytes % RECORD_BLOCK, 0);
        assert_int_equal(row_file_mark(s.file), 0);
        expect_steps(&s, 0, "new");
        for (int64_t step = 1; step <= 40; step++) {
            assert_int_equal(take_step(&s, step, &err), 0);
            if (step % 10 == 0) assert_int_equal(row_file_commit(s.file, (uint64_t)step, &err), 0);
        }
        expect_steps(&s, 40, "the same process");
        const struct store_counts c = row_file_counts(s.file);
        assert_true(c.commits == 5 && c.stored > 40 * TABLES && c.logged > 0 &&
                    c.logged <= c.stored + c.fetched);
        assert_true(c.written > c.stored * 512 && c.read > c.fetched * 512);
        disk_close(&s);
        disk_open(&s);
        assert_int_equal(row_file_mark(s.file), 40);
        expect_steps(&s, 40, "another process");
        for (int64_t step = 41; step <= 47; step++) assert_int_equal(take_step(&s, step, &err), 0);
        expect_steps(&s, 47, "not committed yet");
        disk_close(&s);
        disk_open(&s);
        expect_steps(&s, 40, "not committed");
        disk_end(&s);
    }
}

/* A row goes to memory and back. */
static void rows_of_tables(void **state) {
    (void)state;
    struct disk s;
    struct error err;
    struct table_set from, to;
    disk_begin(&s, "tier_rows");
    disk_open(&s);
    if (tables_create(&from, shapes, TABLES, 1, &err) ||
        tables_create(&to, shapes, TABLES, 2, &err))
        fail_msg("%s", err.text);
    for (int32_t t = 0; t < TABLES; t++) {
        const struct record layout = record_of(&shapes[t], RECORD_BLOCK);
        for (int64_t r = 0; r < shapes[t].rows; r++) {
            record_pack(&layout, s.records, &from.tables[t], r);
            record_unpack(&layout, s.records, &to.tables[t], r);
            for (int a = 0; a < TABLE_ARRAYS; a++) {
                const int64_t bytes = table_array_width(&shapes[t], a) *
                                      (int64_t)dtype_bytes(table_array_type(&shapes[t], a));
                if (bytes)
                    assert_memory_equal(array_row(&from.tables[t].array[a], r),
                                        array_row(&to.tables[t].array[a], r), (size_t)bytes);
            }
        }
    }
    tables_free(&from);
    tables_free(&to);
    disk_end(&s);
}

/* A child steps and commits until it is killed, at a moment that nobody chooses. */
static void killed(void **state) {
    (void)state;
    if (WITH_THREAD_SANITIZER) skip(); /* a child of several threads cannot start threads there */
    struct disk s;
    int64_t done = 0;
    int progressed = 0;
    disk_begin(&s, "tier_rows");
    for (int round = 0; round < 40; round++) {
        int opened[2];
        char byte;
        assert_int_equal(pipe(opened), 0);
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            struct error err;
            s.file = row_file_open(&s.setup, &err);
            if (!s.file || write(opened[1], "", 1) != 1) _exit(1);
            for (int64_t step = (int64_t)row_file_mark(s.file) + 1; step < STEPS; step++)
                if (take_step(&s, step, &err) ||
                    (step % 3 == 0 && row_file_commit(s.file, (uint64_t)step, &err)))
                    _exit(1);
            _exit(0);
        }
        /* Some die while they open. */
        if (round % 4) assert_int_equal(read(opened[0], &byte, 1), 1);
        usleep((useconds_t)(rng_key(9, (uint64_t)round) % 60000));
        close(opened[0]);
        close(opened[1]);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status));
        disk_open(&s);
        const int64_t mark = (int64_t)row_file_mark(s.file);
        assert_true(mark >= done && mark % 3 == 0);
        progressed += mark > done;
        done = mark;
        if (round % 4 == 0 || round == 39) expect_steps(&s, mark, "killed");
        disk_close(&s);
    }
    assert_true(progressed > 10);
    disk_end(&s);
}

static void expect_refused(struct disk *s, const char *said) {
    struct error err = {""};
    struct row_file *f = row_file_open(&s->setup, &err);
    if (f || !strstr(err.text, said)) fail_msg("'%s', wanted '%s'", f ? "opened" : err.text, said);
}

static void flip(const struct disk *s, const char *name, int64_t at) {
    char path[PATH_MAX + 60], byte;
    snprintf(path, sizeof path, "%s/%s", s->path.text, name);
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void refused(void **state) {
    (void)state;
    struct disk s;
    struct error err;
    struct table_shape other[TABLES];
    disk_begin(&s, "tier_rows");
    disk_open(&s);
    for (int64_t step = 1; step <= 20; step++) assert_int_equal(take_step(&s, step, &err), 0);
    assert_int_equal(row_file_commit(s.file, 20, &err), 0);
    expect_refused(&s, "another process has it open");
    disk_close(&s);
    memcpy(other, shapes, sizeof other);
    s.setup.shapes = other;
    other[1].dim = 131;
    expect_refused(&s, "rows.1: holds another table: 300 rows of 130, rule rowwise_adagrad; wanted "
                       "300 rows of 131");
    memcpy(other, shapes, sizeof other);
    other[0].weight_type = FP16;
    expect_refused(&s, "rows.0: holds another table");
    s.setup.shapes = shapes;
    s.setup.seed++;
    expect_refused(&s, "with the same types and seed");
    s.setup.seed--;
    static const struct {
        const char *name, *said;
        int64_t at;
    } flips[] = {{"rows.0", "is no file of rows", 0},
                 {"rows.0", "another version", 8},
                 {"rows.1", "its head is damaged: its checksum differs", 16},
                 {"sums.2", "sums.2: is damaged: its checksum differs", 900},
                 {"commit", "commit: is damaged: its checksum differs", 17}};
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        flip(&s, flips[i].name, flips[i].at);
        expect_refused(&s, flips[i].said);
        flip(&s, flips[i].name, flips[i].at);
    }
    /* A record is damaged: it says so when the row is fetched. */
    flip(&s, "rows.0", 4096 + 7 * 512 + 3);
    disk_open(&s);
    const int64_t seven = 7, eight = 8;
    assert_int_equal(row_file_fetch(s.file, 0, &eight, 1, s.records, &err), 0);
    assert_int_equal(row_file_fetch(s.file, 0, &seven, 1, s.records, &err), -1);
    assert_non_null(strstr(err.text, "rows.0: row 7 is damaged: its checksum differs"));
    disk_close(&s);
    flip(&s, "rows.0", 4096 + 7 * 512 + 3);
    disk_open(&s);
    expect_steps(&s, 20, "after all of that");
    disk_close(&s);
    s.setup.directory = "/no/such/folder";
    expect_refused(&s, "/no/such/folder: cannot create: No such file or directory");
    s.setup.directory = s.path.text;
    s.setup.depth = 0;
    expect_refused(&s, "0 requests in flight");
    disk_end(&s);
}

/* Files may not grow any more: the journal cannot take what is fetched. Nothing committed is lost. */
static void full_disk(void **state) {
    (void)state;
    struct disk s;
    struct error err = {""};
    struct rlimit before, limit;
    disk_begin(&s, "tier_rows");
    disk_open(&s);
    for (int64_t step = 1; step <= 10; step++) assert_int_equal(take_step(&s, step, &err), 0);
    assert_int_equal(row_file_commit(s.file, 10, &err), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 30000;
    setrlimit(RLIMIT_FSIZE, &limit);
    int status = 0;
    for (int64_t step = 11; step <= 60 && status == 0; step++) status = take_step(&s, step, &err);
    const int again = row_file_commit(s.file, 60, &(struct error){""});
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, -1);
    assert_int_equal(again, -1);
    assert_non_null(strstr(err.text, "File too large"));
    disk_close(&s);
    disk_open(&s);
    assert_int_equal(row_file_mark(s.file), 10);
    expect_steps(&s, 10, "after a full disk");
    disk_end(&s);
}

TESTS(tier_rows) {
    add_test("what is stored comes back", comes_back, NULL, NULL);
    add_test("rows of tables", rows_of_tables, NULL, NULL);
    add_test("killed at any moment", killed, NULL, NULL);
    add_test("refused", refused, NULL, NULL);
    add_test("a full disk", full_disk, NULL, NULL);
    return run_listed("tables in files, row by row");
}
