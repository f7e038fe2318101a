/* SPDX-License-Identifier: MIT
 *
 * The parts of embfuse stats: its command line (stats.c), the numbers (stats_numbers.c) and the
 * picture (stats_plot.c).
 */
#pragma once

#include "harness/workload/id_stats.h"
#include "harness/workload/workload.h"

/* Statistics of the ids of one batch, and of its overlap with the next. */
struct stats {
    struct id_stats ids;
    int64_t table_rows;  /* in all tables */
    int64_t all_ids;     /* padding included */
    int64_t top_10;      /* lookups of the 10 hottest rows */
    int64_t top_percent; /* lookups of the hottest 1 % of the unique rows, at least one row */
    int64_t *hits;       /* [ids.distinct] lookups of every row, hottest first */
    bool has_next;
    int64_t kept_rows;    /* unique rows of the next batch that this batch also has */
    int64_t kept_lookups; /* lookups of those rows in the next batch */
    int64_t next_rows, next_lookups;
};

/* Measures batch 0, and its overlap with batch 1 if the ring has one. */
int stats_make(const struct workload *w, struct stats *out, struct error *err);
void stats_free(struct stats *s);

void stats_print_text(const struct workload *w, const struct stats *s);
void stats_print_json(const struct workload *w, const struct stats *s);

/* Draws PREFIX.svg and PREFIX.png: lookups of each row by rank, and segment lengths. */
int stats_plot(const char *prefix, const struct workload *w, const struct stats *s,
               struct error *err);
