/* SPDX-License-Identifier: MIT
 *
 * The state of a model in files; extras/library/README.md has the format.
 *
 *     state_text.c    the manifest
 *     state_rows.c    rows between arrays, a buffer and a file
 *     state_write.c   folders and files of a save
 *     state_read.c    finds states, verifies and reads their files
 *     state_save.c    embfuse_save()
 *     state_load.c    embfuse_load()
 *
 * A program with several ranks writes and reads the same files: state_out_rows() takes rows a part at a time.
 */
#pragma once

#include <limits.h>
#include <xxhash.h>

#include "harness/workload/tables.h"
#include "extras/library/model.h"

enum {
    STATE_VERSION = 1,
    STATE_TEXT_MAX = 1 << 26, /* bytes of a manifest; about 60,000 tables */
    STATE_NAME = 40,
    STATE_CHUNK = 4 << 20, /* bytes that are read or written at once, but at least a row */
};
/* A status of this header alone. Whatever the file holds, this process cannot read it; a file that is missing or cut
 * short is damaged, an EMBFUSE_FILE_ERROR. */
enum { STATE_UNREADABLE = 100 };
#define STATE_MANIFEST "manifest"
#define STATE_PART     ".part" /* the end of a folder's name until it is whole */

/* --- the manifest */

struct state_table {
    struct table_shape shape; /* rows, dim, rule, types and rounding */
    struct rule rule;
    int64_t steps;
    struct state_file {
        int64_t bytes;
        uint64_t xxh3;
    } file[TABLE_ARRAYS];
};

struct state {
    uint64_t seed; /* of stochastic rounding */
    int32_t num_tables;
    struct state_table *tables;
};

/* The text, on the heap. NULL: out of memory. */
char *state_text_print(const struct state *s, size_t *size);

/* Reads a text of that size. path is for messages. Returns 0 (the caller frees out->tables), or
 * EMBFUSE_FILE_ERROR (it is damaged), EMBFUSE_REFUSED (another version) or EMBFUSE_NO_MEMORY, with err. */
int state_text_read(const char *path, const char *text, size_t size, struct state *out,
                    struct error *err);

/* --- rows */

/* Where rows lie in a file of an array: row i is row first + i*step there, and of that row `bytes` bytes from
 * `skip` on. */
struct state_part {
    int64_t first, step, skip, bytes;
    int64_t row_bytes; /* of a row of the file */
};

/* All of the file. */
struct state_part state_whole(const struct table_shape *shape, int array);

struct state_rows {
    enum backend place;
    struct array array; /* [rows] of part.bytes each */
    struct state_part part;
    int64_t rows;
    int64_t at_once; /* rows that the buffer holds */
    char *buffer;    /* [at_once][part.bytes] */
    char *span;      /* on a device whose rows are apart: rows and what is between them */
};

/* Returns 0 or EMBFUSE_NO_MEMORY; state_rows_close() in any case. */
int state_rows_open(struct state_rows *r, enum backend place, const struct array *array,
                    const struct state_part *part, int64_t rows, struct embfuse_error *why);
void state_rows_close(struct state_rows *r);

/* Copies `count` rows from `first` on to the buffer, or from it. What lies between rows keeps its bits. Returns
 * 0 or EMBFUSE_DEVICE_ERROR. */
int state_rows_get(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why);
int state_rows_put(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why);

/* Writes the buffer to the places of rows first .. first+count-1 in a file whose rows begin at byte `begin`, or
 * reads it from there. Return 0, or -1 with errno; errno 0: the file ended. */
int state_rows_write(const struct state_rows *r, int fd, int64_t begin, int64_t first,
                     int64_t count);
int state_rows_read(const struct state_rows *r, int fd, int64_t begin, int64_t first,
                    int64_t count);

/* The same for plain bytes at `at`. */
int state_bytes_write(int fd, const char *bytes, size_t size, int64_t at);
int state_bytes_read(int fd, char *bytes, size_t size, int64_t at);

/* --- states in a directory: the folders state-00000001, state-00000002 ... */

/* The name of a state's folder, and its path. The latter returns 0 or EMBFUSE_FILE_ERROR. */
void state_name(char name[STATE_NAME], int64_t number, const char *end);
int state_path(char path[PATH_MAX], const char *directory, int64_t number, const char *end,
               struct embfuse_error *why);

/* The numbers of the states in a directory, newest first, on the heap. part: of those that were not
 * finished. Both return 0, EMBFUSE_FILE_ERROR or EMBFUSE_NO_MEMORY. */
int state_list(int directory, const char *path, bool part, int64_t **numbers, int32_t *count,
               struct embfuse_error *why);
int state_list_path(const char *path, int64_t **numbers, int32_t *count, struct embfuse_error *why);

/* Calls verify() for these states until one is whole. It returns 0 (whole), EMBFUSE_FILE_ERROR (damaged: the next one is
 * tried), or another status, which ends the search: what comes after would be an old state that nobody asked
 * for. Fills *is. Returns EMBFUSE_FILE_ERROR for STATE_UNREADABLE. */
int state_newest(const char *directory, const int64_t *numbers, int32_t count,
                 int (*verify)(void *ctx, int64_t number, struct embfuse_error *why), void *ctx,
                 struct embfuse_loaded *is, struct embfuse_error *why);

/* Reads the manifest of a folder. Returns as state_text_read(), or STATE_UNREADABLE. */
int state_manifest(const char *folder, struct state *out, struct embfuse_error *why);

/* 0, or EMBFUSE_REFUSED: tables of these shapes cannot take the state. */
int state_fits(const char *folder, const struct state *s, const struct table_shape *shapes,
               int32_t num_tables, struct embfuse_error *why);

/* Reads the file of an array, whose size and head must be those of the manifest, into rows; NULL: all of it, into no
 * array. sum: receives its checksum, if rows are all of it; or NULL. Returns 0, EMBFUSE_FILE_ERROR,
 * STATE_UNREADABLE, EMBFUSE_NO_MEMORY or EMBFUSE_DEVICE_ERROR. */
int state_read(const char *folder, const struct state *s, int32_t table, int array,
               struct state_rows *rows, uint64_t *sum, struct embfuse_error *why);

/* The same for all of a file; another checksum than that of the manifest is a FILE_ERROR. */
int state_verify(const char *folder, const struct state *s, int32_t table, int array,
                 struct state_rows *rows, struct embfuse_error *why);

/* --- a save: begin makes a folder, files are written to it, end commits it. */

struct state_save {
    const char *path;    /* of the directory */
    int directory, part; /* open, or -1 */
    char name[STATE_NAME], part_name[STATE_NAME];
    int64_t number;
    struct embfuse_error *why;
};

/* EMBFUSE_REFUSED: the directory has a state that tables of these shapes cannot take. */
int state_save_begin(struct state_save *s, const char *path, const struct table_shape *shapes,
                     int32_t num_tables, struct embfuse_error *why);

/* status: of all that was written. 0: writes the manifest and commits; otherwise, and if that fails, the folder is
 * removed. Closes both folders in any case. Returns the status. */
int state_save_end(struct state_save *s, const struct state *state, int status);

/* The bytes of an array's file. */
int64_t state_file_bytes(const struct table_shape *shape, int array);

/* An array's file of a save. */
struct state_out {
    char name[TABLE_FILE_NAME];
    int fd;        /* or -1 */
    int64_t begin; /* where its rows begin */
};

/* Creates the file, and writes its head. sum begins with the head. state_out_end() in any case, which syncs the file if
 * status is 0, and returns the status. */
int state_out_open(const struct state_save *s, const struct state *state, int32_t table, int array,
                   XXH3_state_t *sum, struct state_out *out);
int state_out_rows(const struct state_save *s, const struct state_out *out, struct state_rows *rows,
                   XXH3_state_t *sum);
int state_out_end(const struct state_save *s, const struct state_out *out, int status);
