/* SPDX-License-Identifier: MIT
 *
 * Calls that open, read, write, sync, rename or remove files, with faults. The program is linked
 * with -Wl,--wrap for each of them, and includes this file once. While `fault.on`, calls are
 * counted, and something happens to number `fault.at`. Nothing is synced: what a real disk may lose
 * without a sync, lose_unsynced() takes away.
 */
#pragma once

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "tiers/io.h"

enum fault_how {
    FAIL_ONCE,
    ENDS,    /* the process ends: from that call on, none has an effect */
    NOTHING, /* that call moves no bytes */
    LITTLE, /* every third call is interrupted; others move a third of the bytes, one at the least */
};

static struct {
    atomic_bool on; /* how, at, error: changed while it is off, and no thread works */
    enum fault_how how;
    int at, error;
    atomic_int calls;
    atomic_bool counts;    /* a call has failed whose failure may not be passed over */
    enum io_engine engine; /* that is there */
} fault;

/* The call that is linked, and the one of the C library. */
#define WRAPS(type, name, ...)                                                                     \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
WRAPS(int, open, const char *path, int flags, ...);
WRAPS(int, openat, int folder, const char *path, int flags, ...);
WRAPS(int, mkdir, const char *path, mode_t mode);
WRAPS(ssize_t, pwrite, int fd, const void *bytes, size_t size, off_t at);
WRAPS(ssize_t, pread, int fd, void *bytes, size_t size, off_t at);
WRAPS(int, fsync, int fd);
WRAPS(int, fdatasync, int fd);
WRAPS(int, renameat, int from, const char *a, int to, const char *b);
WRAPS(int, unlinkat, int folder, const char *path, int flags);
WRAPS(int, close, int fd);
WRAPS(int, io_uring_queue_init, unsigned entries, struct io_uring *ring, unsigned flags);
WRAPS(int, io_uring_submit_and_wait, struct io_uring *ring, unsigned count);

/* --- writes that are not synced */

enum { CHANGES = 10000 };

static struct change {
    ino_t file;       /* 0: it was synced */
    int fd;           /* reads and writes the file */
    off_t at, length; /* length: of the file before */
    size_t size;
    ssize_t had; /* bytes that were there */
    char *before, *after;
} unsynced[CHANGES];
static int changes;
static pthread_mutex_t changing =
    PTHREAD_MUTEX_INITIALIZER; /* a thread syncs while another writes */

static void note_change(int fd, const void *bytes, size_t size, off_t at) {
    char link[40];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    pthread_mutex_lock(&changing);
    struct change *c = &unsynced[changes];
    const int file = __real_open(link, O_RDWR); /* fd may be one that only writes */
    if (changes++ >= CHANGES || file < 0 || fstat(file, &st)) abort();
    *c = (struct change){
        st.st_ino, file, at, st.st_size, size, 0, must_have(malloc(size)), must_have(malloc(size))};
    memcpy(c->after, bytes, size);
    c->had = __real_pread(file, c->before, size, at);
    pthread_mutex_unlock(&changing);
}

/* The changes of a file can no longer be lost. */
static void note_sync(ino_t file) {
    pthread_mutex_lock(&changing);
    for (struct change *c = unsynced; c < unsynced + changes; c++) {
        if (c->file != file) continue;
        __real_close(c->fd);
        free(c->before), free(c->after);
        c->file = 0;
    }
    pthread_mutex_unlock(&changing);
}

/* Of the writes that were not synced all are lost, or none, or some, and others in part. */
static void lose_unsynced(uint64_t key) {
    const int count = changes;
    for (int i = 0; i < 2 * count; i++) {
        const bool undoes = i < count;
        const struct change *c = &unsynced[undoes ? count - 1 - i : i - count];
        const uint64_t part =
            key % 4 < 2 ? 2 * (key % 4) : rng_key(key, (uint64_t)i) % 3; /* halves */
        if (!c->file) continue;
        if (undoes && (__real_pwrite(c->fd, c->before, (size_t)c->had, c->at) != c->had ||
                       ftruncate(c->fd, c->length)))
            abort();
        if (!undoes && __real_pwrite(c->fd, c->after, c->size * part / 2, c->at) < 0) abort();
    }
    for (int i = 0; i < count; i++)
        if (unsynced[i].file) note_sync(unsynced[i].file);
    changes = 0;
}

/* --- faults */

/* Counts a call. True: it fails, with errno. */
static bool fails(void) {
    if (!fault.on) return false;
    const int call = atomic_fetch_add(&fault.calls, 1) + 1;
    errno = fault.error;
    if (!(fault.how == FAIL_ONCE && call == fault.at) && !(fault.how == ENDS && call >= fault.at))
        return false;
    fault.counts = true;
    return true;
}

/* What comes of a call that moves so many bytes: how many, or -1 and errno. */
static ssize_t moves(size_t bytes) {
    if (fails()) return -1;
    if (!fault.on) return (ssize_t)bytes;
    if (fault.how == NOTHING && fault.calls == fault.at) return 0;
    if (fault.how != LITTLE) return (ssize_t)bytes;
    if (fault.calls % 3) return (ssize_t)((bytes + 2) / 3);
    errno = EINTR;
    return -1;
}

int __wrap_open(const char *path, int flags, ...) {
    return fails() ? -1 : __real_open(path, flags, 0600);
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
    if (n > 0 && fault.on && fault.how == ENDS) note_change(fd, bytes, (size_t)n, at);
    return n > 0 ? __real_pwrite(fd, bytes, (size_t)n, at) : n;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    const ssize_t n = moves(size);
    return n > 0 ? __real_pread(fd, bytes, (size_t)n, at) : n;
}

int __wrap_fsync(int fd) {
    struct stat st;
    if (fails() || fstat(fd, &st)) return -1;
    note_sync(st.st_ino);
    return 0;
}

int __wrap_fdatasync(int fd) {
    return __wrap_fsync(fd);
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    return fails() ? -1 : __real_renameat(from, a, to, b);
}

int __wrap_unlinkat(int folder, const char *path, int flags) {
    const bool before = fault.counts;
    if (!fails()) return __real_unlinkat(folder, path, flags);
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
    if (fails()) return -errno;
    const int status = __real_io_uring_submit_and_wait(ring, count);
    const unsigned end = io_uring_smp_load_acquire(ring->cq.ktail);
    for (unsigned i = *ring->cq.khead; fault.on && i != end; i++) {
        struct io_uring_cqe *e = &ring->cq.cqes[i & (ring->cq.ring_entries - 1)];
        if (e->res <= 0) continue;
        const ssize_t n = moves((size_t)e->res);
        e->res = n < 0 ? -errno : (int)n;
    }
    return status;
}
