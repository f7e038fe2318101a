/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "harness/record/machine_lock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/measure/ceiling.h" /* clock_seconds */

enum { HOLDER_MAX = 160 };

/* The first bench creates the file for all users. It creates and opens in two calls, because Linux
 * may refuse O_CREAT on another user's file in /tmp. Read access suffices to lock. No O_CLOEXEC: a
 * bench that starts again after a crash keeps its lock. */
static int open_shared(const char *path) {
    const int flags = O_NOFOLLOW | O_NONBLOCK;
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | flags, 0666);
    if (file >= 0)
        fchmod(file, 0666); /* for any umask */
    else
        file = open(path, O_RDWR | flags);
    return file >= 0 || errno != EACCES ? file : open(path, O_RDONLY | flags);
}

/* Keeps only printable text: anybody can write the file. */
static void read_holder(int file, char text[HOLDER_MAX]) {
    ssize_t size = pread(file, text, HOLDER_MAX - 1, 0);
    text[size > 0 ? size : 0] = '\0';
    for (char *c = text; *c; c++)
        if (!isprint((unsigned char)*c)) *c = ' ';
    if (!*text) strcpy(text, "unknown");
}

static void write_holder(int file) {
    char command[HOLDER_MAX - 40], since[16] = "";
    const size_t size = read_start("/proc/self/cmdline", command, sizeof command);
    for (size_t i = 0; i + 1 < size; i++)
        if (!command[i]) command[i] = ' ';
    time_t now = time(NULL);
    struct tm local;
    strftime(since, sizeof since, "%H:%M:%S", localtime_r(&now, &local));
    if (ftruncate(file, 0) || /* a courtesy only */
        dprintf(file, "pid %d since %s: %s", (int)getpid(), since, command) < 0)
        return;
}

/* False if somebody removed or replaced the file before this process locked it. */
static bool same_file(int file, const char *path) {
    struct stat ours, there;
    return fstat(file, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

int machine_lock(int minutes, const volatile sig_atomic_t *stop, struct error *err) {
    const char *given = getenv("EMBFUSE_LOCK");
    const char *path = given && *given ? given : "/tmp/embfuse-bench.lock";
    const struct timespec pause = {.tv_nsec = 100000000};
    char holder[HOLDER_MAX];
    double begin = clock_seconds(), said = -1e9;
    for (;;) {
        int file = open_shared(path);
        if (file < 0)
            return fail(err, "%.200s: %s; EMBFUSE_LOCK names another file", path, strerror(errno));
        if (flock(file, LOCK_EX | LOCK_NB) == 0) {
            if (same_file(file, path)) {
                write_holder(file);
                return 0;
            }
            close(file);
            continue;
        }
        int why = errno;
        read_holder(file, holder);
        close(file);
        if (why != EWOULDBLOCK) return fail(err, "%.200s: %s", path, strerror(why));
        double now = clock_seconds();
        if (*stop || now - begin >= 60.0 * minutes)
            return fail(err,
                        "another bench measures on this machine: %s; QUEUE=MINUTES waits longer",
                        holder);
        if (now - said >= 60.0) {
            said = now;
            fprintf(stderr, "[waiting up to %d min] another bench measures on this machine: %s\n",
                    minutes, holder);
        }
        nanosleep(&pause, NULL);
    }
}
