/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tiers/row_file_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "kernels/shape.h"

/* --- errors and small calls */

int row_file_failed(struct row_file *f, const char *name, const char *what, struct error *err) {
    const int number = errno;
    f->broken = true;
    return fail(err, "%.300s/%s: cannot %s: %s", f->path, name, what, strerror(number));
}

int row_file_damaged(const struct row_file *f, const char *name, const char *what,
                     struct error *err) {
    return fail(err, "%.300s/%s: %s", f->path, name, what);
}

int row_file_unread(struct row_file *f, const char *name, const char *what, struct error *err) {
    return errno ? row_file_failed(f, name, "read", err) : row_file_damaged(f, name, what, err);
}

int row_file_write_at(int fd, const void *data, size_t bytes, int64_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, at + (int64_t)done);
        if (n == 0) errno = EIO; /* to try again may be for ever */
        if (n == 0 || (n < 0 && errno != EINTR)) return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int row_file_read_at(int fd, void *data, size_t bytes, int64_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)data + done, bytes - done, at + (int64_t)done);
        if (n == 0) errno = 0;
        if (n == 0 || (n < 0 && errno != EINTR)) return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

void row_file_numbered(char name[ROW_FILE_NAME], const char *kind, uint64_t number) {
    snprintf(name, ROW_FILE_NAME, "%s.%llu", kind, (unsigned long long)number);
}

char *row_file_block(int64_t bytes) {
    return must_have(aligned_alloc(
        ROW_FILE_HEAD, (size_t)((bytes + ROW_FILE_HEAD - 1) / ROW_FILE_HEAD * ROW_FILE_HEAD)));
}

uint32_t row_file_sum(const struct file_table *t, const void *record) {
    return (uint32_t)XXH3_64bits(record, (size_t)t->layout.bytes);
}

int64_t row_file_place(const struct file_table *t, int64_t row) {
    return ROW_FILE_HEAD + row * t->layout.bytes;
}

int row_file_usable(const struct row_file *f, struct error *err) {
    return f->broken ? fail(err, "%.300s: nothing more after an error; open it again", f->path) : 0;
}

/* --- fetch and store */

static const struct io_request *requests_of(struct row_file *f, const struct file_table *t,
                                            const int64_t *rows, int64_t count, char *records) {
    if (f->most_requests < count) {
        f->most_requests = count;
        f->requests = must_have(realloc(f->requests, (size_t)count * sizeof *f->requests));
    }
    for (int64_t i = 0; i < count; i++)
        f->requests[i] = (struct io_request){
            row_file_place(t, rows[i]), records + i * t->layout.bytes, (size_t)t->layout.bytes};
    return f->requests;
}

static int read_records(struct row_file *f, struct file_table *t, const int64_t *rows,
                        int64_t count, char *records, struct error *err) {
    if (io_read(f->io, t->fd, t->path, requests_of(f, t, rows, count, records), count, err))
        return -1;
    f->counts.read += count * t->layout.bytes;
    for (int64_t i = 0; i < count; i++)
        if (row_file_sum(t, records + i * t->layout.bytes) != t->sums[rows[i]])
            return fail(err, "%.300s/%s: row %lld is damaged: its checksum differs", f->path,
                        t->name, (long long)rows[i]);
    return 0;
}

int row_file_fetch(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                   void *records, struct error *err) {
    if (row_file_usable(f, err) || read_records(f, &f->tables[table], rows, count, records, err))
        return -1;
    f->counts.fetched += count;
    return row_journal_log(f, table, rows, count, records, err);
}

/* Rows that stayed in memory over a commit: what they were then is only in the file. */
static int log_unknown(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                       struct error *err) {
    struct file_table *t = &f->tables[table];
    int64_t *unknown = must_have(malloc((size_t)count * sizeof *unknown + 1)), n = 0;
    for (int64_t i = 0; i < count; i++)
        if (!row_journal_has(t, rows[i])) unknown[n++] = rows[i];
    char *records = n ? row_file_block(n * t->layout.bytes) : NULL;
    const int status = n && (read_records(f, t, unknown, n, records, err) ||
                             row_journal_log(f, table, unknown, n, records, err))
                           ? -1
                           : 0;
    free(records);
    free(unknown);
    return status;
}

static int put_rows(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                    const void *records, struct error *err) {
    struct file_table *t = &f->tables[table];
    if (log_unknown(f, table, rows, count, err) || row_journal_sync(f, t, rows, count, err))
        return -1;
    if (io_write(f->io, t->fd, t->path, requests_of(f, t, rows, count, (char *)records), count,
                 err))
        return -1;
    for (int64_t i = 0; i < count; i++)
        t->sums[rows[i]] = row_file_sum(t, (const char *)records + i * t->layout.bytes);
    f->counts.stored += count;
    f->counts.written += count * t->layout.bytes;
    return 0;
}

int row_file_put(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                 const void *records, struct error *err) {
    if (row_file_usable(f, err)) return -1;
    f->broken = put_rows(f, table, rows, count, records, err) != 0;
    return f->broken ? -1 : 0;
}

struct store_counts row_file_counts(const struct row_file *f) {
    return f->counts;
}

/* --- opening */

static int open_directory(struct row_file *f, struct error *err) {
    if (mkdir(f->path, 0700) && errno != EEXIST)
        return fail(err, "%.300s: cannot create: %s", f->path, strerror(errno));
    f->directory = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->directory < 0) return fail(err, "%.300s: cannot open: %s", f->path, strerror(errno));
    if (flock(f->directory, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? fail(err, "%.300s: another process has it open", f->path)
                   : fail(err, "%.300s: cannot lock: %s", f->path, strerror(errno));
    return 0;
}

static int open_all(struct row_file *f, const struct store_setup *s, struct error *err) {
    bool is_new;
    if (open_directory(f, err) || row_commit_read(f, &is_new, err)) return -1;
    for (int32_t i = 0; i < f->num_tables; i++)
        if (is_new ? row_table_create(f, i, s->seed, err) : row_table_verify(f, i, s->seed, err))
            return -1;
    if (is_new) return row_file_commit(f, 0, err);
    if (row_commit_read_sums(f, err) || row_journal_open(f, f->commit.number, 0, err)) return -1;
    /* The journal stays until the next commit. To put its records back once more, or older ones behind newer ones,
     * does no harm: all are of this commit. */
    if (row_journal_undo(f, err)) return -1;
    /* Of a commit that did not end, or whose leftovers nobody has taken away. */
    row_commit_remove(f, f->commit.number + 1);
    row_commit_remove(f, f->commit.number - 1);
    return 0;
}

struct row_file *row_file_open(const struct store_setup *s, struct error *err) {
    struct row_file *f = must_have(calloc(1, sizeof *f));
    f->directory = f->journal = -1;
    f->num_tables = s->num_tables;
    f->direct = s->direct;
    f->tables = must_have(calloc((size_t)s->num_tables, sizeof *f->tables));
    for (int32_t i = 0; i < s->num_tables; i++) {
        struct file_table *t = &f->tables[i];
        t->fd = -1;
        t->layout = record_of(&s->shapes[i], RECORD_BLOCK);
        t->sums = must_have(calloc((size_t)t->layout.shape.rows, sizeof *t->sums));
        t->is_old = must_have(calloc((size_t)t->layout.shape.rows / 8 + 1, 1));
        t->is_young = must_have(calloc((size_t)t->layout.shape.rows / 8 + 1, 1));
        row_file_numbered(t->name, "rows", (uint64_t)i);
        snprintf(t->path, sizeof t->path, "%.300s/%s", s->directory, t->name);
    }
    int status =
        strlen(s->directory) < sizeof f->path ? 0 : fail(err, "%.60s...: too long", s->directory);
    if (status == 0) strcpy(f->path, s->directory);
    if (status == 0) status = (f->io = io_open_any(s->depth, err)) ? 0 : -1;
    if (status == 0) status = open_all(f, s, err);
    if (status == 0) return f;
    row_file_close(f);
    return NULL;
}

void row_file_close(struct row_file *f) {
    if (!f) return;
    if (f->num_syncing > 0) pthread_join(f->syncer, NULL);
    for (int32_t i = 0; i < f->num_tables; i++) {
        if (f->tables[i].fd >= 0) close(f->tables[i].fd);
        free(f->tables[i].sums);
        free(f->tables[i].is_old);
        free(f->tables[i].is_young);
    }
    if (f->journal >= 0) close(f->journal);
    if (f->directory >= 0) close(f->directory);
    io_close(f->io);
    free(f->tables);
    free(f->requests);
    free(f->young);
    free(f->log);
    free(f);
}

int64_t row_file_memory(const struct row_file *f) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < f->num_tables; t++) {
        const int64_t rows = f->tables[t].layout.shape.rows;
        bytes += rows * (int64_t)sizeof *f->tables[t].sums + 2 * (rows / 8 + 1);
    }
    return bytes;
}

bool row_file_is_direct(const struct row_file *f) {
    return f->direct;
}

/* --- as a store */

static struct row_file *file_of(struct store *s) {
    return (struct row_file *)s;
}

static void close_store(struct store *s) {
    row_file_close(file_of(s));
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    return row_file_fetch(file_of(s), table, rows, count, records, err);
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    return row_file_put(file_of(s), table, rows, count, records, err);
}

static void put_soon(struct store *s) {
    row_file_put_soon(file_of(s));
}

static int commit(struct store *s, uint64_t mark, struct error *err) {
    return row_file_commit(file_of(s), mark, err);
}

static struct store_counts counts(const struct store *s) {
    return row_file_counts((const struct row_file *)s);
}

static int64_t memory(const struct store *s) {
    return row_file_memory((const struct row_file *)s);
}

struct store *row_file_store(const struct store_setup *s, struct error *err) {
    static const struct store_ops ops = {.block = RECORD_BLOCK,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .put_soon = put_soon,
                                         .commit = commit,
                                         .counts = counts,
                                         .memory = memory};
    struct row_file *f = row_file_open(s, err);
    if (!f) return NULL;
    f->store = (struct store){&ops, io_engine_names[io_engine(f->io)]};
    return &f->store;
}
