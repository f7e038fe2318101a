/* SPDX-License-Identifier: MIT
 *
 * Files with the rows of a run: made new in a directory, and removed when their store is closed. Nothing in them lasts, so
 * files that are there already are refused: their run goes on, or it was killed.
 *
 * Functions return -1 and fill err.
 */
#pragma once

#include <limits.h>
#include <stdint.h>

#include "harness/error.h"

enum { RUN_FILE_PATH = 350 };

struct run_files {
    char path[PATH_MAX]; /* of the directory */
    int directory;
    int32_t files; /* made so far: rows.0, rows.1, .. */
};

/* Makes the directory if it is not there. */
int run_files_open(struct run_files *s, const char *directory, struct error *err);
/* Makes the next file, fills its path for messages, and returns its descriptor. */
int run_files_create(struct run_files *s, char path[RUN_FILE_PATH], struct error *err);
/* Removes the files. */
void run_files_close(struct run_files *s);
