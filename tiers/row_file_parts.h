/* SPDX-License-Identifier: MIT
 *
 * What the files of row_file.h share: row_file.c fetches, stores and opens, row_tables.c has the files of rows,
 * row_journal.c the journal, row_commit.c the commit and the checksums.
 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>

#include "tiers/row_file.h"

enum { ROW_FILE_HEAD = 4096, ROW_FILE_NAME = 40 }; /* bytes */

struct commit {
    char magic[8];
    uint64_t number, mark, sum;
};

struct file_table {
    struct record layout;
    int fd;
    char name[ROW_FILE_NAME];
    char path[301 + ROW_FILE_NAME]; /* for messages */
    uint32_t *sums;                 /* [rows] */
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
    char journal_name[ROW_FILE_NAME];
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

/* Fills err with the name, what cannot be done, and errno. Nothing can be done after it. */
int row_file_failed(struct row_file *f, const char *name, const char *what, struct error *err);
int row_file_damaged(const struct row_file *f, const char *name, const char *what,
                     struct error *err);
/* The same for a file that could not be read: what, if it ends too soon (errno 0). */
int row_file_unread(struct row_file *f, const char *name, const char *what, struct error *err);

/* Fails after an error that nothing may follow. */
int row_file_usable(const struct row_file *f, struct error *err);

/* All bytes, or -1 and errno. Reads: errno 0 if the file ends before. */
int row_file_write_at(int fd, const void *data, size_t bytes, int64_t at);
int row_file_read_at(int fd, void *data, size_t bytes, int64_t at);

/* KIND.NUMBER */
void row_file_numbered(char name[ROW_FILE_NAME], const char *kind, uint64_t number);

/* For direct I/O. */
char *row_file_block(int64_t bytes);

uint32_t row_file_sum(const struct file_table *t, const void *record);
int64_t row_file_place(const struct file_table *t, int64_t row);

/* A new file with initial values, or one that is there. */
int row_table_create(struct row_file *f, int32_t number, uint64_t seed, struct error *err);
int row_table_verify(struct row_file *f, int32_t number, uint64_t seed, struct error *err);

int row_journal_open(struct row_file *f, uint64_t number, int flags, struct error *err);
/* The journal has what the row was at the commit. */
bool row_journal_has(const struct file_table *t, int64_t row);
/* Old contents of rows that the journal does not have yet. */
int row_journal_log(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                    const char *records, struct error *err);
/* The old contents of these rows are on the disk, before they are overwritten. */
int row_journal_sync(struct row_file *f, const struct file_table *t, const int64_t *rows,
                     int64_t count, struct error *err);
/* Waits for the thread that syncs, if there is one. */
int row_journal_wait(struct row_file *f, struct error *err);
/* Puts back what the journal has. */
int row_journal_undo(struct row_file *f, struct error *err);
/* The journal is a new one. */
void row_journal_forget(struct row_file *f);

/* *is_new: there is none, and nothing that a commit leaves behind. */
int row_commit_read(struct row_file *f, bool *is_new, struct error *err);
int row_commit_read_sums(struct row_file *f, struct error *err);
/* Takes the files of that commit away. */
void row_commit_remove(struct row_file *f, uint64_t number);
