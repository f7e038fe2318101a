/* SPDX-License-Identifier: MIT
 *
 * The state of a model in a safetensors file; extras/library/README.md has the format.
 *
 *     state_header.c   the header: JSON
 *     state_file.c     the file: written aside and renamed, or opened and verified
 *     state_save.c     embfuse_save() and embfuse_load()
 *
 * Ranks write and read the same files: extras/ranks/checkpoint.c.
 */
#pragma once

#include <limits.h>
#include <stdio.h>
#include <xxhash.h>

#include "harness/workload/tables.h"
#include "extras/library/model.h"

enum {
    STATE_VERSION = 2,            /* version 1 was a folder with a manifest */
    STATE_HEADER_MAX = 100000000, /* bytes of a header, as the safetensors library has it */
    STATE_CHUNK = 4 << 20,        /* bytes that are read or written at once, but at least a row */
};

typedef char state_sum[17]; /* XXH3-64 with seed 0, as 16 hexadecimal digits */

static inline void state_sum_print(state_sum text, uint64_t sum) {
    snprintf(text, sizeof(state_sum), "%016llx", (unsigned long long)sum);
}

struct state_table {
    struct rule rule;
    int64_t steps;
    struct array_in_file {
        int64_t at, bytes; /* at: from the end of the header; bytes 0: there is no such array */
        state_sum xxh3;
    } array[TABLE_ARRAYS];
};

struct state {
    const struct table_shape *shapes; /* [num_tables] of the model, not owned */
    int32_t num_tables;
    uint64_t seed; /* of stochastic rounding */
    struct state_table *tables;
    int64_t begin; /* bytes before the arrays */
};

static inline int64_t state_row_bytes(const struct table_shape *shape, int array) {
    return table_array_width(shape, array) * dtype_bytes(table_array_type(shape, array));
}

/* Allocates s->tables, with rules of presets. Returns 0 or EMBFUSE_NO_MEMORY. */
int state_tables(struct state *s, struct embfuse_error *why);

/* Returns a header without the eight bytes that hold its length, on the heap. NULL: out of memory. */
char *state_header_print(const struct state *s, size_t *size);

/* Reads a header before data_bytes of arrays into seed and tables. Returns 0, EMBFUSE_FILE_ERROR (it is damaged, or no
 * state), EMBFUSE_REFUSED (it is of another model or version) or EMBFUSE_NO_MEMORY. */
int state_header_read(const char *path, const char *text, size_t size, int64_t data_bytes,
                      struct state *s, struct embfuse_error *why);

struct state_file {
    const char *path;
    struct embfuse_error *why;
    bool saves;
    int fd;                          /* -1: not open */
    int folder;                      /* of a save, otherwise -1 */
    char name[NAME_MAX + 1];         /* of a save: in the folder, with ".part" */
    XXH3_state_t *sum[TABLE_ARRAYS]; /* of the rows that have passed */
};

/* Opens a state and reads its header; s has the model's shapes. Returns as state_header_read(). */
int state_open(struct state_file *f, const char *path, struct state *s, struct embfuse_error *why);

/* Begins a save: checks what the path names so far, and creates a file of another name. s has all but where arrays lie,
 * and their checksums. */
int state_create(struct state_file *f, const char *path, struct state *s,
                 struct embfuse_error *why);

/* Writes the next `count` rows of an array, or reads them. The first call of each array has first = 0. The last one
 * takes the checksum, or compares it. */
int state_rows(const struct state_file *f, struct state *s, int32_t table, int array, int64_t first,
               int64_t count, void *rows);

/* The same for the whole array. array NULL: the file is only verified. */
int state_array(const struct state_file *f, struct state *s, int32_t table, int a,
                enum backend place, const struct array *array);

/* Writes or reads bytes anywhere. */
int state_bytes(const struct state_file *f, void *bytes, int64_t size, int64_t at);

/* To be called after state_open() and state_create() in any case; also frees s->tables. status: of all calls so far. A
 * save with status 0 writes the header, and the file gets its name; otherwise it is removed. Returns the status. */
int state_close(struct state_file *f, struct state *s, int status);
