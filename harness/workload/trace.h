/* SPDX-License-Identifier: MIT
 *
 * Recorded id streams, in their real order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "harness/error.h"

/* One feature: CSR over bags. */
struct trace {
    int64_t bags;
    int64_t lookups;
    int64_t rows;     /* largest id + 1 */
    int64_t *offsets; /* [bags + 1] */
    int64_t *ids;     /* [lookups] */
};

/* True if the path, or the first of a list joined by commas, is named like a trace. */
bool trace_is_named(const char *path);

/* Reads one of
 *   *.txt, *.txt.gz   one bag a line, non-negative decimal ids separated by blanks (FIMI layout);
 *                     an empty line is an empty bag
 *   PREFIX.ids.npy    int32 or int64 [lookups], with PREFIX.offsets.npy, int32 or int64 [bags + 1]:
 *                     bag b is ids[offsets[b]] .. ids[offsets[b+1]-1]
 *   PREFIX.npy        the same ids; without PREFIX.offsets.npy one id a bag
 * Reads only regular files. Checks that memory suffices before it allocates, also for a compressed
 * file. On failure fills err (file, line or element, what is wrong) and leaves *out zeroed. A trace
 * without lookups is an error: there is nothing to measure. */
int trace_read(const char *path, struct trace *out, struct error *err);

void trace_free(struct trace *t);

/* trace.c and trace_text.c share the rest. Ids at or above the limit are raw keys or hashes, not row numbers: no
 * machine can hold a table that large. */
static const int64_t trace_id_limit = (int64_t)1 << 48;

/* Reads a file of text, compressed or not. */
int trace_read_text(const char *path, struct trace *out, struct error *err);

/* Sets rows from the ids. */
void trace_count_rows(struct trace *t);
