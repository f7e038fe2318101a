/* SPDX-License-Identifier: MIT
 *
 * The parts of extras/tiers/study/tiers.c.
 */
#pragma once

#include "harness/measure/place.h"
#include "harness/workload/workload.h"

/* Batches that come one after the other; the first [warm] of them are not measured. */
struct stream {
    struct workload workload;
    struct row_index *index; /* [batches] */
    struct rule_step *rules; /* [batches][num_tables] */
    struct place_setup setup;
    int batches, warm;
};

/* text: of the spec; trace: a file of ids, or - . Sets batches to fewer if the trace is short. */
int open_stream(struct stream *s, const char *text, const char *trace, struct error *err);
void close_stream(struct stream *s);

/* Prints a line for each policy: what is in memory, of batches after the warm-up. */
int show_hits(const struct stream *s, double budget, struct error *err);

/* Of this process, so far: faults that waited for a disk, and bytes that disks have read and written for it. */
struct usage {
    int64_t faults, disk_read, disk_written;
};
struct usage usage_now(void);

/* Bytes of a folder's files that are in the page cache. */
int64_t page_cache_of(const char *folder);
