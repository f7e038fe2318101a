/* SPDX-License-Identifier: MIT
 *
 * Watches kernels on the PTX lane between counts_begin() and counts_end(), and writes what it counted
 * as JSON, one object per function and line.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Also counts by lines of the source. */
void counts_by_line(void);

void counts_begin(void);

/* labels: the begin of each object, "\"key\": \"value\", ...". */
void counts_end(FILE *out, const char *labels);

#ifdef __cplusplus
}
#endif
