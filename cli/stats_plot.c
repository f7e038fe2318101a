/* SPDX-License-Identifier: MIT
 *
 * The picture of embfuse stats; cli/stats.gp is its frame. On the logarithmic axis of ranks the points are evenly
 * spaced, so there are few of them.
 */
#include <math.h>
#include <stdio.h>

#include "cli/plot.h"
#include "cli/stats.h"

static const char frame[] =
#include "cli/stats.gp.h"
    ;

struct picture {
    const struct workload *w;
    const struct stats *s;
};

static void write_ranks(FILE *f, const struct stats *s) {
    const double per_decade = 40;
    fprintf(f, "$ranks << EOD\n");
    for (int64_t i = 0, rank = 0; rank < s->ids.distinct; i++) {
        int64_t next = (int64_t)pow(10, (double)i / per_decade);
        if (next > s->ids.distinct) next = s->ids.distinct;
        if (next > rank) fprintf(f, "%lld %lld\n", (long long)next, (long long)s->hits[next - 1]);
        rank = next;
    }
    fprintf(f, "EOD\n");
}

static void write_runs(FILE *f, const struct stats *s) {
    fprintf(f, "$runs << EOD\n");
    for (int b = 0; b < RUN_BINS; b++)
        fprintf(f, "%.6g\n", 100.0 * (double)s->ids.run_lookups[b] / (double)s->ids.lookups);
    fprintf(f, "EOD\n");
}

static void fill(FILE *f, const void *ctx) {
    const struct picture *p = ctx;
    const struct id_stats *x = &p->s->ids;
    char summary[200];
    snprintf(summary, sizeof summary, "%lld lookups of %lld distinct rows, hottest row %.3g %%",
             (long long)x->lookups, (long long)x->distinct,
             100.0 * (double)x->hottest / (double)x->lookups);
    plot_assign(f, "heading", p->w->name);
    plot_assign(f, "machine", summary);
    write_ranks(f, p->s);
    write_runs(f, p->s);
}

int stats_plot(const char *prefix, const struct workload *w, const struct stats *s,
               struct error *err) {
    if (s->ids.lookups == 0) return fail(err, "%s: only padding, so there is no picture", w->name);
    return plot_draw(prefix, frame, fill, &(struct picture){w, s}, err);
}
