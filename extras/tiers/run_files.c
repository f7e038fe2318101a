/* SPDX-License-Identifier: MIT */
#include "extras/tiers/run_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME = 40 };

int run_files_open(struct run_files *s, const char *directory, struct error *err) {
    s->directory = -1;
    if ((size_t)snprintf(s->path, sizeof s->path, "%s", directory) >= sizeof s->path - NAME)
        return fail(err, "%.60s...: too long", directory);
    if (mkdir(s->path, 0700) && errno != EEXIST)
        return fail(err, "%.300s: cannot create: %s", s->path, strerror(errno));
    s->directory = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->directory < 0) return fail(err, "%.300s: cannot open: %s", s->path, strerror(errno));
    return 0;
}

int run_files_create(struct run_files *s, char path[RUN_FILE_PATH], struct error *err) {
    char name[NAME];
    snprintf(name, sizeof name, "rows.%d", (int)s->files);
    snprintf(path, RUN_FILE_PATH, "%.300s/%s", s->path, name);
    const int fd = openat(s->directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return fail(err,
                    "%s: is there already: rows of a run that goes on, or was killed. They are "
                    "scratch: remove them",
                    path);
    if (fd < 0) return fail(err, "%s: cannot create: %s", path, strerror(errno));
    s->files++;
    return fd;
}

void run_files_close(struct run_files *s) {
    char name[NAME];
    while (s->files > 0) {
        snprintf(name, sizeof name, "rows.%d", (int)--s->files);
        unlinkat(s->directory, name, 0);
    }
    if (s->directory >= 0) close(s->directory);
}
