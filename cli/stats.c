/* SPDX-License-Identifier: MIT
 *
 * embfuse stats: measures the ids that a workload or a trace really has, prints the numbers, and draws them;
 * cli/stats.gp is the frame of the picture.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "cli/plot.h"
#include "harness/workload/id_stats.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/trace.h"
#include "harness/workload/workload.h"

/* Statistics of the ids of one batch, and of its overlap with the next. */
struct stats {
    const struct workload *w;
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

static int most_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int64_t sum_of(const int64_t *x, int64_t count) {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i];
    return sum;
}

static int count_hits(const struct row_index *x, struct stats *s, struct error *err) {
    s->hits = malloc((size_t)(x->rows + 1) * sizeof *s->hits);
    if (!s->hits) return fail(err, "out of memory");
    for (int64_t r = 0; r < x->rows; r++) s->hits[r] = x->run[r + 1].first - x->run[r].first;
    qsort(s->hits, (size_t)x->rows, sizeof *s->hits, most_first);
    s->top_10 = sum_of(s->hits, x->rows < 10 ? x->rows : 10);
    s->top_percent = sum_of(s->hits, (x->rows + 99) / 100);
    return 0;
}

/* Counts rows of the next batch that this one has, too. Both lists are sorted by table and row. */
static void compare_batches(const struct row_index *now, const struct row_index *next,
                            struct stats *s) {
    s->has_next = true;
    s->next_rows = next->rows;
    s->next_lookups = next->lookups;
    for (int64_t i = 0, j = 0; i < now->rows && j < next->rows;) {
        const struct row_run *a = &now->run[i], *b = &next->run[j];
        bool same = a->table == b->table && a->row == b->row;
        bool first = a->table != b->table ? a->table < b->table : a->row < b->row;
        if (same) s->kept_rows++, s->kept_lookups += b[1].first - b->first;
        i += same || first;
        j += !first;
    }
}

/* Measures batch 0, and its overlap with batch 1 if the ring has one. */
static int stats_make(const struct workload *w, struct stats *out, struct error *err) {
    const struct batch *in = &w->batches[0];
    *out = (struct stats){.w = w, .all_ids = in->lookups};
    for (int32_t t = 0; t < in->num_tables; t++) out->table_rows += in->tables[t].rows;
    struct row_index now = row_index_build(in);
    out->ids = id_stats(in, &now);
    int status = count_hits(&now, out, err);
    if (w->ring > 1) {
        struct row_index next = row_index_build(&w->batches[1]);
        compare_batches(&now, &next, out);
        row_index_free(&next);
    }
    row_index_free(&now);
    return status;
}

static void stats_free(struct stats *s) {
    free(s->hits);
    *s = (struct stats){0};
}

/* One line of the report: a count, and the whole that it is a share of. */
struct line {
    const char *key, *label;
    int64_t count, whole; /* whole < 0: no share is printed */
    const char *of;
};

enum { LINES = 14 };

static int fill_lines(const struct stats *s, struct line lines[LINES]) {
    const struct id_stats *x = &s->ids;
    const struct line all[LINES] = {
        {"table_rows", "rows of all tables", s->table_rows, -1, ""},
        {"ids", "ids", s->all_ids, -1, ""},
        {"padding", "padding", x->padding, s->all_ids, "of the ids"},
        {"lookups", "lookups", x->lookups, s->all_ids, "of the ids"},
        {"distinct", "distinct rows", x->distinct, x->lookups, "of the lookups"},
        {"hottest", "hottest row", x->hottest, x->lookups, "of the lookups"},
        {"top_10", "10 hottest rows", s->top_10, x->lookups, "of the lookups"},
        {"top_1_percent", "hottest 1 % of the distinct rows", s->top_percent, x->lookups,
         "of the lookups"},
        {"in_bag_duplicates", "row already in the bag", x->in_bag_duplicates, x->lookups,
         "of the lookups"},
        {"bags", "bags", x->bags, -1, ""},
        {"empty_bags", "empty bags", x->empty_bags, x->bags, "of the bags"},
        {"longest_bag", "longest bag", x->longest_bag, -1, ""},
        {"next_rows_kept", "rows of the next batch in this one", s->kept_rows, s->next_rows,
         "of its distinct rows"},
        {"next_lookups_kept", "lookups of the next batch on them", s->kept_lookups, s->next_lookups,
         "of its lookups"},
    };
    memcpy(lines, all, sizeof all);
    return s->has_next ? LINES : LINES - 2;
}

static double share(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0.0;
}

/* Least and most lookups of a row in the bin; *most is 0 for the last bin, which is open. */
static void bin_range(int bin, int64_t *least, int64_t *most) {
    *least = bin ? ((int64_t)1 << (bin - 1)) + 1 : 1;
    *most = bin < RUN_BINS - 1 ? (int64_t)1 << bin : 0;
}

enum { BIN_TEXT_MAX = 48 };

/* "3-4", or "> 32768" for the last bin. */
static const char *run_bin_text(int bin, char text[BIN_TEXT_MAX]) {
    int64_t least, most;
    bin_range(bin, &least, &most);
    if (!most)
        snprintf(text, BIN_TEXT_MAX, "> %" PRId64, least - 1);
    else if (least == most)
        snprintf(text, BIN_TEXT_MAX, "%" PRId64, least);
    else
        snprintf(text, BIN_TEXT_MAX, "%" PRId64 "-%" PRId64, least, most);
    return text;
}

static void stats_print_text(const struct stats *s) {
    const struct id_stats *x = &s->ids;
    struct line lines[LINES];
    int count = fill_lines(s, lines), last = RUN_BINS - 1;
    printf("%s\n  %s\n  %-34s %016" PRIx64 "\n", s->w->name, s->w->text, "fingerprint",
           x->fingerprint);
    for (int i = 0; i < count; i++) {
        printf("  %-34s %16" PRId64, lines[i].label, lines[i].count);
        if (lines[i].whole >= 0)
            printf("   %6.2f %% %s", 100 * share(lines[i].count, lines[i].whole), lines[i].of);
        printf("\n");
    }
    printf("  %-34s %16.2f\n", "mean length of a bag", share(s->all_ids, x->bags));
    while (last > 0 && x->run_rows[last] == 0) last--;
    printf("  %-16s %16s %9s %16s %9s\n", "lookups of a row", "rows", "share", "lookups", "share");
    for (int b = 0; b <= last; b++) {
        char text[BIN_TEXT_MAX];
        printf("  %-16s %16" PRId64 " %7.2f %% %16" PRId64 " %7.2f %%\n", run_bin_text(b, text),
               x->run_rows[b], 100 * share(x->run_rows[b], x->distinct), x->run_lookups[b],
               100 * share(x->run_lookups[b], x->lookups));
    }
}

static void stats_print_json(const struct stats *s) {
    const struct id_stats *x = &s->ids;
    struct line lines[LINES];
    int count = fill_lines(s, lines);
    printf("{");
    json_text("name", s->w->name, ", ");
    json_text("text", s->w->text, ",\n  ");
    printf("\"fingerprint\": \"%016" PRIx64 "\"", x->fingerprint);
    for (int i = 0; i < count; i++) {
        printf(",\n  \"%s\": %" PRId64, lines[i].key, lines[i].count);
        if (lines[i].whole >= 0)
            printf(", \"%s_share\": %.6g", lines[i].key, share(lines[i].count, lines[i].whole));
    }
    printf(",\n  \"mean_bag\": %.6g,\n  \"runs\": [", share(s->all_ids, x->bags));
    for (int b = 0; b < RUN_BINS; b++) {
        int64_t least, most;
        bin_range(b, &least, &most);
        printf("%s\n    {\"least\": %" PRId64 ", \"most\": ", b ? "," : "", least);
        printf(most ? "%" PRId64 : "null", most);
        printf(", \"rows\": %" PRId64 ", \"lookups\": %" PRId64 "}", x->run_rows[b],
               x->run_lookups[b]);
    }
    printf("]}");
}

/* --- the picture */

static const char frame[] =
#include "cli/stats.gp.h"
    ;

/* On the logarithmic axis of ranks the points are evenly spaced, so there are few of them. */
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
    write_ranks(f, ctx);
    write_runs(f, ctx);
}

/* Draws PREFIX.svg and PREFIX.png: lookups of each row by rank, and segment lengths. */
static int stats_plot(const char *prefix, const struct stats *s, struct error *err) {
    const struct id_stats *x = &s->ids;
    char summary[200];
    if (x->lookups == 0) return fail(err, "%s: only padding, so there is no picture", s->w->name);
    snprintf(summary, sizeof summary, "%lld lookups of %lld distinct rows, hottest row %.3g %%",
             (long long)x->lookups, (long long)x->distinct,
             100.0 * (double)x->hottest / (double)x->lookups);
    return plot_draw(prefix, &(struct plot){frame, s->w->name, summary, fill, s}, err);
}

/* --- the command */

struct flags {
    const char *path, *workload, *bags_text, *json, *plot;
};

static int parse(int argc, char **argv, struct flags *f, struct error *err) {
    const struct flag flags[] = {
        {"workload", "NAME", "only this workload of the spec", &f->workload},
        {"bags", "B[+C...]", "bags of a batch [spec: its own; trace: about 2^20 lookups]",
         &f->bags_text},
        {"json", NULL, "print JSON", &f->json},
        {"plot", "PREFIX", "draw PREFIX.svg and PREFIX.png with gnuplot", &f->plot},
    };
    static const char more[] =
        "Prints statistics of batch 0 of every workload, and what batch 1 shares with it. A trace\n"
        "is *.txt or *.txt.gz with one bag per line, or PREFIX.ids.npy with PREFIX.offsets.npy,\n"
        "[bags + 1] from 0 to the number of ids: bag b is ids[offsets[b]] to ids[offsets[b+1]-1].\n"
        "In PREFIX.npy without offsets each id is a bag. a,b,c are the features of one input.\n";
    struct usage usage = {"stats", "SPECFILE|TRACE", more, flags, sizeof flags / sizeof *flags};
    struct value bags;
    int status = flags_parse(&usage, argc, argv, &f->path, err);
    if (status) return status;
    if (!f->path) return fail(err, "stats: give a spec file or a trace; see --help");
    if (f->bags_text &&
        value_read(KEY_BATCH, f->bags_text, (struct where){"--bags", 0}, &bags, err))
        return -1;
    return f->plot ? outputs_check("--plot", f->plot, err) : 0;
}

/* Prints one workload, draws it with --plot, and frees it. */
static int show(const struct flags *f, struct workload *w, bool first, struct error *err) {
    struct stats s;
    int status = stats_make(w, &s, err);
    if (status == 0 && f->plot) status = stats_plot(f->plot, &s, err);
    if (status == 0) {
        if (!first) printf(f->json ? ",\n" : "\n");
        if (f->json)
            stats_print_json(&s);
        else
            stats_print_text(&s);
    }
    stats_free(&s);
    workload_free(w);
    return status;
}

static int show_trace(const struct flags *f, struct error *err) {
    static const char like[] = "workload trace\n";
    const struct spec_overrides over = {.batch = f->bags_text};
    struct spec_list list;
    struct workload w;
    if (f->workload) return fail(err, "stats: a trace has no --workload");
    if (spec_parse("like", like, strlen(like), &over, &list, err)) return -1;
    if (!f->bags_text) list.specs[0].num_batches = 0;
    int status = workload_from_trace(f->path, list.specs, 2, GRAD_EXACT, &w, err);
    spec_list_free(&list);
    return status ? -1 : show(f, &w, true, err);
}

static int show_spec(const struct flags *f, struct error *err) {
    struct spec_list list;
    struct spec_overrides over = {.batch = f->bags_text};
    if (spec_read(f->path, &over, &list, err)) return -1;
    const struct spec *only = NULL;
    int status = 0;
    if (f->workload || f->plot) {
        only = spec_pick(&list, f->path, f->workload, err);
        status = only ? 0 : -1;
    }
    for (int i = 0, shown = 0; status == 0 && i < list.count; i++) {
        struct workload w;
        if (only && only != &list.specs[i]) continue;
        status = workload_generate(&list.specs[i], 2, GRAD_EXACT, &w, err);
        if (status == 0) status = show(f, &w, shown++ == 0, err);
    }
    spec_list_free(&list);
    return status;
}

int stats_command(int argc, char **argv, struct error *err) {
    struct flags f;
    int status = parse(argc, argv, &f, err);
    if (status) return status < 0 ? EXIT_USAGE : EXIT_FINE;
    if (f.json) printf("[");
    status = trace_is_named(f.path) ? show_trace(&f, err) : show_spec(&f, err);
    if (f.json && status == 0) printf("]\n");
    return status ? EXIT_USAGE : EXIT_FINE;
}
