/* SPDX-License-Identifier: MIT
 *
 * All files of a command, or none: each is written as PATH.part, and gets its name when all are
 * whole.
 */
#ifndef EMBFUSE_CLI_OUTPUTS_H
#define EMBFUSE_CLI_OUTPUTS_H

#include "datasets/npy.h"
#include "harness/error.h"

struct outputs {
    int count;
    char **part; /* [count] PATH.part */
};

/* Before long work: can files be made that begin with this prefix? */
int outputs_check(const char *prefix, struct error *err);

/* Adds a file; the caller writes it under the name that is returned. NULL: err. */
const char *outputs_add(struct outputs *o, const char *path, struct error *err);

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err);

/* Gives all files their names. On failure none keeps one. */
int outputs_commit(struct outputs *o, struct error *err);

/* Takes away what was not committed. */
void outputs_free(struct outputs *o);

#endif
