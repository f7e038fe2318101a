/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tiers/row_file_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "kernels/rules.h"
#include "kernels/shape.h"

enum { VERSION = 2, CHUNK = 4 << 20 };

static const char magic[8] = "EMBROWS";

/* At the beginning of rows.T. */
struct head {
    char magic[8];
    uint32_t version;
    int32_t table, dim, rule, weight_type, momentum_type, rounding, unused;
    int64_t rows, record, stride;     /* bytes */
    uint64_t rounding_key, seed, sum; /* sum: of all before it */
};

static struct head head_of(const struct file_table *t, int32_t number, uint64_t seed) {
    const struct table_shape *s = &t->layout.shape;
    struct head h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, magic, sizeof h.magic);
    h.version = VERSION;
    h.table = number;
    h.dim = s->dim;
    h.rule = (int32_t)s->rule;
    h.weight_type = (int32_t)s->weight_type;
    h.momentum_type = (int32_t)s->momentum_type;
    h.rounding = (int32_t)s->rounding;
    h.rows = s->rows;
    h.record = t->layout.used;
    h.stride = t->layout.bytes;
    h.rounding_key = s->rounding_key;
    h.seed = seed;
    h.sum = XXH3_64bits(&h, offsetof(struct head, sum));
    return h;
}

static int open_table_file(struct row_file *f, struct file_table *t, int flags, struct error *err) {
    const int direct = f->direct ? O_DIRECT : 0;
    t->fd = openat(f->directory, t->name, O_RDWR | O_CLOEXEC | flags | direct, 0600);
    if (t->fd < 0 && errno == EINVAL && direct) {
        f->direct = false;
        t->fd = openat(f->directory, t->name, O_RDWR | O_CLOEXEC | flags, 0600);
    }
    return t->fd < 0 ? row_file_failed(f, t->name, "open for reading and writing", err) : 0;
}

int row_table_create(struct row_file *f, int32_t number, uint64_t seed, struct error *err) {
    struct file_table *t = &f->tables[number];
    const struct head h = head_of(t, number, seed);
    const int64_t at_once = max64(1, min64(t->layout.shape.rows, CHUNK / t->layout.bytes));
    char *block = row_file_block(max64(ROW_FILE_HEAD, at_once * t->layout.bytes));
    int status = open_table_file(f, t, O_CREAT | O_TRUNC, err);
    memset(block, 0, ROW_FILE_HEAD);
    memcpy(block, &h, sizeof h);
    if (status == 0 && row_file_write_at(t->fd, block, ROW_FILE_HEAD, 0))
        status = row_file_failed(f, t->name, "write", err);
    for (int64_t row = 0; status == 0 && row < t->layout.shape.rows; row += at_once) {
        const int64_t count = min64(at_once, t->layout.shape.rows - row);
        status = record_initial(&t->layout, number, seed, row, count, block, err);
        for (int64_t i = 0; status == 0 && i < count; i++)
            t->sums[row + i] = row_file_sum(t, block + i * t->layout.bytes);
        if (status == 0 && row_file_write_at(t->fd, block, (size_t)(count * t->layout.bytes),
                                             row_file_place(t, row)))
            status = row_file_failed(f, t->name, "write", err);
    }
    free(block);
    return status;
}

int row_table_verify(struct row_file *f, int32_t number, uint64_t seed, struct error *err) {
    struct file_table *t = &f->tables[number];
    const struct head want = head_of(t, number, seed);
    struct head *h = (struct head *)row_file_block(ROW_FILE_HEAD);
    struct stat st;
    int status = open_table_file(f, t, 0, err);
    if (status == 0 && row_file_read_at(t->fd, h, ROW_FILE_HEAD, 0))
        status = row_file_unread(f, t->name, "is no file of rows", err);
    else if (status == 0 && memcmp(h->magic, magic, sizeof magic))
        status = row_file_damaged(f, t->name, "is no file of rows", err);
    else if (status == 0 && h->version != VERSION)
        status = row_file_damaged(f, t->name, "was written by another version", err);
    else if (status == 0 && h->sum != XXH3_64bits(h, offsetof(struct head, sum)))
        status = row_file_damaged(f, t->name, "its head is damaged: its checksum differs", err);
    else if (status == 0 && memcmp(h, &want, sizeof want))
        status =
            fail(err,
                 "%.300s/%s: holds another table: %lld rows of %d, rule %s; wanted %lld rows "
                 "of %d, rule %s, with the same types and seed",
                 f->path, t->name, (long long)h->rows, (int)h->dim,
                 h->rule >= 0 && h->rule < RULE_COUNT ? rule_info_of((enum rule_kind)h->rule)->name
                                                      : "?",
                 (long long)want.rows, (int)want.dim, rule_info_of(t->layout.shape.rule)->name);
    else if (status == 0 &&
             (fstat(t->fd, &st) || st.st_size < row_file_place(t, t->layout.shape.rows)))
        status = row_file_damaged(f, t->name, "is too short", err);
    free(h);
    return status;
}
