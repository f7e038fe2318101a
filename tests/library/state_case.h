/* SPDX-License-Identifier: MIT
 *
 * Models with arrays of any content, on the host or on a device, for tests of embfuse_save() and embfuse_load().
 */
#pragma once

#include <stdbool.h>

#include "include/embfuse.h"
#include "tests/support/work_files.h"

enum { STATE_ARRAYS = 5, STATE_BAGS = 12, STATE_LENGTH = 6 };

struct state_array {
    int64_t stride, row_bytes, rows;
    unsigned char *data; /* [rows][stride] in host memory; what is between rows has a pattern */
    void *device;        /* the model's array, if it is on a device */
};

struct state_case {
    struct embfuse_table *tables;
    int32_t num_tables;
    struct embfuse_options options;
    struct embfuse_model *model;
    struct state_array (*arrays)[STATE_ARRAYS]; /* [num_tables] */
};

/* A model of these tables, each read by one feature. gap: bytes between the rows of each array; on a device a
 * multiple of 16. All arrays are bound, and every byte is random. Ends the program if that fails. */
void state_case_open(struct state_case *c, const struct embfuse_table *tables, int32_t num_tables,
                     const struct embfuse_options *options, int64_t gap, uint64_t seed);
void state_case_free(struct state_case *c);

/* Every byte of every row becomes random. */
void state_case_scramble(struct state_case *c, uint64_t seed);

/* A new table: weights from -1 to 1, states as the rule says. */
void state_case_begin(struct state_case *c, uint64_t seed);

/* Takes step number n, whose batch and gradient depend only on n. */
void state_case_step(struct state_case *c, uint64_t n);

/* NULL: all rows have the same bits in both, as have hyper-parameters, steps and seed, and nobody wrote between rows;
 * otherwise what differs. */
const char *state_case_differs(struct state_case *a, struct state_case *b);

/* An empty folder $BUILD/tests/state/NAME; and one that is gone. */
struct work_path state_folder(const char *name);
struct work_path state_no_folder(const char *name);

/* Is there such a file or folder? name: below the folder. */
bool state_exists(const struct work_path *folder, const char *name);

/* The content of a file, on the heap. */
unsigned char *state_contents(const char *path, size_t *size);
