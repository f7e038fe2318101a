/* SPDX-License-Identifier: MIT
 *
 * What the parts of the trace reader share: trace_text.c reads text, trace.c does the rest.
 */
#ifndef EMBFUSE_TRACE_TEXT_H
#define EMBFUSE_TRACE_TEXT_H

#include "harness/workload/trace.h"

/* Larger ids are raw keys or hashes, not row numbers: no machine can hold a table that large. */
static const int64_t trace_id_limit = (int64_t)1 << 48;

/* Reads a file of text, compressed or not. */
int trace_read_text(const char *path, struct trace *out, struct error *err);

/* Sets rows from the ids. */
void trace_count_rows(struct trace *t);

#endif
