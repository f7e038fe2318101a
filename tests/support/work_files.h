/* SPDX-License-Identifier: MIT
 *
 * Files that tests write: all of them are below $BUILD/tests, so that nothing changes outside of
 * the build folder.
 */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct work_path {
    char text[PATH_MAX];
};

/* $BUILD/tests/FOLDER/NAME; the folders are made. */
static inline struct work_path work_path(const char *folder, const char *name) {
    const char *build = getenv("BUILD");
    struct work_path p;
    snprintf(p.text, sizeof p.text, "%s/tests/%s/%s", build ? build : "build", folder, name);
    for (char *slash = strchr(p.text + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(p.text, 0777);
        *slash = '/';
    }
    return p;
}

/* Replaces the file; returns 0, or -1 if that fails. */
static inline int work_write(const char *path, const void *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    if (!f) return -1;
    size_t written = fwrite(bytes, 1, size, f);
    return fclose(f) == 0 && written == size ? 0 : -1;
}
