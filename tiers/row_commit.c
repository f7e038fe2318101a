/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "tiers/row_file_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[8] = "EMBCOMM";

static int write_sums(struct row_file *f, uint64_t number, struct error *err) {
    char name[ROW_FILE_NAME];
    row_file_numbered(name, "sums", number);
    const int fd = openat(f->directory, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int64_t at = 0;
    int status = fd < 0 ? row_file_failed(f, name, "create", err) : 0;
    uint64_t sum = 0;
    for (int32_t i = 0; status == 0 && i < f->num_tables; i++) {
        const struct file_table *t = &f->tables[i];
        const size_t bytes = (size_t)t->layout.shape.rows * sizeof *t->sums;
        if (row_file_write_at(fd, t->sums, bytes, at))
            status = row_file_failed(f, name, "write", err);
        sum = XXH3_64bits_withSeed(t->sums, bytes, sum);
        at += (int64_t)bytes;
    }
    if (status == 0 && (row_file_write_at(fd, &sum, sizeof sum, at) || fdatasync(fd)))
        status = row_file_failed(f, name, "write", err);
    f->counts.written += at;
    if (fd >= 0) close(fd);
    return status;
}

int row_commit_read_sums(struct row_file *f, struct error *err) {
    char name[ROW_FILE_NAME];
    row_file_numbered(name, "sums", f->commit.number);
    const int fd = openat(f->directory, name, O_RDONLY | O_CLOEXEC);
    int64_t at = 0;
    uint64_t sum = 0, said = 0;
    int status = fd < 0 ? row_file_failed(f, name, "open", err) : 0;
    for (int32_t i = 0; status == 0 && i < f->num_tables; i++) {
        struct file_table *t = &f->tables[i];
        const size_t bytes = (size_t)t->layout.shape.rows * sizeof *t->sums;
        if (row_file_read_at(fd, t->sums, bytes, at))
            status = row_file_unread(f, name, "is too short", err);
        sum = XXH3_64bits_withSeed(t->sums, bytes, sum);
        at += (int64_t)bytes;
    }
    if (status == 0 && row_file_read_at(fd, &said, sizeof said, at))
        status = row_file_unread(f, name, "is too short", err);
    if (status == 0 && said != sum)
        status = row_file_damaged(f, name, "is damaged: its checksum differs", err);
    if (fd >= 0) close(fd);
    return status;
}

void row_commit_remove(struct row_file *f, uint64_t number) {
    char name[ROW_FILE_NAME];
    row_file_numbered(name, "sums", number);
    unlinkat(f->directory, name, 0);
    row_file_numbered(name, "journal", number);
    unlinkat(f->directory, name, 0);
}

static int write_commit(struct row_file *f, const struct commit *c, struct error *err) {
    static const char part[] = "commit.part";
    const int fd = openat(f->directory, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int status = fd < 0 ? row_file_failed(f, part, "create", err) : 0;
    if (status == 0 && (row_file_write_at(fd, c, sizeof *c, 0) || fsync(fd)))
        status = row_file_failed(f, part, "write", err);
    if (fd >= 0) close(fd);
    if (status == 0 &&
        (renameat(f->directory, part, f->directory, "commit") || fsync(f->directory)))
        status = row_file_failed(f, "commit", "replace", err);
    return status;
}

/* Checksums of a second or later commit say that there was one: rows would be overwritten by initial values. */
static int none_was_there(struct row_file *f, struct error *err) {
    unsigned long long number;
    bool is_fine = true;
    const int fd = openat(f->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        row_file_failed(f, ".", "list", err);
        if (fd >= 0) close(fd);
        return -1;
    }
    for (struct dirent *e = readdir(folder); e; e = readdir(folder))
        is_fine &= sscanf(e->d_name, "sums.%llu", &number) != 1 || number < 2;
    closedir(folder);
    return is_fine ? 0 : row_file_damaged(f, "commit", "is missing, and rows are there", err);
}

int row_commit_read(struct row_file *f, bool *is_new, struct error *err) {
    const int fd = openat(f->directory, "commit", O_RDONLY | O_CLOEXEC);
    *is_new = fd < 0 && errno == ENOENT;
    if (*is_new) return none_was_there(f, err);
    if (fd < 0) return row_file_failed(f, "commit", "open", err);
    const int status = row_file_read_at(fd, &f->commit, sizeof f->commit, 0)
                           ? row_file_unread(f, "commit", "is too short", err)
                           : 0;
    close(fd);
    if (status) return -1;
    return memcmp(f->commit.magic, magic, sizeof magic) ||
                   f->commit.sum != XXH3_64bits(&f->commit, offsetof(struct commit, sum))
               ? row_file_damaged(f, "commit", "is damaged: its checksum differs", err)
               : 0;
}

int row_file_commit(struct row_file *f, uint64_t mark, struct error *err) {
    const uint64_t before = f->commit.number;
    struct commit c = {.number = before + 1, .mark = mark};
    if (row_file_usable(f, err) || row_journal_wait(f, err)) return -1;
    memcpy(c.magic, magic, sizeof c.magic);
    c.sum = XXH3_64bits(&c, offsetof(struct commit, sum));
    for (int32_t i = 0; i < f->num_tables; i++)
        if (fdatasync(f->tables[i].fd)) return row_file_failed(f, f->tables[i].name, "sync", err);
    int status = write_sums(f, c.number, err);
    if (f->journal >= 0) close(f->journal);
    f->journal = -1;
    if (status == 0) status = row_journal_open(f, c.number, O_CREAT | O_TRUNC, err);
    if (status == 0) status = write_commit(f, &c, err);
    /* What was made is taken away at the next opening, if it does not count. */
    f->broken = status != 0;
    if (status) return -1;
    f->commit = c;
    f->counts.commits++;
    row_commit_remove(f, before);
    row_journal_forget(f);
    return 0;
}

uint64_t row_file_mark(const struct row_file *f) {
    return f->commit.mark;
}
