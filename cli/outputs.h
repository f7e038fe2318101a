/* SPDX-License-Identifier: MIT
 *
 * Writes all files of a command, or none. Each file is written as PATH.part, and renamed when all
 * are complete. Until then the old files stay, so that the command may read them.
 */
#pragma once

#include <limits.h>
#include <stdio.h>

#include "harness/workload/npy.h"
#include "harness/error.h"

/* PREFIX.NAME */
struct path {
    char text[PATH_MAX];
};

static inline struct path path_of(const char *prefix, const char *name) {
    struct path p;
    snprintf(p.text, sizeof p.text, "%s.%s", prefix, name);
    return p;
}

struct outputs {
    int count;
    char **part; /* [count] PATH.part */
};

/* For use before long work: fails if files with this prefix cannot be made. flag is for err. */
int outputs_check(const char *flag, const char *prefix, struct error *err);

/* Adds a file; the caller writes it under the returned name. NULL: err. */
const char *outputs_add(struct outputs *o, const char *path, struct error *err);

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err);

/* Adds a text file and opens it; file_end() closes it. NULL: err. */
FILE *outputs_text(struct outputs *o, const char *path, struct error *err);

/* Gives all files their names. If one fails, puts the old files back. */
int outputs_commit(struct outputs *o, struct error *err);

/* Deletes files that were not committed, and files that were replaced. */
void outputs_free(struct outputs *o);
