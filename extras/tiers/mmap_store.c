/* SPDX-License-Identifier: MIT
 *
 * Rows in mapped files, for comparison: records are copied from and to the mapping. After each call changed pages are
 * written, and all are given back, so that every row that is fetched is read from the disk; with memory to spare the kernel
 * would keep them all. MADV_RANDOM, since the kernel reads around every fault otherwise. Faults come one after the other, as
 * in a kernel that runs on mapped tables. An error of the disk is a SIGBUS. The files are scratch: see run_files.h.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "extras/tiers/run_files.h"
#include "extras/tiers/store.h"

struct mapped {
    struct record layout;
    char path[RUN_FILE_PATH];
    int fd;
    char *data; /* NULL: not mapped */
    size_t bytes;
};

struct mmap_store {
    struct store store;
    struct run_files run;
    int32_t num_tables;
    struct mapped *tables;
    struct store_counts counts;
};

static struct mmap_store *of(struct store *s) {
    return (struct mmap_store *)s;
}

static int failed(const struct mapped *t, const char *what, struct error *err) {
    return fail(err, "%.300s: cannot %s: %s", t->path, what, strerror(errno));
}

/* Writes what has changed, and gives all pages back. */
static int give_back(const struct mapped *t, struct error *err) {
    if (msync(t->data, t->bytes, MS_SYNC)) return failed(t, "write back", err);
    madvise(t->data, t->bytes, MADV_DONTNEED);
    posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct mmap_store *x = of(s);
    const struct mapped *t = &x->tables[table];
    const int64_t bytes = t->layout.bytes;
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)records + i * bytes, t->data + rows[i] * bytes, (size_t)bytes);
    x->counts.fetched += count;
    return give_back(t, err);
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct mmap_store *x = of(s);
    const struct mapped *t = &x->tables[table];
    const int64_t bytes = t->layout.bytes;
    for (int64_t i = 0; i < count; i++)
        memcpy(t->data + rows[i] * bytes, (const char *)records + i * bytes, (size_t)bytes);
    x->counts.stored += count;
    return give_back(t, err);
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
    run_files_close(&x->run);
    free(x->tables);
    free(x);
}

/* A mapped file with the initial values of a table. */
static int create(struct mmap_store *x, int32_t number, uint64_t seed, struct error *err) {
    enum { AT_ONCE = 1024 };
    struct mapped *t = &x->tables[number];
    const int64_t rows = t->layout.shape.rows;
    t->fd = run_files_create(&x->run, t->path, err);
    if (t->fd < 0) return -1;
    /* Blocks that the disk lacks are an error here, and no SIGBUS later. */
    errno = posix_fallocate(t->fd, 0, (off_t)t->bytes);
    if (errno) return failed(t, "make room", err);
    void *data = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, t->fd, 0);
    if (data == MAP_FAILED) return failed(t, "map", err);
    t->data = data;
    madvise(t->data, t->bytes, MADV_RANDOM);
    for (int64_t first = 0; first < rows; first += AT_ONCE)
        if (record_initial(&t->layout, number, seed, first, min64(AT_ONCE, rows - first),
                           t->data + first * t->layout.bytes, err))
            return -1;
    return give_back(t, err);
}

struct store *mmap_store(const struct store_setup *setup, struct error *err) {
    static const struct store_ops ops = {.block = RECORD_BLOCK,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .counts = counts,
                                         .memory = memory};
    struct mmap_store *x = must_have(calloc(1, sizeof *x));
    x->store = (struct store){&ops, "page faults"};
    x->num_tables = setup->num_tables;
    x->tables = must_have(calloc((size_t)setup->num_tables, sizeof *x->tables));
    for (int32_t t = 0; t < setup->num_tables; t++) {
        struct mapped *to = &x->tables[t];
        to->layout = record_of(&setup->shapes[t], RECORD_BLOCK);
        to->bytes = (size_t)max64(to->layout.shape.rows * to->layout.bytes, RECORD_BLOCK);
        to->fd = -1;
    }
    int status = run_files_open(&x->run, setup->directory, err);
    for (int32_t t = 0; status == 0 && t < x->num_tables; t++)
        status = create(x, t, setup->seed, err);
    if (status == 0) return &x->store;
    close_store(&x->store);
    return NULL;
}
