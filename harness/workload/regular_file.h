/* SPDX-License-Identifier: MIT
 *
 * Opens files that users name, if they are regular. A pipe may never end or never begin, and a
 * device such as /dev/zero never ends; the function refuses both before it reads a byte.
 */
#ifndef EMBFUSE_REGULAR_FILE_H
#define EMBFUSE_REGULAR_FILE_H

#include <stdint.h>

#include "harness/error.h"

/* Opens for reading. Returns the descriptor, with the size in bytes in *size; -1: err. */
int regular_file_open(const char *path, int64_t *size, struct error *err);

#endif
