/* SPDX-License-Identifier: MIT
 *
 * Reads and writes at random places, by io_uring and by threads: every byte where it belongs, with
 * direct I/O too, and errors of real files: too short, full, not writable.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "tests/support/kernel_tests.h"
#include "tests/library/state_case.h"
#include "tiers/io.h"

enum { BLOCK = 4096, BLOCKS = 700 };

struct file {
    struct work_path path;
    int fd;
    char *memory; /* what it must hold */
};

static void file_open(struct file *f, int flags) {
    f->path = state_no_folder("tier_io");
    unlink(f->path.text);
    f->fd = open(f->path.text, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
    if (f->fd < 0 && flags && errno == EINVAL) skip(); /* this file system has no direct I/O */
    assert_true(f->fd >= 0);
    f->memory = must_have(aligned_alloc(BLOCK, (size_t)BLOCKS * BLOCK));
    for (size_t i = 0; i < (size_t)BLOCKS * BLOCK / 8; i++)
        ((uint64_t *)f->memory)[i] = rng_key(3, i);
}

static void file_close(struct file *f) {
    close(f->fd);
    unlink(f->path.text);
    free(f->memory);
}

/* All blocks, in another order. */
static int64_t requests_of(char *memory, struct io_request *r) {
    int64_t count = 0;
    for (int64_t i = 0; i < BLOCKS; i++) {
        const int64_t block = i * 211 % BLOCKS; /* 211 and 700 have no common factor */
        r[count++] = (struct io_request){block * BLOCK, memory + block * BLOCK, BLOCK};
    }
    return count;
}

static struct io *engine_of(void **state, int depth) {
    const enum io_engine *engine = ((const struct kernel_test *)*state)->param;
    struct error err;
    struct io *io = io_open(*engine, depth, &err);
    if (!io && *engine == IO_URING) skip(); /* the kernel does not allow it */
    assert_non_null(io);
    assert_int_equal(io_engine(io), *engine);
    return io;
}

static void every_byte(void **state) {
    struct error err;
    static const int depths[] = {1, 3, 1024}, flags[] = {0, O_DIRECT};
    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            struct file f;
            struct io_request r[BLOCKS];
            struct io *io = engine_of(state, depths[d]);
            file_open(&f, flags[k]);
            char *back = must_have(aligned_alloc(BLOCK, (size_t)BLOCKS * BLOCK));
            const int64_t count = requests_of(f.memory, r);
            if (io_write(io, f.fd, f.path.text, r, count, &err)) fail_msg("%s", err.text);
            memset(back, 0, (size_t)BLOCKS * BLOCK);
            for (int64_t i = 0; i < count; i++) r[i].data = back + r[i].at;
            if (io_read(io, f.fd, f.path.text, r, count, &err)) fail_msg("%s", err.text);
            assert_memory_equal(back, f.memory, (size_t)BLOCKS * BLOCK);
            assert_int_equal(io_read(io, f.fd, f.path.text, r, 0, &err), 0);
            free(back);
            file_close(&f);
            io_close(io);
        }
}

static void errors(void **state) {
    struct file f;
    struct error err;
    struct io_request r[BLOCKS];
    struct io *io = engine_of(state, 8);
    file_open(&f, 0);
    const int64_t count = requests_of(f.memory, r);
    assert_int_equal(io_write(io, f.fd, f.path.text, r, count, &err), 0);
    /* One block is missing, then a half. */
    for (int half = 0; half < 2; half++) {
        assert_int_equal(ftruncate(f.fd, (BLOCKS - 1) * BLOCK + half * BLOCK / 2), 0);
        assert_int_equal(io_read(io, f.fd, f.path.text, r, count, &err), -1);
        char said[60];
        snprintf(said, sizeof said, "cannot read at byte %d: the file ends there",
                 (BLOCKS - 1) * BLOCK + half * BLOCK / 2);
        assert_non_null(strstr(err.text, said));
    }
    const int full = open("/dev/full", O_WRONLY), only_read = open(f.path.text, O_RDONLY);
    assert_int_equal(io_write(io, full, "/dev/full", r, count, &err), -1);
    assert_non_null(strstr(err.text, "/dev/full: cannot write at byte "));
    assert_non_null(strstr(err.text, "No space left on device"));
    assert_int_equal(io_write(io, only_read, f.path.text, r, count, &err), -1);
    assert_non_null(strstr(err.text, "Bad file descriptor"));
    /* It works again after an error. */
    assert_int_equal(io_write(io, f.fd, f.path.text, r, count, &err), 0);
    assert_int_equal(io_read(io, f.fd, f.path.text, r, count, &err), 0);
    r[3].bytes = 0;
    assert_int_equal(io_read(io, f.fd, f.path.text, r, count, &err), -1);
    assert_null(io_open(IO_THREADS, 0, &err));
    assert_null(io_open(IO_URING, 1025, &err));
    close(full);
    close(only_read);
    file_close(&f);
    io_close(io);
}

TESTS(tier_io) {
    static const enum io_engine engines[] = {IO_URING, IO_THREADS};
    add_test("io_uring: every byte", every_byte, NULL, &engines[0]);
    add_test("io_uring: errors", errors, NULL, &engines[0]);
    add_test("threads: every byte", every_byte, NULL, &engines[1]);
    add_test("threads: errors", errors, NULL, &engines[1]);
    return run_listed("reads and writes at random places");
}
