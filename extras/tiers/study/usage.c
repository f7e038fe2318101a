/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/memory.h"
#include "extras/tiers/study/stream.h"

struct usage usage_now(void) {
    struct usage u = {0};
    struct rusage r;
    char line[100];
    getrusage(RUSAGE_SELF, &r);
    u.faults = r.ru_majflt;
    FILE *f = fopen("/proc/self/io", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, "read_bytes: ", 12)) u.disk_read = atoll(line + 12);
        if (!strncmp(line, "write_bytes: ", 13)) u.disk_written = atoll(line + 13);
    }
    if (f) fclose(f);
    return u;
}

static int64_t cached(int folder, const char *name) {
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    const int64_t page = sysconf(_SC_PAGESIZE);
    int64_t bytes = 0;
    struct stat st;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        const int64_t pages = (st.st_size + page - 1) / page;
        unsigned char *is_here = must_have(malloc((size_t)pages));
        void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (data != MAP_FAILED && mincore(data, (size_t)st.st_size, is_here) == 0)
            for (int64_t i = 0; i < pages; i++) bytes += (is_here[i] & 1) * page;
        if (data != MAP_FAILED) munmap(data, (size_t)st.st_size);
        free(is_here);
    }
    if (fd >= 0) close(fd);
    return bytes;
}

int64_t page_cache_of(const char *folder) {
    int64_t bytes = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        bytes += cached(dirfd(d), e->d_name);
    if (d) closedir(d);
    return bytes;
}
