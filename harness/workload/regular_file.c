/* SPDX-License-Identifier: MIT */
#include "harness/workload/regular_file.h"

#include <errno.h>
#include <fcntl.h>
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
    } else {
        *size = st.st_size;
        return fd;
    }
    if (fd >= 0) close(fd);
    return -1;
}
