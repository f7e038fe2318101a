/* SPDX-License-Identifier: MIT
 *
 * Files that users name: only regular ones. A pipe may never end or never begin, and a device such
 * as /dev/zero never ends; both are refused before the first byte is read.
 */
#ifndef EMBFUSE_REGULAR_FILE_H
#define EMBFUSE_REGULAR_FILE_H

#include <stdint.h>

#include "harness/error.h"

/* Opens for reading. Returns the descriptor, with the size in bytes in *size; -1: err. */
int regular_file_open(const char *path, int64_t *size, struct error *err);

#endif
