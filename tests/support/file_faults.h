/* SPDX-License-Identifier: MIT
 *
 * Calls that open, read, write, sync, rename or remove files, with faults. The program is linked
 * with -Wl,--wrap for each of them, and includes this file once. While `fault.on`, calls are
 * counted, and number `fault.at` fails. No real sync is made.
 */
#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <liburing.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tiers/io.h"

enum fault_how {
    FAIL_ONCE,
    FAIL_ALWAYS, /* from that call on */
    NOTHING,     /* that call moves no bytes */
    SHORT,       /* calls from that one on move a third of the bytes; one byte at the least */
    INTERRUPTED, /* every third call that moves bytes is */
    READ_ONLY,   /* each call that would change something fails */
};

static struct {
    atomic_bool on; /* how, at, error: changed while it is off, and no thread works */
    enum fault_how how;
    int at, error;
    atomic_int calls;
    atomic_bool counts;     /* a call has failed whose failure may not be passed over */
    enum io_engine engine;  /* that is there */
    _Atomic(off_t) journal; /* bytes of the journal that are synced */
} fault;

int __real_open(const char *path, int flags, ...);
int __real_openat(int folder, const char *path, int flags, ...);
int __real_mkdir(const char *path, mode_t mode);
ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t at);
ssize_t __real_pread(int fd, void *bytes, size_t size, off_t at);
int __real_renameat(int from, const char *a, int to, const char *b);
int __real_unlinkat(int folder, const char *path, int flags);
int __real_close(int fd);
int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned count);

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_mkdir(const char *path, mode_t mode);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at);
ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_unlinkat(int folder, const char *path, int flags);
int __wrap_close(int fd);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned count);

/* --- faults */

/* Counts a call. True: it fails, with errno. */
static bool fails(bool changes) {
    if (!fault.on) return false;
    const int call = atomic_fetch_add(&fault.calls, 1) + 1;
    errno = fault.error;
    if (!(fault.how == FAIL_ONCE && call == fault.at) &&
        !(fault.how == FAIL_ALWAYS && call >= fault.at) && !(fault.how == READ_ONLY && changes))
        return false;
    fault.counts = true;
    return true;
}

/* What comes of a call that moves so many bytes: how many, or -1 and errno. */
static ssize_t moves(size_t bytes, bool changes) {
    if (fails(changes)) return -1;
    if (!fault.on) return (ssize_t)bytes;
    if (fault.how == NOTHING && fault.calls == fault.at) return 0;
    if (fault.how == SHORT && fault.calls >= fault.at) return (ssize_t)((bytes + 2) / 3);
    if (fault.how != INTERRUPTED || fault.calls % 3) return (ssize_t)bytes;
    errno = EINTR;
    return -1;
}

int __wrap_open(const char *path, int flags, ...) {
    return fails(false) ? -1 : __real_open(path, flags, 0600);
}

int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails((flags & O_ACCMODE) != O_RDONLY) ? -1 : __real_openat(folder, path, flags, mode);
}

int __wrap_mkdir(const char *path, mode_t mode) {
    return fails(false) ? -1 : __real_mkdir(path, mode);
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    const ssize_t n = moves(size, true);
    return n > 0 ? __real_pwrite(fd, bytes, (size_t)n, at) : n;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    const ssize_t n = moves(size, false);
    return n > 0 ? __real_pread(fd, bytes, (size_t)n, at) : n;
}

int __wrap_fsync(int fd) {
    (void)fd;
    return fails(true) ? -1 : 0;
}

int __wrap_fdatasync(int fd) {
    char link[40], path[PATH_MAX] = "";
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const bool is_journal = readlink(link, path, sizeof path - 1) > 0 && strstr(path, "/journal.");
    if (fstat(fd, &st) || fails(true)) return -1;
    if (is_journal) fault.journal = st.st_size;
    return 0;
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    return fails(true) ? -1 : __real_renameat(from, a, to, b);
}

int __wrap_unlinkat(int folder, const char *path, int flags) {
    const bool before = fault.counts;
    if (!fails(true)) return __real_unlinkat(folder, path, flags);
    fault.counts = before; /* a file stays that nobody needs */
    return -1;
}

/* Who closes twice may close what another one has opened. */
int __wrap_close(int fd) {
    const int status = __real_close(fd);
    if (status && errno == EBADF) abort();
    return status;
}

/* Threads take over where there is no io_uring. */
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags) {
    return fault.engine == IO_THREADS ? -EPERM : __real_io_uring_queue_init(entries, ring, flags);
}

/* The kernel takes nothing, or what has come has another result. */
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned count) {
    if (fails(false)) return -errno;
    const int status = __real_io_uring_submit_and_wait(ring, count);
    const unsigned end = io_uring_smp_load_acquire(ring->cq.ktail);
    for (unsigned i = *ring->cq.khead; fault.on && i != end; i++) {
        struct io_uring_cqe *e = &ring->cq.cqes[i & (ring->cq.ring_entries - 1)];
        if (e->res <= 0) continue;
        const ssize_t n = moves((size_t)e->res, false);
        e->res = n < 0 ? -errno : (int)n;
    }
    return status;
}
