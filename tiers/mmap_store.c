/* SPDX-License-Identifier: MIT
 *
 * Rows in mapped files, for comparison: records are copied from and to the mapping, and the kernel decides what of it is in
 * memory. There is no journal: what was not committed is there in parts, and an error of the disk is a SIGBUS.
 * MADV_RANDOM, since the kernel reads around every fault otherwise. Faults come
 * one after the other, as in a kernel that runs on mapped tables.
 *
 *   mapped.T  the records of table T
 *   mark      that of the last commit
 *
 * setup.direct: after each call changed pages are written, and all are given back, so that a row which is fetched
 * is read from the disk. Else they stay in the page cache as long as the kernel likes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "tiers/store.h"

struct mapped {
    struct record layout;
    char name[40];
    int fd;
    char *data; /* NULL: not mapped */
    size_t bytes;
};

struct mmap_store {
    struct store store;
    char path[PATH_MAX];
    int directory;
    bool gives_back;
    int32_t num_tables;
    struct mapped *tables;
    struct store_counts counts;
};

static struct mmap_store *of(struct store *s) {
    return (struct mmap_store *)s;
}

static int failed(const struct mmap_store *x, const char *name, const char *what,
                  struct error *err) {
    return fail(err, "%.300s/%s: cannot %s: %s", x->path, name, what, strerror(errno));
}

static int write_back(const struct mmap_store *x, const struct mapped *t, struct error *err) {
    return msync(t->data, t->bytes, MS_SYNC) ? failed(x, t->name, "write back", err) : 0;
}

/* Pages must be clean. */
static void give_back(const struct mapped *t) {
    madvise(t->data, t->bytes, MADV_DONTNEED);
    posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct mmap_store *x = of(s);
    const struct mapped *t = &x->tables[table];
    const int64_t bytes = t->layout.bytes;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)records + i * bytes, t->data + rows[i] * bytes, (size_t)bytes);
    x->counts.fetched += count;
    if (x->gives_back) give_back(t);
    return 0;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct mmap_store *x = of(s);
    const struct mapped *t = &x->tables[table];
    const int64_t bytes = t->layout.bytes;
    for (int64_t i = 0; i < count; i++)
        memcpy(t->data + rows[i] * bytes, (const char *)records + i * bytes, (size_t)bytes);
    x->counts.stored += count;
    if (!x->gives_back) return 0;
    if (write_back(x, t, err)) return -1;
    give_back(t);
    return 0;
}

static int commit(struct store *s, uint64_t mark, struct error *err) {
    struct mmap_store *x = of(s);
    for (int32_t t = 0; t < x->num_tables; t++)
        if (write_back(x, &x->tables[t], err)) return -1;
    const int fd = openat(x->directory, "mark", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return failed(x, "mark", "open", err);
    const bool is_written = pwrite(fd, &mark, sizeof mark, 0) == (ssize_t)sizeof mark;
    const int status = is_written && fsync(fd) == 0 ? 0 : failed(x, "mark", "write", err);
    close(fd);
    x->counts.commits++;
    return status;
}

/* The kernel does not say what it reads and writes for a mapping. */
static struct store_counts counts(const struct store *s) {
    struct store_counts c = ((const struct mmap_store *)s)->counts;
    c.read = c.written = -1;
    return c;
}

/* Pages of the files are the kernel's. */
static int64_t memory(const struct store *s) {
    (void)s;
    return 0;
}

static void close_store(struct store *s) {
    struct mmap_store *x = of(s);
    for (int32_t t = 0; t < x->num_tables; t++) {
        if (x->tables[t].data) munmap(x->tables[t].data, x->tables[t].bytes);
        if (x->tables[t].fd >= 0) close(x->tables[t].fd);
    }
    if (x->directory >= 0) close(x->directory);
    free(x->tables);
    free(x);
}

static int map_table(struct mmap_store *x, int32_t number, bool is_new, struct error *err) {
    struct mapped *t = &x->tables[number];
    struct stat st;
    snprintf(t->name, sizeof t->name, "mapped.%d", (int)number);
    t->fd = openat(x->directory, t->name, O_RDWR | O_CLOEXEC | (is_new ? O_CREAT : 0), 0600);
    if (t->fd < 0) return failed(x, t->name, "open", err);
    /* Blocks that the disk lacks are an error here, and no SIGBUS later. */
    const int full = is_new ? posix_fallocate(t->fd, 0, (off_t)t->bytes) : 0;
    if (full) return errno = full, failed(x, t->name, "make room", err);
    if (fstat(t->fd, &st)) return failed(x, t->name, "look at", err);
    if (st.st_size != (off_t)t->bytes)
        return fail(err, "%.300s/%s: holds another table", x->path, t->name);
    void *data = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (data == MAP_FAILED) return failed(x, t->name, "map", err);
    t->data = data;
    madvise(t->data, t->bytes, MADV_RANDOM);
    return 0;
}

/* Initial values, written and given back: the page cache begins without them. */
static int fill(struct mmap_store *x, uint64_t seed, struct error *err) {
    enum { AT_ONCE = 1024 };
    for (int32_t n = 0; n < x->num_tables; n++) {
        const struct mapped *t = &x->tables[n];
        const int64_t rows = t->layout.shape.rows;
        for (int64_t first = 0; first < rows; first += AT_ONCE)
            if (record_initial(&t->layout, n, seed, first, min64(AT_ONCE, rows - first),
                               t->data + first * t->layout.bytes, err))
                return -1;
        if (write_back(x, t, err)) return -1;
        give_back(t);
    }
    return commit(&x->store, 0, err);
}

static int open_all(struct mmap_store *x, const struct store_setup *setup, struct error *err) {
    if (mkdir(x->path, 0700) && errno != EEXIST)
        return fail(err, "%.300s: cannot create: %s", x->path, strerror(errno));
    x->directory = open(x->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (x->directory < 0) return fail(err, "%.300s: cannot open: %s", x->path, strerror(errno));
    const bool is_new = faccessat(x->directory, "mark", F_OK, 0) != 0;
    for (int32_t t = 0; t < x->num_tables; t++)
        if (map_table(x, t, is_new, err)) return -1;
    return is_new ? fill(x, setup->seed, err) : 0;
}

struct store *mmap_store(const struct store_setup *setup, struct error *err) {
    static const struct store_ops ops = {.block = RECORD_BLOCK,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .commit = commit,
                                         .counts = counts,
                                         .memory = memory};
    struct mmap_store *x = must_have(calloc(1, sizeof *x));
    x->store = (struct store){&ops, "page faults"};
    x->directory = -1;
    x->gives_back = setup->direct;
    x->num_tables = setup->num_tables;
    x->tables = must_have(calloc((size_t)setup->num_tables, sizeof *x->tables));
    for (int32_t t = 0; t < setup->num_tables; t++) {
        const struct record layout = record_of(&setup->shapes[t], RECORD_BLOCK);
        x->tables[t] =
            (struct mapped){.layout = layout,
                            .fd = -1,
                            .bytes = (size_t)max64(layout.shape.rows * layout.bytes, RECORD_BLOCK)};
    }
    const size_t length = strlen(setup->directory);
    int status = length < sizeof x->path ? 0 : fail(err, "%.60s...: too long", setup->directory);
    if (status == 0) memcpy(x->path, setup->directory, length + 1);
    if (status == 0) status = open_all(x, setup, err);
    if (status == 0) return &x->store;
    close_store(&x->store);
    return NULL;
}
