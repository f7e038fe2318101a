/* SPDX-License-Identifier: MIT
 *
 * The files of a command, on a file system that cannot exchange two files: all are replaced or
 * none.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_exchange(int from, const char *part, int to, const char *path, unsigned how) {
    (void)from, (void)part, (void)to, (void)path, (void)how;
    errno = EINVAL;
    return -1;
}

#define renameat2 no_exchange
#include "cli/outputs.c"

#include "harness/workload/regular_file.h"

#include "tests/support/cmocka_cases.h"
#include "tests/support/work_files.h"

static void write_text(struct outputs *o, const char *path, const char *text) {
    struct error err;
    FILE *file = outputs_text(o, path, &err);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(file_end(file, path, &err), 0);
}

static void holds(const char *path, const char *want) {
    char text[16] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_string_equal(text, want);
}

/* The third name is a folder: the two files before it get their old content back. */
static void all_or_none(void **state) {
    struct work_path old = work_path("outputs", "old"), new = work_path("outputs", "new"),
                     folder = work_path("outputs", "folder"),
                     part = work_path("outputs", "old.part"),
                     aside = work_path("outputs", "old.part.old");
    (void)state;
    mkdir(folder.text, 0777);
    for (int good = 0; good <= 1; good++) {
        struct outputs o = {0};
        struct error err = {""};
        unlink(new.text);
        assert_int_equal(work_write(old.text, "before", 6), 0);
        write_text(&o, old.text, "after");
        write_text(&o, new.text, "after");
        if (!good) write_text(&o, folder.text, "after");
        assert_int_equal(outputs_end(&o, 0, &err), good - 1);
        holds(old.text, good ? "after" : "before");
        assert_int_equal(access(new.text, F_OK), good - 1);
        assert_int_equal(access(part.text, F_OK), -1);
        assert_int_equal(access(aside.text, F_OK), -1);
    }
}

TESTS(outputs) {
    ADD_TEST(all_or_none);
    return run_listed("outputs");
}
