/* SPDX-License-Identifier: MIT */
#include "harness/workload/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *what_is_wrong(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder, not a regular file; name a file";
    if (S_ISFIFO(mode)) return "a pipe, not a regular file; write it to one, and name that";
    return "a device, not a regular file; name a file";
}

int regular_file_open(const char *path, int64_t *size, struct error *err) {
    struct stat st;
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* of a pipe: does not wait for a writer */
    if (fd < 0 || fstat(fd, &st)) {
        fail(err, "%s: cannot open: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        fail(err, "%s: %s", path, what_is_wrong(st.st_mode));
        errno = 0;
    } else {
        *size = st.st_size;
        return fd;
    }
    const int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return -1;
}

/* Reads to the end, but less than `most` bytes, into room that grows if the file is longer than it said. NULL:
 * out of memory. The last byte of the room is free unless *size is `most`. */
static char *read_text(FILE *file, int64_t bytes, size_t most, size_t *size) {
    size_t room = (uint64_t)bytes < most - 1 ? (size_t)bytes + 1 : most;
    char *text = NULL;
    for (*size = 0;; room = room < most / 2 ? 2 * room : most) {
        char *grown = realloc(text, room);
        if (!grown) break;
        text = grown;
        *size += fread(text + *size, 1, room - *size, file);
        if (*size < room || room == most) return text;
    }
    free(text);
    return NULL;
}

char *regular_file_text(const char *path, size_t most, const char *what, size_t *size,
                        struct error *err) {
    int64_t bytes;
    int fd = regular_file_open(path, &bytes, err);
    if (fd < 0) return NULL;
    FILE *file = fdopen(fd, "rb");
    char *text = file ? read_text(file, bytes, most, size) : NULL;
    int why = errno;
    int status = text ? 0 : fail(err, "%s: out of memory", path);
    if (status == 0 && ferror(file))
        status = fail(err, "%s: %s; name a %s", path, strerror(why), what);
    else if (status == 0 && *size == most) {
        status = fail(err, "%s: %zu MiB or more; this is no %s", path, most >> 20, what);
        why = 0;
    }
    if (file)
        fclose(file);
    else
        close(fd);
    if (status == 0) return text;
    free(text);
    errno = why;
    return NULL;
}

int file_end(FILE *file, const char *path, struct error *err) {
    const bool bad = ferror(file);
    const int why = errno;
    if (fclose(file) == 0 && !bad) return 0; /* buffered bytes can fail as late as here */
    return fail(err, "%s: cannot write: %s", path, strerror(bad ? why : errno));
}
