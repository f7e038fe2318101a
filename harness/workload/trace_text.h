/* SPDX-License-Identifier: MIT
 *
 * The parts of the trace reader: text (trace_text.c), arrays and everything else (trace.c).
 */
#ifndef EMBFUSE_TRACE_TEXT_H
#define EMBFUSE_TRACE_TEXT_H

#include "harness/workload/trace.h"

/* Larger ids are no row numbers but raw keys or hashes, and their table would not fit anywhere. */
static const int64_t trace_id_limit = (int64_t)1 << 48;

/* Reads a file of text, compressed or not. */
int trace_read_text(const char *path, struct trace *out, struct error *err);

/* rows, from the ids. */
void trace_count_rows(struct trace *t);

#endif
