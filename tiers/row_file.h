/* SPDX-License-Identifier: MIT
 *
 * Tables on a disk, that are read and written row by row: a directory with a file for each table. A record is a row with
 * its weights and all of its states, so that they move together; it begins at a multiple of RECORD_BLOCK bytes, as
 * direct I/O wants.
 *
 *   rows.T     a head, then the records of table T
 *   sums.N     checksums of all records at commit N
 *   journal.N  what records were at commit N, before they changed
 *   commit     N, the mark of the caller, and a checksum. One rename replaces it
 *
 * Whoever dies at any moment loses what came after the last commit, and nothing else: before a record is overwritten, its
 * old content is in the journal and synced; the next one that opens the directory puts it back (undo logging, as in Gray
 * and Reuter, Transaction Processing, 1993). A record goes into the journal when it is fetched, since it is in memory
 * then: that is a sequential write of as many bytes, and no read. Rows that stay in memory over a commit are read again
 * when they are stored.
 *
 * One process holds the directory (flock). Checksums of 32 bits of each record are compared when it is fetched; they and
 * a bit for each row are in memory.
 *
 * Functions return 0, or -1 and fill err. After an error of a put, a commit or a write of the journal, nothing can be
 * fetched, stored or committed: the state of the last commit is what the next one finds.
 */
#pragma once

#include "tiers/io.h"
#include "tiers/store.h"

struct row_file;

struct row_file *row_file_open(const struct store_setup *s, struct error *err);
/* What is not committed is undone at the next opening. */
void row_file_close(struct row_file *f);

bool row_file_is_direct(const struct row_file *f);

/* Records of [count] distinct rows; records: [count] one behind the other, aligned to RECORD_BLOCK. To put a row that
 * was not fetched after the last commit costs a read. */
int row_file_fetch(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                   void *records, struct error *err);
int row_file_put(struct row_file *f, int32_t table, const int64_t *rows, int64_t count,
                 const void *records, struct error *err);

/* Starts to sync the journal, and returns: a put() that comes later waits less. Nobody must call it. */
void row_file_put_soon(struct row_file *f);

/* From here on this is what the next one finds, with that mark. */
int row_file_commit(struct row_file *f, uint64_t mark, struct error *err);
/* The mark of the last commit; 0: a new one. */
uint64_t row_file_mark(const struct row_file *f);

struct store_counts row_file_counts(const struct row_file *f);
/* Bytes of memory: checksums, and what the journal has. */
int64_t row_file_memory(const struct row_file *f);
