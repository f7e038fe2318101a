/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tiers/row_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/memory.h"
#include "kernels/rules.h"
#include "kernels/shape.h"

enum { VERSION = 2, HEAD = 4096, CHUNK = 4 << 20, NAME = 40 };

static const char magic[8] = "EMBROWS", commit_magic[8] = "EMBCOMM";

/* At the beginning of rows.T. */
struct head {
    char magic[8];
    uint32_t version;
    int32_t table, dim, rule, weight_type, momentum_type, rounding, unused;
    int64_t rows, record, stride;     /* bytes */
    uint64_t rounding_key, seed, sum; /* sum: of all before it */
};

struct commit {
    char magic[8];
    uint64_t number, mark, sum;
};

/* Before an old record in the journal. sum: of all behind it, the record included. */
struct entry {
    uint64_t sum;
    int64_t row;
    int32_t table, bytes;
};

struct file_table {
    struct record layout;
    int fd;
    char name[NAME];
    uint32_t *sums;    /* [rows] */
    uint8_t *is_old;   /* a bit for each row: its content at the commit is in the journal */
    uint8_t *is_young; /* the same: but that is not synced yet */
};

struct young {
    int64_t row;
    int32_t table;
};

struct row_file {
    struct store store;
    char path[PATH_MAX];
    int directory;
    int32_t num_tables;
    struct file_table *tables;
    struct io *io;
    bool direct, broken;
    struct commit commit;
    int journal;
    int64_t journal_bytes;
    struct young *young; /* those that are not synced, in the order of the journal */
    int64_t num_young, most_young, num_syncing; /* the first of these: a thread syncs them */
    pthread_t syncer;                           /* while num_syncing > 0 */
    int sync_error;
    struct io_request *requests;
    int64_t most_requests;
    char *log;
    size_t most_log;
    struct store_counts counts;
};

/* --- errors and small calls */

static int failed(struct row_file *f, const char *name, const char *what, struct error *err) {
    const int number = errno;
    f->broken = true;
    return fail(err, "%.300s/%s: cannot %s: %s", f->path, name, what, strerror(number));
}

static int damaged(const struct row_file *f, const char *name, const char *what,
                   struct error *err) {
    return fail(err, "%.300s/%s: %s", f->path, name, what);
}

/* All bytes, or -1. */
static int write_at(int fd, const void *data, size_t bytes, int64_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, at + (int64_t)done);
        if (n < 0 && errno != EINTR) return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* All bytes, or -1; errno 0: the file ends before. */
static int read_at(int fd, void *data, size_t bytes, int64_t at) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pread(fd, (char *)data + done, bytes - done, at + (int64_t)done);
        if (n == 0) errno = 0;
        if (n == 0 || (n < 0 && errno != EINTR)) return -1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static void numbered(char name[NAME], const char *kind, uint64_t number) {
    snprintf(name, NAME, "%s.%llu", kind, (unsigned long long)number);
}

/* For direct I/O. */
static char *block_alloc(int64_t bytes) {
    return must_have(aligned_alloc(HEAD, (size_t)((bytes + HEAD - 1) / HEAD * HEAD)));
}

static uint32_t sum_of(const struct file_table *t, const void *record) {
    return (uint32_t)XXH3_64bits(record, (size_t)t->layout.bytes);
}

static int64_t place_of(const struct file_table *t, int64_t row) {
    return HEAD + row * t->layout.bytes;
}

/* --- the journal */

static int open_journal(struct row_file *f, uint64_t number, int flags, struct error *err) {
    char name[NAME];
    numbered(name, "journal", number);
    f->journal = openat(f->directory, name, O_RDWR | O_CLOEXEC | flags, 0600);
    f->journal_bytes = 0;
    return f->journal < 0 ? failed(f, name, "open", err) : 0;
}

static bool has_bit(const uint8_t *bits, int64_t row) {
    return bits[row / 8] & 1 << row % 8;
}

static void set_bit(uint8_t *bits, int64_t row) {
    bits[row / 8] |= (uint8_t)(1 << row % 8);
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

static int wait_for_sync(struct row_file *f, struct error *err) {
    if (f->num_syncing == 0) return 0;
    pthread_join(f->syncer, NULL);
    const int64_t count = f->num_syncing;
    f->num_syncing = 0;
    errno = f->sync_error;
    if (f->sync_error) return failed(f, "journal", "sync", err);
    grow_up(f, count);
    return 0;
}

static bool has_young(const struct file_table *t, const int64_t *rows, int64_t count) {
    int64_t i = 0;
    while (i < count && !has_bit(t->is_young, rows[i])) i++;
    return i < count;
}

/* The old contents of these rows are on the disk, before they are overwritten. */
static int sync_old(struct row_file *f, const struct file_table *t, const int64_t *rows,
                    int64_t count, struct error *err) {
    if (!has_young(t, rows, count)) return 0;
    if (wait_for_sync(f, err)) return -1;
    if (!has_young(t, rows, count)) return 0;
    if (fdatasync(f->journal)) return failed(f, "journal", "sync", err);
    grow_up(f, f->num_young);
    return 0;
}

static uint64_t entry_sum(const struct entry *e, const void *record) {
    return XXH3_64bits_withSeed(record, (size_t)e->bytes,
                                XXH3_64bits(&e->row, sizeof *e - offsetof(struct entry, row)));
}

/* Old contents of rows that the journal does not have yet. */
static int log_old(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
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
    if (write_at(f->journal, f->log, bytes, f->journal_bytes))
        return failed(f, "journal", "write", err);
    f->journal_bytes += (int64_t)bytes;
    f->counts.written += (int64_t)bytes;
    for (int64_t i = 0; i < count; i++) {
        if (has_bit(t->is_old, rows[i])) continue;
        set_bit(t->is_old, rows[i]);
        push_young(f, table, rows[i]);
    }
    return 0;
}

/* Reads the entry at that place, and its record. Returns its bytes; 0: none, or a torn one. */
static int64_t read_entry(const struct row_file *f, int64_t at, char *record, struct entry *e) {
    if (read_at(f->journal, e, sizeof *e, at) || e->table < 0 || e->table >= f->num_tables)
        return 0;
    const struct file_table *t = &f->tables[e->table];
    if (e->bytes != t->layout.bytes || e->row < 0 || e->row >= t->layout.shape.rows ||
        read_at(f->journal, record, (size_t)t->layout.bytes, at + (int64_t)sizeof *e) ||
        entry_sum(e, record) != e->sum)
        return 0;
    return (int64_t)sizeof *e + t->layout.bytes;
}

/* Puts back what the journal has. Its end may be torn: what was not synced was not overwritten. */
static int undo(struct row_file *f, struct error *err) {
    enum { AT_ONCE = 2048 };
    int64_t most = 0, count = 0, bytes = 1;
    int32_t table = 0; /* of the records at hand */
    int status = 0;
    for (int32_t i = 0; i < f->num_tables; i++) most = max64(most, f->tables[i].layout.bytes);
    char *records = block_alloc(AT_ONCE * most);
    struct io_request *requests = must_have(calloc(AT_ONCE, sizeof *requests));
    for (int64_t at = 0; bytes && status == 0;) {
        struct entry e;
        bytes = read_entry(f, at, records + count * most, &e);
        if (bytes && (count == 0 || e.table == table)) {
            table = e.table;
            requests[count] = (struct io_request){place_of(&f->tables[table], e.row),
                                                  records + count * most, (size_t)e.bytes};
            count++;
            at += bytes;
            if (count < AT_ONCE) continue;
        }
        status = io_write(f->io, f->tables[table].fd, f->tables[table].name, requests, count, err);
        count = 0;
    }
    free(requests);
    free(records);
    if (status) return -1;
    for (int32_t i = 0; i < f->num_tables; i++)
        if (fdatasync(f->tables[i].fd)) return failed(f, f->tables[i].name, "sync", err);
    return 0;
}

/* --- fetch and store */

static const struct io_request *requests_of(struct row_file *f, const struct file_table *t,
                                            const int64_t *rows, int64_t count, char *records) {
    if (f->most_requests < count) {
        f->most_requests = count;
        f->requests = must_have(realloc(f->requests, (size_t)count * sizeof *f->requests));
    }
    for (int64_t i = 0; i < count; i++)
        f->requests[i] = (struct io_request){place_of(t, rows[i]), records + i * t->layout.bytes,
                                             (size_t)t->layout.bytes};
    return f->requests;
}

static int usable(const struct row_file *f, struct error *err) {
    return f->broken ? fail(err, "%.300s: nothing more after an error; open it again", f->path) : 0;
}

static int read_records(struct row_file *f, struct file_table *t, const int64_t *rows,
                        int64_t count, char *records, struct error *err) {
    if (io_read(f->io, t->fd, t->name, requests_of(f, t, rows, count, records), count, err))
        return -1;
    f->counts.read += count * t->layout.bytes;
    for (int64_t i = 0; i < count; i++)
        if (sum_of(t, records + i * t->layout.bytes) != t->sums[rows[i]])
            return fail(err, "%.300s/%s: row %lld is damaged: its checksum differs", f->path,
                        t->name, (long long)rows[i]);
    return 0;
}

int row_file_fetch(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                   void *records, struct error *err) {
    if (usable(f, err) || read_records(f, &f->tables[table], rows, count, records, err)) return -1;
    f->counts.fetched += count;
    return log_old(f, table, rows, count, records, err);
}

/* Rows that stayed in memory over a commit: what they were then is only in the file. */
static int log_unknown(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                       struct error *err) {
    struct file_table *t = &f->tables[table];
    int64_t *unknown = must_have(malloc((size_t)count * sizeof *unknown + 1)), n = 0;
    for (int64_t i = 0; i < count; i++)
        if (!has_bit(t->is_old, rows[i])) unknown[n++] = rows[i];
    char *records = n ? block_alloc(n * t->layout.bytes) : NULL;
    const int status = n && (read_records(f, t, unknown, n, records, err) ||
                             log_old(f, table, unknown, n, records, err))
                           ? -1
                           : 0;
    free(records);
    free(unknown);
    return status;
}

int row_file_put(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                 const void *records, struct error *err) {
    struct file_table *t = &f->tables[table];
    if (usable(f, err) || log_unknown(f, table, rows, count, err)) return -1;
    if (sync_old(f, t, rows, count, err)) return -1;
    if (io_write(f->io, t->fd, t->name, requests_of(f, t, rows, count, (char *)records), count,
                 err)) {
        f->broken = true;
        return -1;
    }
    for (int64_t i = 0; i < count; i++)
        t->sums[rows[i]] = sum_of(t, (const char *)records + i * t->layout.bytes);
    f->counts.stored += count;
    f->counts.written += count * t->layout.bytes;
    return 0;
}

/* --- commits */

static int write_sums(struct row_file *f, uint64_t number, struct error *err) {
    char name[NAME];
    numbered(name, "sums", number);
    const int fd = openat(f->directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int64_t at = 0;
    int status = fd < 0 ? failed(f, name, "create", err) : 0;
    uint64_t sum = 0;
    for (int32_t i = 0; status == 0 && i < f->num_tables; i++) {
        const struct file_table *t = &f->tables[i];
        const size_t bytes = (size_t)t->layout.shape.rows * sizeof *t->sums;
        if (write_at(fd, t->sums, bytes, at)) status = failed(f, name, "write", err);
        sum = XXH3_64bits_withSeed(t->sums, bytes, sum);
        at += (int64_t)bytes;
    }
    if (status == 0 && (write_at(fd, &sum, sizeof sum, at) || fdatasync(fd)))
        status = failed(f, name, "write", err);
    f->counts.written += at;
    if (fd >= 0) close(fd);
    return status;
}

static int read_sums(struct row_file *f, struct error *err) {
    char name[NAME];
    numbered(name, "sums", f->commit.number);
    const int fd = openat(f->directory, name, O_RDONLY | O_CLOEXEC);
    int64_t at = 0;
    uint64_t sum = 0, said = 0;
    int status = fd < 0 ? failed(f, name, "open", err) : 0;
    for (int32_t i = 0; status == 0 && i < f->num_tables; i++) {
        struct file_table *t = &f->tables[i];
        const size_t bytes = (size_t)t->layout.shape.rows * sizeof *t->sums;
        if (read_at(fd, t->sums, bytes, at)) status = damaged(f, name, "is too short", err);
        sum = XXH3_64bits_withSeed(t->sums, bytes, sum);
        at += (int64_t)bytes;
    }
    if (status == 0 && (read_at(fd, &said, sizeof said, at) || said != sum))
        status = damaged(f, name, "is damaged: its checksum differs", err);
    if (fd >= 0) close(fd);
    return status;
}

static void remove_numbered(struct row_file *f, uint64_t number) {
    char name[NAME];
    numbered(name, "sums", number);
    unlinkat(f->directory, name, 0);
    numbered(name, "journal", number);
    unlinkat(f->directory, name, 0);
}

static int write_commit(struct row_file *f, const struct commit *c, struct error *err) {
    static const char part[] = "commit.part";
    const int fd = openat(f->directory, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int status = fd < 0 ? failed(f, part, "create", err) : 0;
    if (status == 0 && (write_at(fd, c, sizeof *c, 0) || fsync(fd)))
        status = failed(f, part, "write", err);
    if (fd >= 0) close(fd);
    if (status == 0 &&
        (renameat(f->directory, part, f->directory, "commit") || fsync(f->directory)))
        status = failed(f, "commit", "replace", err);
    return status;
}

int row_file_commit(struct row_file *f, uint64_t mark, struct error *err) {
    const uint64_t before = f->commit.number;
    struct commit c = {.number = before + 1, .mark = mark};
    if (usable(f, err) || wait_for_sync(f, err)) return -1;
    memcpy(c.magic, commit_magic, sizeof c.magic);
    c.sum = XXH3_64bits(&c, offsetof(struct commit, sum));
    for (int32_t i = 0; i < f->num_tables; i++)
        if (fdatasync(f->tables[i].fd)) return failed(f, f->tables[i].name, "sync", err);
    const int old = f->journal;
    int status = write_sums(f, c.number, err);
    if (status == 0) status = open_journal(f, c.number, O_CREAT | O_TRUNC, err);
    if (status == 0) status = write_commit(f, &c, err);
    if (old >= 0) close(old);
    f->broken =
        status != 0; /* what was made is taken away at the next opening, if it does not count */
    if (status) return -1;
    f->commit = c;
    f->counts.commits++;
    remove_numbered(f, before);
    grow_up(f, f->num_young);
    for (int32_t i = 0; i < f->num_tables; i++)
        memset(f->tables[i].is_old, 0, (size_t)f->tables[i].layout.shape.rows / 8 + 1);
    return 0;
}

uint64_t row_file_mark(const struct row_file *f) {
    return f->commit.mark;
}

struct store_counts row_file_counts(const struct row_file *f) {
    return f->counts;
}

/* --- opening */

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
    return t->fd < 0 ? failed(f, t->name, "open for reading and writing", err) : 0;
}

static int create_table(struct row_file *f, int32_t number, uint64_t seed, struct error *err) {
    struct file_table *t = &f->tables[number];
    const struct head h = head_of(t, number, seed);
    const int64_t at_once = max64(1, min64(t->layout.shape.rows, CHUNK / t->layout.bytes));
    char *block = block_alloc(max64(HEAD, at_once * t->layout.bytes));
    int status = open_table_file(f, t, O_CREAT | O_TRUNC, err);
    memset(block, 0, HEAD);
    memcpy(block, &h, sizeof h);
    if (status == 0 && write_at(t->fd, block, HEAD, 0)) status = failed(f, t->name, "write", err);
    for (int64_t row = 0; status == 0 && row < t->layout.shape.rows; row += at_once) {
        const int64_t count = min64(at_once, t->layout.shape.rows - row);
        status = record_initial(&t->layout, number, seed, row, count, block, err);
        for (int64_t i = 0; status == 0 && i < count; i++)
            t->sums[row + i] = sum_of(t, block + i * t->layout.bytes);
        if (status == 0 &&
            write_at(t->fd, block, (size_t)(count * t->layout.bytes), place_of(t, row)))
            status = failed(f, t->name, "write", err);
    }
    free(block);
    return status;
}

static int verify_table(struct row_file *f, int32_t number, uint64_t seed, struct error *err) {
    struct file_table *t = &f->tables[number];
    const struct head want = head_of(t, number, seed);
    struct head *h = (struct head *)block_alloc(HEAD);
    struct stat st;
    int status = open_table_file(f, t, 0, err);
    if (status == 0 && (read_at(t->fd, h, HEAD, 0) || memcmp(h->magic, magic, sizeof magic)))
        status = damaged(f, t->name, "is no file of rows", err);
    else if (status == 0 && h->version != VERSION)
        status = damaged(f, t->name, "was written by another version", err);
    else if (status == 0 && h->sum != XXH3_64bits(h, offsetof(struct head, sum)))
        status = damaged(f, t->name, "its head is damaged: its checksum differs", err);
    else if (status == 0 && memcmp(h, &want, sizeof want))
        status =
            fail(err,
                 "%.300s/%s: holds another table: %lld rows of %d, rule %s; wanted %lld rows "
                 "of %d, rule %s, with the same types and seed",
                 f->path, t->name, (long long)h->rows, (int)h->dim,
                 h->rule >= 0 && h->rule < RULE_COUNT ? rule_info_of((enum rule_kind)h->rule)->name
                                                      : "?",
                 (long long)want.rows, (int)want.dim, rule_info_of(t->layout.shape.rule)->name);
    else if (status == 0 && (fstat(t->fd, &st) || st.st_size < place_of(t, t->layout.shape.rows)))
        status = damaged(f, t->name, "is too short", err);
    free(h);
    return status;
}

static int read_commit(struct row_file *f, bool *is_new, struct error *err) {
    const int fd = openat(f->directory, "commit", O_RDONLY | O_CLOEXEC);
    *is_new = fd < 0 && errno == ENOENT;
    if (*is_new) return 0;
    if (fd < 0) return failed(f, "commit", "open", err);
    const int status = read_at(fd, &f->commit, sizeof f->commit, 0);
    close(fd);
    return status || memcmp(f->commit.magic, commit_magic, sizeof commit_magic) ||
                   f->commit.sum != XXH3_64bits(&f->commit, offsetof(struct commit, sum))
               ? damaged(f, "commit", "is damaged: its checksum differs", err)
               : 0;
}

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
    if (open_directory(f, err) || read_commit(f, &is_new, err)) return -1;
    for (int32_t i = 0; i < f->num_tables; i++)
        if (is_new ? create_table(f, i, s->seed, err) : verify_table(f, i, s->seed, err)) return -1;
    if (is_new) return row_file_commit(f, 0, err);
    if (read_sums(f, err) || open_journal(f, f->commit.number, O_CREAT, err)) return -1;
    /* The journal stays until the next commit. To put its records back once more, or older ones behind newer ones,
     * does no harm: all are of this commit. */
    if (undo(f, err)) return -1;
    /* Of a commit that did not end, or whose leftovers nobody has taken away. */
    remove_numbered(f, f->commit.number + 1);
    remove_numbered(f, f->commit.number - 1);
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
        numbered(t->name, "rows", (uint64_t)i);
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

enum io_engine row_file_engine(const struct row_file *f) {
    return io_engine(f->io);
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
    if (f) f->store.ops = &ops;
    return f ? &f->store : NULL;
}
