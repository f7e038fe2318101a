/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tiers/row_file_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "kernels/shape.h"

/* Before an old record in the journal. sum: of all behind it, the record included. */
struct entry {
    uint64_t sum;
    int64_t row;
    int32_t table, bytes;
};

int row_journal_open(struct row_file *f, uint64_t number, int flags, struct error *err) {
    row_file_numbered(f->journal_name, "journal", number);
    f->journal = openat(f->directory, f->journal_name, O_RDWR | O_CLOEXEC | flags, 0600);
    f->journal_bytes = 0;
    return f->journal < 0 ? row_file_failed(f, f->journal_name, "open", err) : 0;
}

static bool has_bit(const uint8_t *bits, int64_t row) {
    return bits[row / 8] & 1 << row % 8;
}

static void set_bit(uint8_t *bits, int64_t row) {
    bits[row / 8] |= (uint8_t)(1 << row % 8);
}

bool row_journal_has(const struct file_table *t, int64_t row) {
    return has_bit(t->is_old, row);
}

static void push_young(struct row_file *f, int32_t table, int64_t row) {
    if (f->num_young == f->most_young) {
        f->most_young = 2 * f->most_young + 1024;
        f->young = must_have(realloc(f->young, (size_t)f->most_young * sizeof *f->young));
    }
    f->young[f->num_young++] = (struct young){row, table};
    set_bit(f->tables[table].is_young, row);
}

/* The first [count] of them are synced. */
static void grow_up(struct row_file *f, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const struct young *y = &f->young[i];
        f->tables[y->table].is_young[y->row / 8] &= (uint8_t) ~(1 << y->row % 8);
    }
    f->num_young -= count;
    if (f->num_young > 0)
        memmove(f->young, f->young + count, (size_t)f->num_young * sizeof *f->young);
}

static void *sync_journal(void *ctx) {
    struct row_file *f = ctx;
    f->sync_error = fdatasync(f->journal) ? errno : 0;
    return NULL;
}

void row_file_put_soon(struct row_file *f) {
    if (f->num_syncing > 0 || f->num_young == 0) return;
    if (pthread_create(&f->syncer, NULL, sync_journal, f) == 0) f->num_syncing = f->num_young;
}

int row_journal_wait(struct row_file *f, struct error *err) {
    if (f->num_syncing == 0) return 0;
    pthread_join(f->syncer, NULL);
    const int64_t count = f->num_syncing;
    f->num_syncing = 0;
    errno = f->sync_error;
    if (f->sync_error) return row_file_failed(f, f->journal_name, "sync", err);
    grow_up(f, count);
    return 0;
}

static bool has_young(const struct file_table *t, const int64_t *rows, int64_t count) {
    int64_t i = 0;
    while (i < count && !has_bit(t->is_young, rows[i])) i++;
    return i < count;
}

int row_journal_sync(struct row_file *f, const struct file_table *t, const int64_t *rows,
                     int64_t count, struct error *err) {
    if (!has_young(t, rows, count)) return 0;
    if (row_journal_wait(f, err)) return -1;
    if (!has_young(t, rows, count)) return 0;
    if (fdatasync(f->journal)) return row_file_failed(f, f->journal_name, "sync", err);
    grow_up(f, f->num_young);
    return 0;
}

static uint64_t entry_sum(const struct entry *e, const void *record) {
    return XXH3_64bits_withSeed(record, (size_t)e->bytes,
                                XXH3_64bits(&e->row, sizeof *e - offsetof(struct entry, row)));
}

int row_journal_log(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                    const char *records, struct error *err) {
    struct file_table *t = &f->tables[table];
    const size_t each = sizeof(struct entry) + (size_t)t->layout.bytes;
    size_t bytes = 0;
    if (f->most_log < each * (size_t)count) {
        f->most_log = each * (size_t)count;
        f->log = must_have(realloc(f->log, f->most_log));
    }
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = rows[i];
        if (has_bit(t->is_old, row)) continue;
        char *at = f->log + bytes;
        struct entry e = {.row = row, .table = table, .bytes = (int32_t)t->layout.bytes};
        memcpy(at + sizeof e, records + i * t->layout.bytes, (size_t)t->layout.bytes);
        e.sum = entry_sum(&e, at + sizeof e);
        memcpy(at, &e, sizeof e);
        bytes += each;
        f->counts.logged++;
    }
    if (bytes == 0) return 0;
    if (row_file_write_at(f->journal, f->log, bytes, f->journal_bytes))
        return row_file_failed(f, f->journal_name, "write", err);
    f->journal_bytes += (int64_t)bytes;
    f->counts.written += (int64_t)bytes;
    for (int64_t i = 0; i < count; i++) {
        if (has_bit(t->is_old, rows[i])) continue;
        set_bit(t->is_old, rows[i]);
        push_young(f, table, rows[i]);
    }
    return 0;
}

/* Reads the entry at that place, and its record. Returns its bytes; 0: none, or a torn one; -1: it cannot be read. */
static int64_t read_entry(const struct row_file *f, int64_t at, char *record, struct entry *e) {
    if (row_file_read_at(f->journal, e, sizeof *e, at)) return errno ? -1 : 0;
    if (e->table < 0 || e->table >= f->num_tables) return 0;
    const struct file_table *t = &f->tables[e->table];
    if (e->bytes != t->layout.bytes || e->row < 0 || e->row >= t->layout.shape.rows) return 0;
    if (row_file_read_at(f->journal, record, (size_t)e->bytes, at + (int64_t)sizeof *e))
        return errno ? -1 : 0;
    return entry_sum(e, record) == e->sum ? (int64_t)sizeof *e + e->bytes : 0;
}

/* Its end may be torn: what was not synced was not overwritten. */
int row_journal_undo(struct row_file *f, struct error *err) {
    enum { AT_ONCE = 2048 };
    int64_t most = 0, count = 0, bytes = 1;
    int32_t table = 0; /* of the records at hand */
    int status = 0;
    for (int32_t i = 0; i < f->num_tables; i++) most = max64(most, f->tables[i].layout.bytes);
    char *records = row_file_block(AT_ONCE * most);
    struct io_request *requests = must_have(calloc(AT_ONCE, sizeof *requests));
    for (int64_t at = 0; bytes && status == 0;) {
        struct entry e;
        bytes = read_entry(f, at, records + count * most, &e);
        if (bytes < 0) {
            status = row_file_failed(f, f->journal_name, "read", err);
            break;
        }
        if (bytes && (count == 0 || e.table == table)) {
            table = e.table;
            requests[count] = (struct io_request){row_file_place(&f->tables[table], e.row),
                                                  records + count * most, (size_t)e.bytes};
            count++;
            at += bytes;
            if (count < AT_ONCE) continue;
        }
        status = io_write(f->io, f->tables[table].fd, f->tables[table].path, requests, count, err);
        count = 0;
    }
    free(requests);
    free(records);
    if (status) return -1;
    for (int32_t i = 0; i < f->num_tables; i++)
        if (fdatasync(f->tables[i].fd)) return row_file_failed(f, f->tables[i].name, "sync", err);
    return 0;
}

void row_journal_forget(struct row_file *f) {
    grow_up(f, f->num_young);
    for (int32_t i = 0; i < f->num_tables; i++)
        memset(f->tables[i].is_old, 0, (size_t)f->tables[i].layout.shape.rows / 8 + 1);
}
