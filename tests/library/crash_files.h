/* SPDX-License-Identifier: MIT
 *
 * Calls that write files, with faults and with the loss of what was not synced. The program is
 * linked with -Wl,--wrap for each of them, and includes this file once. While `crash.on`, calls are
 * counted, and number `crash.at` fails or is the last one before a crash.
 *
 * A crash loses what POSIX allows it to lose: the content of a file that was not synced since it
 * was written, and, of each folder, the last entries made, renamed or removed since it was synced.
 * No real sync is made.
 */
#pragma once

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/rng.h"

enum crash_how {
    CRASH_HERE, /* before the call; in a write, after half of it */
    FAIL_ONCE,
    FAIL_ALWAYS, /* from that call on */
    FAIL_SHORT, /* writes and reads from that call on do one byte more than the last one, up to 7 */
    FAIL_FOLDER_SYNCS,
};

/* What a crash loses. Others: drawn with that seed. */
enum crash_loss { LOSES_NOTHING, LOSES_ALL, LOSES_CONTENT, CRASH_LOSSES = 6 };

enum { CRASH_STATUS = 77, CRASH_OPS = 200, CRASH_NAME = 80 };

struct crash_op {
    enum { CREATED, RENAMED, REMOVED } kind;
    int folder; /* open */
    ino_t of;   /* the folder */
    char name[CRASH_NAME], to[CRASH_NAME];
    bool synced;
};

static struct {
    bool on;
    enum crash_how how;
    int at, calls, error, loss, stash, short_bytes;
    bool retried; /* a sync after a failed one of the same file */
    ino_t failed;
    int num_ops, num_files;
    struct crash_op op[CRASH_OPS];
    struct {
        int fd;
        ino_t of;
        bool dirty;
    } file[CRASH_OPS];
} crash;

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)
WRAPPED(int, open, const char *path, int flags, ...);
WRAPPED(int, openat, int folder, const char *path, int flags, ...);
WRAPPED(int, mkdir, const char *path, mode_t mode);
WRAPPED(int, mkdirat, int folder, const char *path, mode_t mode);
WRAPPED(ssize_t, pwrite, int fd, const void *bytes, size_t size, off_t at);
WRAPPED(ssize_t, pread, int fd, void *bytes, size_t size, off_t at);
WRAPPED(int, fsync, int fd);
WRAPPED(int, renameat, int from, const char *a, int to, const char *b);
WRAPPED(int, unlinkat, int folder, const char *path, int flags);
WRAPPED(int, close, int fd);

static ino_t inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

/* --- the crash */

static int remove_it(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static void undo(const struct crash_op *op) {
    char path[CRASH_NAME + 60];
    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", op->folder, op->name);
    if (op->kind == CREATED) nftw(path, remove_it, 16, FTW_DEPTH | FTW_PHYS);
    if (op->kind == RENAMED) __real_renameat(op->folder, op->to, op->folder, op->name);
    if (op->kind == REMOVED) __real_renameat(crash.stash, op->to, op->folder, op->name);
}

/* How a file that was not synced looks afterwards: as it is, empty, its first half, or zeros. */
static void lose_content(int fd, uint64_t way) {
    struct stat st;
    if (fstat(fd, &st) || way % 4 == 0) return;
    if (ftruncate(fd, way % 4 == 2 ? st.st_size / 2 : 0)) abort();
    if (way % 4 == 3 && ftruncate(fd, st.st_size)) abort();
}

/* Of the entries of op's folder that are not synced, does this one stay? The first ones do. */
static bool stays(int i) {
    int count = 0, before = 0, first = i;
    for (int k = crash.num_ops; k-- > 0;) {
        if (crash.op[k].of != crash.op[i].of || crash.op[k].synced) continue;
        before += k < i;
        count++;
        first = k;
    }
    if (crash.loss == LOSES_ALL) return false;
    if (crash.loss <= LOSES_CONTENT) return true;
    const uint64_t key = rng_key((uint64_t)crash.loss, (uint64_t)first);
    return before < (int)(rng_u64(key, 0) % (uint64_t)(count + 1));
}

static void crash_now(void) {
    bool stay[CRASH_OPS];
    crash.on = false;
    for (int i = 0; i < crash.num_files; i++)
        if (crash.file[i].dirty && crash.loss != LOSES_NOTHING)
            lose_content(crash.file[i].fd, crash.loss == LOSES_ALL ? 1
                                           : crash.loss == LOSES_CONTENT
                                               ? 3
                                               : rng_u64(7, (uint64_t)(crash.loss * 100 + i)));
    for (int i = 0; i < crash.num_ops; i++) stay[i] = crash.op[i].synced || stays(i);
    for (int i = crash.num_ops; i-- > 0;)
        if (!stay[i]) undo(&crash.op[i]);
    _exit(CRASH_STATUS);
}

/* Counts a call. True: it fails. */
static bool faults(void) {
    if (!crash.on) return false;
    crash.calls++;
    if (crash.how == CRASH_HERE && crash.calls == crash.at) crash_now();
    errno = crash.error;
    return (crash.how == FAIL_ONCE && crash.calls == crash.at) ||
           (crash.how == FAIL_ALWAYS && crash.calls >= crash.at);
}

static void logged(int folder, const char *name, const char *to, int kind) {
    if (!crash.on) return;
    if (crash.num_ops == CRASH_OPS) abort();
    struct crash_op *op = &crash.op[crash.num_ops++];
    *op = (struct crash_op){.kind = kind, .folder = dup(folder), .of = inode_of(folder)};
    snprintf(op->name, sizeof op->name, "%s", name);
    snprintf(op->to, sizeof op->to, "%s", to);
}

/* --- the calls */

int __wrap_openat(int folder, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (faults()) return -1;
    const int fd = __real_openat(folder, path, flags, mode);
    if (fd < 0 || !crash.on || !(flags & O_CREAT)) return fd;
    logged(folder, path, "", CREATED);
    if (crash.num_files == CRASH_OPS) abort();
    crash.file[crash.num_files].fd = dup(fd);
    crash.file[crash.num_files].dirty = true;
    crash.file[crash.num_files++].of = inode_of(fd);
    return fd;
}

int __wrap_open(const char *path, int flags, ...) {
    return faults() ? -1 : __real_open(path, flags, 0666);
}

int __wrap_mkdirat(int folder, const char *path, mode_t mode) {
    if (faults()) return -1;
    const int status = __real_mkdirat(folder, path, mode);
    if (status == 0) logged(folder, path, "", CREATED);
    return status;
}

int __wrap_mkdir(const char *path, mode_t mode) {
    char above[4096];
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    if (faults()) return -1;
    const int status = __real_mkdir(path, mode);
    if (status || !crash.on) return status;
    *slash = '\0';
    const int folder = __real_open(above, O_RDONLY | O_DIRECTORY);
    logged(folder, slash + 1, "", CREATED);
    __real_close(folder);
    return 0;
}

static size_t shortened(size_t size) {
    if (!crash.on || crash.how != FAIL_SHORT || crash.calls < crash.at) return size;
    const size_t most = (size_t)(crash.short_bytes++ % 7) + 1;
    return size < most ? size : most;
}

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    if (crash.on && crash.how == CRASH_HERE && crash.calls + 1 == crash.at &&
        __real_pwrite(fd, bytes, size / 2, at) < 0)
        abort();
    if (faults()) return -1;
    const ino_t of = inode_of(fd);
    for (int i = 0; crash.on && i < crash.num_files; i++)
        crash.file[i].dirty |= crash.file[i].of == of;
    return __real_pwrite(fd, bytes, shortened(size), at);
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t at) {
    return faults() ? -1 : __real_pread(fd, bytes, shortened(size), at);
}

int __wrap_fsync(int fd) {
    const ino_t of = inode_of(fd);
    struct stat st;
    const bool folder = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    crash.retried |= crash.on && crash.failed == of;
    if (faults() || (crash.on && crash.how == FAIL_FOLDER_SYNCS && folder)) {
        errno = crash.error;
        crash.failed = of;
        return -1;
    }
    for (int i = 0; i < crash.num_ops; i++) crash.op[i].synced |= crash.op[i].of == of;
    for (int i = 0; i < crash.num_files; i++) crash.file[i].dirty &= crash.file[i].of != of;
    return 0;
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    if (faults()) return -1;
    const int status = __real_renameat(from, a, to, b);
    if (status == 0) logged(from, a, b, RENAMED);
    return status;
}

/* In a run that may crash, what is removed lies in the stash, so that it can come back. */
int __wrap_unlinkat(int folder, const char *path, int flags) {
    char name[40];
    if (faults()) return -1;
    if (!crash.on || crash.how != CRASH_HERE) return __real_unlinkat(folder, path, flags);
    snprintf(name, sizeof name, "%d", crash.num_ops);
    const int status = __real_renameat(folder, path, crash.stash, name);
    if (status == 0) logged(folder, path, name, REMOVED);
    return status;
}

/* A descriptor is gone even after an error. */
int __wrap_close(int fd) {
    const bool bad = faults();
    const int status = __real_close(fd);
    if (bad) errno = crash.error;
    return bad ? -1 : status;
}
