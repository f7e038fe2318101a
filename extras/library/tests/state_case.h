/* SPDX-License-Identifier: MIT
 *
 * Models with arrays of any content, on the host or on a device, and steps that they take; files
 * of saved states.
 */
#pragma once

#include <stdbool.h>

#include "extras/library/embfuse.h"
#include "tests/support/work_files.h"

enum { STATE_ARRAYS = 5 };

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
    int64_t bags, length;                       /* lookups of a bag at most; 12 and 6 */
    int64_t *ids, *offsets;
    float *grad;
    struct embfuse_batch batch; /* that was drawn */
};

/* A model of these tables, each read by one feature. gap: bytes between the rows of each array; on
 * a device a multiple of 16. All arrays are bound, and every byte is random. Ends the program if
 * that fails. */
void state_case_open(struct state_case *c, const struct embfuse_table *tables, int32_t num_tables,
                     const struct embfuse_options *options, int64_t gap, uint64_t seed);
void state_case_free(struct state_case *c);

/* Every byte of every row becomes random. */
void state_case_scramble(struct state_case *c, uint64_t seed);

/* A new table: weights from -1 to 1, states as the rule says. */
void state_case_begin(struct state_case *c, uint64_t seed);

/* Batch n with its gradient: some rows often, the last eighth never, and bags without lookups. */
void state_case_draw(struct state_case *c, uint64_t n);
/* The step with what was drawn. */
void state_case_take(struct state_case *c);

/* NULL: all rows have the same bits in both, as have hyper-parameters, steps and seed, and nobody
 * wrote between rows; otherwise what differs. */
const char *state_case_differs(struct state_case *a, struct state_case *b);

/* $BUILD/tests/state/NAME/model.safetensors; the folder is empty. */
struct work_path state_file(const char *name);

/* The content of a file, on the heap. */
unsigned char *state_contents(const char *path, size_t *size);
