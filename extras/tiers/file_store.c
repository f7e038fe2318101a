/* SPDX-License-Identifier: MIT
 *
 * Rows in files, one for each table: record r begins at r times its bytes. The files are scratch: see run_files.h.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "extras/tiers/io.h"
#include "extras/tiers/run_files.h"
#include "extras/tiers/store.h"

struct file_table {
    struct record layout;
    int fd;
    char path[RUN_FILE_PATH];
};

struct file_store {
    struct store store;
    struct run_files run;
    struct io *io;
    int32_t num_tables;
    struct file_table *tables;
    struct io_request *requests;
    int64_t most_requests;
    struct store_counts counts;
};

static struct file_store *of(struct store *s) {
    return (struct file_store *)s;
}

static const struct io_request *requests_of(struct file_store *x, const struct file_table *t,
                                            const int64_t *rows, int64_t count, char *records) {
    const int64_t bytes = t->layout.bytes;
    if (x->most_requests < count) {
        x->most_requests = count;
        x->requests = must_have(realloc(x->requests, (size_t)count * sizeof *x->requests));
    }
    for (int64_t i = 0; i < count; i++)
        x->requests[i] = (struct io_request){rows[i] * bytes, records + i * bytes, (size_t)bytes};
    return x->requests;
}

static int fetch(struct store *s, int32_t table, const int64_t *rows, int64_t count, void *records,
                 struct error *err) {
    struct file_store *x = of(s);
    const struct file_table *t = &x->tables[table];
    if (io_read(x->io, t->fd, t->path, requests_of(x, t, rows, count, records), count, err))
        return -1;
    x->counts.fetched += count;
    x->counts.read += count * t->layout.bytes;
    return 0;
}

static int put(struct store *s, int32_t table, const int64_t *rows, int64_t count,
               const void *records, struct error *err) {
    struct file_store *x = of(s);
    const struct file_table *t = &x->tables[table];
    if (io_write(x->io, t->fd, t->path, requests_of(x, t, rows, count, (char *)records), count,
                 err))
        return -1;
    x->counts.stored += count;
    x->counts.written += count * t->layout.bytes;
    return 0;
}

static struct store_counts counts(const struct store *s) {
    return ((const struct file_store *)s)->counts;
}

static int64_t memory(const struct store *s) {
    (void)s;
    return 0;
}

static void close_store(struct store *s) {
    struct file_store *x = of(s);
    for (int32_t t = 0; t < x->num_tables; t++)
        if (x->tables[t].fd >= 0) close(x->tables[t].fd);
    run_files_close(&x->run);
    io_close(x->io);
    free(x->tables);
    free(x->requests);
    free(x);
}

/* A file with the initial values of a table. */
static int create(struct file_store *x, int32_t number, uint64_t seed, bool direct,
                  struct error *err) {
    enum { CHUNK = 4 << 20, PAGE = 4096 };
    struct file_table *t = &x->tables[number];
    const int64_t rows = t->layout.shape.rows, bytes = t->layout.bytes;
    const int64_t most = max64(1, min64(rows, CHUNK / bytes));
    t->fd = run_files_create(&x->run, t->path, err);
    if (t->fd < 0) return -1;
    if (direct) fcntl(t->fd, F_SETFL, O_DIRECT); /* no file system has to */
    char *records =
        must_have(aligned_alloc(PAGE, (size_t)((most * bytes + PAGE - 1) / PAGE * PAGE)));
    int status = 0;
    for (int64_t row = 0; status == 0 && row < rows; row += most) {
        const int64_t count = min64(most, rows - row);
        const struct io_request all = {row * bytes, records, (size_t)(count * bytes)};
        status = record_initial(&t->layout, number, seed, row, count, records, err);
        if (status == 0) status = io_write(x->io, t->fd, t->path, &all, 1, err);
    }
    free(records);
    return status;
}

struct store *file_store(const struct store_setup *setup, struct error *err) {
    static const struct store_ops ops = {.block = RECORD_BLOCK,
                                         .close = close_store,
                                         .fetch = fetch,
                                         .put = put,
                                         .counts = counts,
                                         .memory = memory};
    struct file_store *x = must_have(calloc(1, sizeof *x));
    x->num_tables = setup->num_tables;
    x->tables = must_have(calloc((size_t)setup->num_tables, sizeof *x->tables));
    for (int32_t t = 0; t < x->num_tables; t++) {
        x->tables[t].layout = record_of(&setup->shapes[t], RECORD_BLOCK);
        x->tables[t].fd = -1;
    }
    int status = run_files_open(&x->run, setup->directory, err);
    if (status == 0) status = (x->io = io_open_any(setup->depth, err)) ? 0 : -1;
    for (int32_t t = 0; status == 0 && t < x->num_tables; t++)
        status = create(x, t, setup->seed, setup->direct, err);
    if (status) {
        close_store(&x->store);
        return NULL;
    }
    x->store = (struct store){&ops, io_engine_names[io_engine(x->io)]};
    return &x->store;
}
