/* SPDX-License-Identifier: MIT
 *
 * All files of a command, or none: each is written as PATH.part, and gets its name when all are
 * whole. Until then what had the name before is untouched, so that a command may read it.
 */
#ifndef EMBFUSE_CLI_OUTPUTS_H
#define EMBFUSE_CLI_OUTPUTS_H

#include <stdio.h>

#include "harness/workload/npy.h"
#include "harness/error.h"

struct outputs {
    int count;
    char **part; /* [count] PATH.part */
};

/* Before long work: can files be made that begin with this prefix? flag is for the message. */
int outputs_check(const char *flag, const char *prefix, struct error *err);

/* Adds a file; the caller writes it under the name that is returned. NULL: err. */
const char *outputs_add(struct outputs *o, const char *path, struct error *err);

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err);

/* Adds a text file, open to be written until outputs_text_end. NULL: err. */
FILE *outputs_text(struct outputs *o, const char *path, struct error *err);
int outputs_text_end(FILE *file, const char *path, struct error *err);

/* Gives all files their names. On failure none keeps one, and what was there before is back. */
int outputs_commit(struct outputs *o, struct error *err);

/* Takes away what was not committed, or was replaced. */
void outputs_free(struct outputs *o);

#endif
