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

/* Fails if files with this prefix cannot be made; callers ask before long work. flag is for err. */
int outputs_check(const char *flag, const char *prefix, struct error *err);

/* Adds a file; the caller writes it under the returned name. NULL: err. */
const char *outputs_add(struct outputs *o, const char *path, struct error *err);

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err);

/* Adds a text file and opens it; file_end() closes it. NULL: err. */
FILE *outputs_text(struct outputs *o, const char *path, struct error *err);

/* With status 0, gives all files their names; if one fails, puts the old files back. With another status, deletes them.
 * Returns that status, or -1. */
int outputs_end(struct outputs *o, int status, struct error *err);
