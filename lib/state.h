/* SPDX-License-Identifier: MIT
 *
 * The state of a model in files; lib/README.md has the format.
 *
 *     state_text.c   the manifest
 *     state_rows.c   rows between a model's arrays and a buffer
 *     state_save.c   writes
 *     state_load.c   finds, verifies and reads
 */
#pragma once

#include "lib/model.h"

enum {
    STATE_VERSION = 1,
    STATE_TEXT_MAX = 1 << 26, /* bytes of a manifest; about 60,000 tables */
    STATE_NAME = 40,
    STATE_CHUNK = 4 << 20, /* bytes that are read or written at once, but at least a row */
};
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

struct state_rows {
    enum backend place;
    struct array array;
    int64_t row_bytes, rows;
    int64_t at_once; /* rows that the buffer holds */
    char *buffer;    /* [at_once][row_bytes] */
    char *span;      /* on a device whose rows are apart: rows and what is between them */
};

/* Returns 0 or EMBFUSE_NO_MEMORY; state_rows_close() in any case. */
int state_rows_open(struct state_rows *r, const struct embfuse_model *m, int32_t table, int array,
                    struct embfuse_error *why);
void state_rows_close(struct state_rows *r);

/* Copies `count` rows from `first` on to the buffer, or from it. What lies between rows keeps its bits. Returns
 * 0 or EMBFUSE_DEVICE_ERROR. */
int state_rows_get(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why);
int state_rows_put(struct state_rows *r, int64_t first, int64_t count, struct embfuse_error *why);

/* --- states in a directory: the folders state-00000001, state-00000002 ... */

/* The name of a state's folder. */
void state_name(char name[STATE_NAME], int64_t number, const char *end);

/* The numbers of the states in a directory, newest first, on the heap. part: of those that were not
 * finished. Returns 0, EMBFUSE_FILE_ERROR or EMBFUSE_NO_MEMORY. */
int state_list(int directory, const char *path, bool part, int64_t **numbers, int32_t *count,
               struct embfuse_error *why);

/* Reads the manifest of a state. Returns as state_text_read(). */
int state_manifest(const char *directory, int64_t number, struct state *out,
                   struct embfuse_error *why);
