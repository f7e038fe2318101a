/* SPDX-License-Identifier: MIT
 *
 * Rows in files, one for each table: record r begins at r times its bytes. Nothing in them lasts, so a file that is
 * there already is refused: its run goes on, or it was killed. Threads read and write, many at a time: they wait for
 * the disk, not for a CPU.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "extras/tiers/store.h"
#include "harness/memory.h"
#include "kernels/shape.h"

enum { NAME = 20, DEPTH_MOST = 1024 };

struct file_table {
    int64_t bytes; /* of a record */
    int fd;
};

struct file_store {
    struct store store;
    char path[PATH_MAX]; /* of the directory */
    int directory;
    int depth;
    int32_t files; /* made so far: rows.0, rows.1, .. */
    struct file_table *tables;
};

/* A read or write of records. */
struct transfer {
    const struct file_table *table;
    const int64_t *rows;
    int64_t count;
    char *records;
    bool writes;
};

/* Moves the records i .. end-1 of consecutive rows. Returns 0, an errno, or -1: nothing moved. */
static int move(const struct transfer *x, int64_t i, int64_t end, int64_t *at) {
    const int64_t bytes = x->table->bytes;
    char *data = x->records + i * bytes;
    *at = x->rows[i] * bytes;
    for (size_t left = (size_t)((end - i) * bytes); left > 0;) {
        const ssize_t n = x->writes ? pwrite(x->table->fd, data, left, *at)
                                    : pread(x->table->fd, data, left, *at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return n ? errno : -1;
        data += n;
        *at += n;
        left -= (size_t)n;
    }
    return 0;
}

/* Consecutive rows move together. After an error only what has begun is finished. */
static int move_all(struct file_store *s, const struct transfer *x, struct error *err) {
    int64_t where = 0;
    int number = 0;
#pragma omp parallel for num_threads((int)max64(1, min64(x->count, s->depth))) schedule(dynamic)
    for (int64_t i = 0; i < x->count; i++) {
        int64_t end = i + 1, at;
        int failed;
        if (i > 0 && x->rows[i] == x->rows[i - 1] + 1) continue;
        while (end < x->count && x->rows[end] == x->rows[end - 1] + 1) end++;
#pragma omp atomic read
        failed = number;
        if (failed || !(failed = move(x, i, end, &at))) continue;
#pragma omp critical(file_failed)
        if (number == 0) {
            where = at;
#pragma omp atomic write
            number = failed;
        }
    }
    if (number == 0) return 0;
    return fail(err, "%.300s/rows.%d: cannot %s at byte %lld: %s", s->path,
                (int)(x->table - s->tables), x->writes ? "write" : "read", (long long)where,
                number > 0  ? strerror(number)
                : x->writes ? "nothing was written"
                            : "the file ends there");
}

static int fetch(struct store *store, int32_t table, const int64_t *rows, int64_t count,
                 void *records, struct error *err) {
    struct file_store *s = (struct file_store *)store;
    const struct transfer x = {&s->tables[table], rows, count, records, false};
    return move_all(s, &x, err);
}

static int put(struct store *store, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct file_store *s = (struct file_store *)store;
    const struct transfer x = {&s->tables[table], rows, count, (char *)records, true};
    return move_all(s, &x, err);
}

static void close_store(struct store *store) {
    struct file_store *s = (struct file_store *)store;
    char name[NAME];
    while (s->files > 0) {
        snprintf(name, sizeof name, "rows.%d", (int)--s->files);
        close(s->tables[s->files].fd);
        unlinkat(s->directory, name, 0);
    }
    if (s->directory >= 0) close(s->directory);
    free(s->tables);
    free(s);
}

static int open_directory(struct file_store *s, const char *directory, struct error *err) {
    if ((size_t)snprintf(s->path, sizeof s->path, "%s", directory) >= sizeof s->path)
        return fail(err, "%.60s...: too long", directory);
    if (mkdir(s->path, 0700) && errno != EEXIST)
        return fail(err, "%.300s: cannot create: %s", s->path, strerror(errno));
    s->directory = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->directory < 0 ? fail(err, "%.300s: cannot open: %s", s->path, strerror(errno)) : 0;
}

static int create(struct file_store *s, const struct store_table *table, bool direct,
                  struct error *err) {
    char name[NAME];
    snprintf(name, sizeof name, "rows.%d", (int)s->files);
    const int fd = openat(s->directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return fail(err,
                    "%.300s/%s: is there already. Another run uses it, or a killed run left it: "
                    "then remove it, it is scratch",
                    s->path, name);
    if (fd < 0) return fail(err, "%.300s/%s: cannot create: %s", s->path, name, strerror(errno));
    if (direct) fcntl(fd, F_SETFL, O_DIRECT); /* no file system has to */
    s->tables[s->files++] = (struct file_table){table->bytes, fd};
    return 0;
}

static struct store *open_store(const struct store_setup *setup, struct error *err) {
    if (setup->depth < 1 || setup->depth > DEPTH_MOST)
        return fail(err, "%d reads in flight: say 1 to %d", setup->depth, DEPTH_MOST), NULL;
    struct file_store *s = must_have(calloc(1, sizeof *s));
    s->store.kind = &file_store;
    s->directory = -1;
    s->depth = setup->depth;
    s->tables = must_have(calloc((size_t)setup->num_tables, sizeof *s->tables));
    int status = open_directory(s, setup->directory, err);
    for (int32_t t = 0; status == 0 && t < setup->num_tables; t++)
        status = create(s, &setup->tables[t], setup->direct, err);
    if (status == 0) return &s->store;
    close_store(&s->store);
    return NULL;
}

/* The block is what direct I/O wants. */
const struct store_kind file_store = {.name = "files",
                                      .block = 512,
                                      .open = open_store,
                                      .close = close_store,
                                      .fetch = fetch,
                                      .put = put};
