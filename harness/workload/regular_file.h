/* SPDX-License-Identifier: MIT
 *
 * Opens files that users name, if they are regular. A pipe may never end or never begin, and a
 * device such as /dev/zero never ends; the function refuses both before it reads a byte.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/error.h"

/* The content of a file of less than `most` bytes, on the heap. what it should be is for the message.
 * NULL: err, and errno: 0 if the file is no such file. */
char *regular_file_text(const char *path, size_t most, const char *what, size_t *size,
                        struct error *err);

/* Closes a file that was written. Fails if not all of it arrived. */
int file_end(FILE *file, const char *path, struct error *err);

/* Opens for reading. Returns the descriptor, with the size in bytes in *size; -1: err, and errno: 0 if it is no
 * regular file. */
int regular_file_open(const char *path, int64_t *size, struct error *err);
