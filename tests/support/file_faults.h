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
    ENDS,        /* the process ends: from that call on, none has an effect */
    NOTHING,     /* that call moves no bytes */
    SHORT,       /* calls from that one on move a third of the bytes; one byte at the least */
    INTERRUPTED, /* every third call that moves bytes is */
};

static struct {
    atomic_bool on; /* how, at, error: changed while it is off, and no thread works */
    enum fault_how how;
    int at, error;
    atomic_int calls;
    atomic_bool counts;    /* a call has failed whose failure may not be passed over */
    enum io_engine engine; /* that is there */
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

/* --- writes that are not synced */

struct change {
    ino_t file;
    off_t at, length; /* length: of the file before */
    size_t size;
    ssize_t had; /* bytes that were there */
    char *before, *after;
};

static struct {
    pthread_mutex_t lock;
    struct change *of;
    size_t count, room;
} unsynced = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_change(int fd, const void *bytes, size_t size, off_t at) {
    char link[40];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const int file = __real_open(link, O_RDONLY); /* fd may be one that only writes */
    if (file < 0 || fstat(file, &st)) abort();
    struct change c = {
        st.st_ino, at, st.st_size, size, 0, must_have(malloc(size)), must_have(malloc(size))};
    memcpy(c.after, bytes, size);
    c.had = __real_pread(file, c.before, size, at);
    __real_close(file);
    pthread_mutex_lock(&unsynced.lock);
    if (unsynced.count == unsynced.room) {
        unsynced.room = 2 * unsynced.room + 100;
        unsynced.of = must_have(realloc(unsynced.of, unsynced.room * sizeof c));
    }
    unsynced.of[unsynced.count++] = c;
    pthread_mutex_unlock(&unsynced.lock);
}

/* Forgets those of a file; 0: of all files. */
static void note_sync(ino_t file) {
    size_t kept = 0;
    pthread_mutex_lock(&unsynced.lock);
    for (size_t i = 0; i < unsynced.count; i++) {
        const struct change c = unsynced.of[i];
        if (file && c.file != file)
            unsynced.of[kept++] = c;
        else
            free(c.before), free(c.after);
    }
    unsynced.count = kept;
    pthread_mutex_unlock(&unsynced.lock);
}

/* A file of the folder, to be written; -1: it is gone. */
static int file_of(const char *folder, ino_t file) {
    DIR *files = opendir(folder);
    int fd = -1;
    for (struct dirent *e = files ? readdir(files) : NULL; e; e = readdir(files))
        if (e->d_ino == file) fd = __real_openat(dirfd(files), e->d_name, O_WRONLY);
    if (files) closedir(files);
    return fd;
}

/* Of the writes that were not synced all are lost, or none, or some, and others in part. */
static void lose_unsynced(const char *folder, uint64_t key) {
    const size_t count = unsynced.count;
    for (size_t i = 0; i < 2 * count; i++) {
        const bool undoes = i < count;
        const struct change *c = &unsynced.of[undoes ? count - 1 - i : i - count];
        const uint64_t part = key % 4 < 2 ? 2 * (key % 4) : rng_key(key, i) % 3; /* halves */
        const int fd = file_of(folder, c->file);
        if (fd < 0) continue;
        if (undoes && (__real_pwrite(fd, c->before, (size_t)c->had, c->at) != c->had ||
                       ftruncate(fd, c->length)))
            abort();
        if (!undoes && __real_pwrite(fd, c->after, c->size * part / 2, c->at) < 0) abort();
        __real_close(fd);
    }
    note_sync(0);
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
    if (fault.how == SHORT && fault.calls >= fault.at) return (ssize_t)((bytes + 2) / 3);
    if (fault.how != INTERRUPTED || fault.calls % 3) return (ssize_t)bytes;
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
