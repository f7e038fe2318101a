/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/watch.h"
#include "extras/library/model.h"

_Static_assert(sizeof(struct embfuse_watched_row) == sizeof(struct watched_row) &&
                   offsetof(struct embfuse_watched_row, largest_norm) ==
                       offsetof(struct watched_row, largest_norm),
               "the library hands out the kernels' records");

static int64_t watched_rows(const struct table_shape *t, const struct watch *w) {
    return w->first < t->rows ? (t->rows - 1 - w->first) / (INT64_C(1) << w->shift) + 1 : 0;
}

void monitor_stop(struct table *table) {
    if (!table->watch) return;
    free(table->watch->row);
    free(table->watch->norms);
    free(table->watch);
    table->watch = NULL;
}

static struct watch *new_watch(const struct table_shape *t, int32_t table, int shift) {
    struct watch *w = malloc(sizeof *w);
    if (!w) return NULL;
    const int64_t every = INT64_C(1) << shift;
    w->shift = shift;
    w->first =
        (int64_t)(rng_u64(1, (uint64_t)table) % (uint64_t)(every < t->rows ? every : t->rows));
    w->row = calloc((size_t)(t->rows >> shift) + 1, sizeof *w->row);
    w->norms = calloc(NORM_BINS, sizeof *w->norms);
    if (w->row && w->norms) return w;
    monitor_stop(&(struct table){.watch = w});
    return NULL;
}

int embfuse_monitor_start(struct embfuse_model *m, int32_t table, int64_t every,
                          struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!has_table(m, table)) return no_table(table, why);
    if (every < 0 || (every & (every - 1)))
        return said(why, EMBFUSE_INVALID, "every is %lld; it is 0 or a power of two",
                    (long long)every);
    if (every && (m->place == ON_DEVICE || (m->step && !watches(m->step))))
        return said(why, EMBFUSE_REFUSED,
                    "a monitor needs a kernel on the host that sees each touched row once%s%s",
                    m->step ? "; not " : "", m->step ? m->step->name : "");
    struct watch *w =
        every ? new_watch(&m->shapes[table], table, __builtin_ctzll((uint64_t)every)) : NULL;
    if (every && !w)
        return said(why, EMBFUSE_NO_MEMORY, "table %d: out of memory for a monitor", table);
    monitor_stop(&m->tables[table]);
    m->tables[table].watch = w;
    return 0;
}

static int not_watched(const struct embfuse_model *m, int32_t table, struct embfuse_error *why) {
    if (!has_table(m, table)) return no_table(table, why);
    if (m->tables[table].watch) return 0;
    return said(why, EMBFUSE_INVALID, "table %d is not watched; see embfuse_monitor_start()",
                table);
}

/* The norm that a share of touches does not exceed: the middle of its bin. */
static double percentile(const struct watch *w, int64_t touches, double share) {
    int64_t left = (int64_t)ceil(share * (double)touches);
    int bin = 0;
    for (; bin < NORM_BINS - 1 && left > (int64_t)w->norms[bin]; bin++)
        left -= (int64_t)w->norms[bin];
    const double low = (double)norm_of_bin(bin), high = (double)norm_of_bin(bin + 1);
    return touches == 0 || bin == 0 ? 0 : isfinite(high) ? sqrt(low * high) : low;
}

int embfuse_monitor_read(const struct embfuse_model *m, int32_t table, int64_t recent,
                         struct embfuse_monitor *out, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    const int status = not_watched(m, table, why);
    if (status) return status;
    const struct watch *w = m->tables[table].watch;
    const struct table_shape *t = &m->shapes[table];
    const int64_t steps = m->steps[table].number;
    struct embfuse_monitor x = {.rows = t->rows, .watched = watched_rows(t, w)};
    for (int bin = 0; bin < NORM_BINS; bin++) x.touches += (int64_t)w->norms[bin];
    for (int64_t i = 0; i < x.watched; i++)
        if ((double)w->row[i].largest_norm > x.norm_largest)
            x.norm_largest = (double)w->row[i].largest_norm;
    x.norm_p50 = fmin(percentile(w, x.touches, 0.5), x.norm_largest);
    x.norm_p90 = fmin(percentile(w, x.touches, 0.9), x.norm_largest);
    x.norm_p99 = fmin(percentile(w, x.touches, 0.99), x.norm_largest);
    for (int64_t i = 0; i < x.watched; i++) {
        const struct watched_row *r = &w->row[i];
        const uint32_t ago = (uint32_t)steps - r->last_step;
        x.never += r->touches == 0;
        x.stale += r->touches && ago >= recent;
        x.dead += r->touches && r->last_norm == 0;
        x.outliers += (double)r->largest_norm > 10 * x.norm_p99;
    }
    if (x.watched) {
        const double p = (double)x.never / (double)x.watched;
        x.never_share = p;
        x.never_error = x.watched < x.rows ? sqrt(p * (1 - p) / (double)x.watched) : 0;
    }
    *out = x;
    return 0;
}

int embfuse_monitor_rows(const struct embfuse_model *m, int32_t table,
                         const struct embfuse_watched_row **rows, int64_t *count, int64_t *first,
                         struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!rows || !count || !first)
        return said(why, EMBFUSE_INVALID, "rows, count or first is NULL");
    const int status = not_watched(m, table, why);
    if (status) return status;
    const struct watch *w = m->tables[table].watch;
    *rows = (const struct embfuse_watched_row *)w->row;
    *count = watched_rows(&m->shapes[table], w);
    *first = w->first;
    return 0;
}
