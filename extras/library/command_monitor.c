/* SPDX-License-Identifier: MIT
 *
 * embfuse monitor: takes steps of a workload or a trace, and shows what they do to the rows: which are never
 * touched, how old the last touch is, and how large their gradients are. It watches from inside the step,
 * through the library.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "cli/plot.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/tables.h"
#include "harness/workload/trace.h"
#include "harness/workload/workload.h"
#include "extras/library/embfuse.h"
#include "kernels/watch.h"

static const char frame[] =
#include "extras/library/monitor.gp.h"
    ;

struct flags {
    const char *path, *workload, *bags_text, *rule_text, *kernel, *json, *plot;
    const char *steps_text, *every_text, *recent_text, *table_text, *threads_text;
    int64_t steps, every, recent, table, threads;
    enum rule_kind rule; /* of a trace */
};

static int parse(int argc, char **argv, struct flags *f, struct error *err) {
    const struct flag flags[] = {
        {"workload", "NAME", "this workload of the spec", &f->workload},
        {"bags", "B[+C...]", "bags of a batch [spec: its own; trace: about 2^20 lookups]",
         &f->bags_text},
        {"rule", "NAME", "update rule of a trace [rowwise_adagrad]", &f->rule_text},
        {"kernel", "NAME", "a kernel on the host [auto]", &f->kernel},
        {"steps", "N", "steps; they cycle through 8 batches, or fewer in a short trace [8]",
         &f->steps_text},
        {"every", "E", "watch one row in E, a power of two [1]", &f->every_text},
        {"recent", "R", "a row is stale without a touch in the last R steps [4]", &f->recent_text},
        {"table", "T", "only this table, from 0", &f->table_text},
        {"threads", "T", "threads [all]", &f->threads_text},
        {"json", NULL, "print JSON", &f->json},
        {"plot", "PREFIX", "draw PREFIX.svg and PREFIX.png with gnuplot, of --table or table 0",
         &f->plot},
    };
    static const char more[] =
        "Weights, states and gradients are drawn. never: rows without a touch; dead: the last "
        "summed\n"
        "gradient was 0; outliers: the largest norm is over 10 times the 99th percentile. With E > "
        "1\n"
        "all figures are of the watched rows, and shares of them estimate those of all rows.\n";
    const struct usage usage = {"monitor", "SPECFILE|TRACE", more, flags,
                                sizeof flags / sizeof *flags};
    struct value bags;
    int status = flags_parse(&usage, argc, argv, &f->path, err);
    if (status) return status;
    f->steps = 8, f->every = 1, f->recent = 4, f->table = -1, f->rule = RULE_rowwise_adagrad;
    if (!f->path) return fail(err, "monitor: give a spec file or a trace; see --help");
    if ((f->bags_text &&
         value_read(KEY_BATCH, f->bags_text, (struct where){"--bags", 0}, &bags, err)) ||
        flag_whole("steps", f->steps_text, 1, 1000000, &f->steps, err) ||
        flag_whole("every", f->every_text, 1, 1 << 30, &f->every, err) ||
        flag_whole("recent", f->recent_text, 1, 1000000, &f->recent, err) ||
        flag_whole("table", f->table_text, 0, INT32_MAX, &f->table, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err) ||
        (f->rule_text && rule_parse(f->rule_text, &f->rule, err)))
        return -1;
    return f->plot ? outputs_check("--plot", f->plot, err) : 0;
}

/* Turns a status of the library into that of a command. */
static int told(int status, const struct embfuse_error *why, struct error *err) {
    return status ? fail(err, "%s", why->text) : 0;
}

/* --- a model of a workload */

static int bind_tables(struct embfuse_model *m, const struct workload *w,
                       const struct table_set *set, struct embfuse_error *why) {
    int status = 0;
    for (int32_t t = 0; t < w->num_tables; t++)
        for (int32_t i = 0, a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&w->tables[t], a))
                status = embfuse_bind(m, t, i++, set->tables[t].array[a].data,
                                      set->tables[t].array[a].stride, why);
    return status;
}

static int open_model(const struct flags *f, const struct workload *w, const struct table_set *set,
                      struct embfuse_model **m, struct error *err) {
    struct embfuse_table *tables = calloc((size_t)w->num_tables, sizeof *tables);
    struct embfuse_feature *features = calloc((size_t)w->num_features, sizeof *features);
    const struct embfuse_options options = {.size = sizeof options,
                                            .kernel = f->kernel,
                                            .threads = (int32_t)f->threads,
                                            .grad_type = (int32_t)w->grad_type,
                                            .rounding_seed = w->seed};
    struct embfuse_error why;
    int status = tables && features ? 0 : fail(err, "out of memory");
    if (w->varied) status = fail(err, "monitor: rules have presets here; leave out hypers varied");
    for (int32_t t = 0; status == 0 && t < w->num_tables; t++) {
        const struct table_shape *x = &w->tables[t];
        tables[t] = (struct embfuse_table){.rows = x->rows,
                                           .dim = x->dim,
                                           .weight_type = (int32_t)x->weight_type,
                                           .momentum_type = (int32_t)x->momentum_type,
                                           .rounding = (int32_t)x->rounding,
                                           .rule = rule_info_of(x->rule)->name};
    }
    for (int32_t i = 0; status == 0 && i < w->num_features; i++) {
        const struct feature *x = &w->features[i];
        features[i] = (struct embfuse_feature){.table = x->table,
                                               .pooling = (int32_t)x->pooling,
                                               .has_padding = x->padding_id >= 0,
                                               .padding_id = x->padding_id};
    }
    if (status == 0)
        status = told(embfuse_model_create(m, tables, w->num_tables, features, w->num_features,
                                           &options, &why),
                      &why, err);
    if (status == 0) status = told(bind_tables(*m, w, set, &why), &why, err);
    for (int32_t t = 0; status == 0 && t < w->num_tables; t++)
        status = told(embfuse_monitor_start(*m, t, f->every, &why), &why, err);
    free(tables);
    free(features);
    return status;
}

static int train(const struct flags *f, struct embfuse_model *m, const struct workload *w,
                 struct error *err) {
    int status = 0;
    for (int64_t i = 0; status == 0 && i < f->steps; i++) {
        const struct batch *in = &w->batches[i % w->ring];
        int64_t bags[in->num_features];
        for (int32_t k = 0; k < in->num_features; k++) bags[k] = in->features[k].bags;
        const struct embfuse_batch batch = {.size = sizeof batch,
                                            .feature_bags = bags,
                                            .lookups = in->lookups,
                                            .ids = in->ids,
                                            .offsets = in->offsets,
                                            .lookup_weights = in->lookup_weights,
                                            .id_type = in->id_type == ID_INT32 ? EMBFUSE_INT32
                                                                               : EMBFUSE_INT64,
                                            .trusted = i >= w->ring};
        struct embfuse_error why;
        status = told(embfuse_step(m, &batch, in->grad, &why), &why, err);
    }
    return status;
}

/* --- what it shows */

static double percent(int64_t part, int64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void print_text(const char *name, int32_t t, const struct embfuse_monitor *x) {
    printf("%s, table %d\n", name, t);
    printf("  %-26s %14" PRId64 "   of %" PRId64 "\n", "rows watched", x->watched, x->rows);
    const struct {
        const char *label;
        int64_t count;
    } lines[] = {{"never touched", x->never},
                 {"stale", x->stale},
                 {"dead", x->dead},
                 {"outliers", x->outliers}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        printf("  %-26s %14" PRId64 "   %6.2f %%", lines[i].label, lines[i].count,
               percent(lines[i].count, x->watched));
        printf(i == 0 && x->never_error > 0 ? " ± %.2g of all rows\n" : "\n", 100 * x->never_error);
    }
    printf("  %-26s %14" PRId64 "\n", "touches", x->touches);
    printf("  %-26s %14.4g %.4g %.4g %.4g\n", "norm p50, p90, p99, most", x->norm_p50, x->norm_p90,
           x->norm_p99, x->norm_largest);
}

static void print_json(const char *name, int32_t t, bool first, const struct embfuse_monitor *x) {
    printf("%s{", first ? "" : ",\n");
    json_text("name", name, ", ");
    printf("\"table\": %d, \"rows\": %" PRId64 ", \"watched\": %" PRId64 ", \"never\": %" PRId64
           ", \"stale\": %" PRId64 ", \"dead\": %" PRId64 ", \"outliers\": %" PRId64
           ", \"touches\": %" PRId64
           ", \"never_share\": %.6g, \"never_error\": %.6g, \"norm_p50\": %.6g, "
           "\"norm_p90\": %.6g, \"norm_p99\": %.6g, \"norm_largest\": %.6g}",
           t, x->rows, x->watched, x->never, x->stale, x->dead, x->outliers, x->touches,
           x->never_share, x->never_error, x->norm_p50, x->norm_p90, x->norm_p99, x->norm_largest);
}

struct picture {
    int64_t steps;
    const struct embfuse_monitor *figures;
    const struct watched_row *row;
    int64_t count;
};

static int more_touches(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* Touches of rows by rank, about 40 points for each decade. */
static void write_ranks(FILE *f, const struct picture *p) {
    uint32_t *touches = malloc((size_t)p->count * sizeof *touches);
    fprintf(f, "$ranks << EOD\n");
    if (touches) {
        for (int64_t i = 0; i < p->count; i++) touches[i] = p->row[i].touches;
        qsort(touches, (size_t)p->count, sizeof *touches, more_touches);
        for (int64_t rank = 1; rank <= p->count && touches[rank - 1]; rank += 1 + rank / 17)
            fprintf(f, "%" PRId64 " %u\n", rank, touches[rank - 1]);
    }
    fprintf(f, "EOD\n");
    free(touches);
}

/* The share of touched rows whose last touch is at most so many steps ago. */
static void write_ages(FILE *f, const struct picture *p) {
    enum { POINTS = 100 };
    int64_t ages[POINTS + 1] = {0}, sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (p->row[i].touches) {
            const int64_t ago = p->steps - p->row[i].last_step;
            ages[ago * POINTS / p->steps]++;
        }
    fprintf(f, "$ages << EOD\n");
    for (int k = 0; k < POINTS; k++) {
        sum += ages[k];
        if (ages[k] || k == POINTS - 1)
            fprintf(f, "%.6g %.6g\n", (double)k * (double)p->steps / POINTS,
                    percent(sum, p->count - p->figures->never));
    }
    fprintf(f, "EOD\n");
}

/* Rows by the largest norm of their gradients, eight bins for each power of two. */
static void write_norms(FILE *f, const struct picture *p) {
    static int64_t bins[NORM_BINS];
    memset(bins, 0, sizeof bins);
    for (int64_t i = 0; i < p->count; i++)
        if (p->row[i].touches) bins[norm_bin(p->row[i].largest_norm)]++;
    fprintf(f, "$norms << EOD\n");
    for (int b = 1; b < NORM_BINS - 8; b++)
        if (bins[b]) fprintf(f, "%.6g %" PRId64 "\n", (double)norm_of_bin(b), bins[b]);
    fprintf(f, "EOD\n");
}

static void fill(FILE *f, const void *ctx) {
    const struct picture *p = ctx;
    fprintf(f, "p50 = %.6g; p99 = %.6g\n", p->figures->norm_p50, p->figures->norm_p99);
    write_ranks(f, p);
    write_ages(f, p);
    write_norms(f, p);
}

static int draw(const struct flags *f, const struct embfuse_model *m, const struct workload *w,
                int32_t table, const struct embfuse_monitor *figures, struct error *err) {
    struct picture p = {f->steps, figures, NULL, 0};
    const struct embfuse_watched_row *rows;
    struct embfuse_error why;
    int64_t first;
    int status = told(embfuse_monitor_rows(m, table, &rows, &p.count, &first, &why), &why, err);
    p.row = (const struct watched_row *)rows;
    if (status == 0 && figures->touches == 0)
        return fail(err, "%s: no watched row of table %d was touched, so there is no picture",
                    w->name, table);
    char heading[200], watched[200];
    snprintf(heading, sizeof heading, "%s, table %d, %" PRId64 " steps", w->name, table, f->steps);
    snprintf(watched, sizeof watched,
             "%" PRId64 " of %" PRId64 " rows watched, %.3g %% of them never touched", p.count,
             figures->rows, 100 * figures->never_share);
    return status ? -1 : plot_draw(f->plot, &(struct plot){frame, heading, watched, fill, &p}, err);
}

static int show(const struct flags *f, struct embfuse_model *m, const struct workload *w,
                struct error *err) {
    int status = 0;
    const int32_t drawn = f->table < 0 ? 0 : (int32_t)f->table;
    if (f->table >= w->num_tables)
        return fail(err, "--table is a number from 0 to %d in %s, not %" PRId64, w->num_tables - 1,
                    w->name, f->table);
    if (f->json) printf("[");
    for (int32_t t = 0; status == 0 && t < w->num_tables; t++) {
        struct embfuse_monitor x;
        struct embfuse_error why;
        if (f->table >= 0 && t != f->table) continue;
        status = told(embfuse_monitor_read(m, t, f->recent, &x, &why), &why, err);
        if (status == 0 && f->json) print_json(w->name, t, t == (f->table < 0 ? 0 : drawn), &x);
        if (status == 0 && !f->json) print_text(w->name, t, &x);
        if (status == 0 && f->plot && t == drawn) status = draw(f, m, w, t, &x, err);
    }
    if (f->json) printf("]\n");
    return status;
}

static int monitor(const struct flags *f, struct workload *w, struct error *err) {
    struct table_set set;
    struct embfuse_model *m = NULL;
    int status = tables_create(&set, w->tables, w->num_tables, w->seed, err);
    if (status) return -1;
    status = open_model(f, w, &set, &m, err);
    if (status == 0) status = train(f, m, w, err);
    if (status == 0) status = show(f, m, w, err);
    embfuse_model_free(m);
    tables_free(&set);
    return status;
}

static int make_workload(const struct flags *f, struct workload *w, struct error *err) {
    const struct spec_overrides over = {.batch = f->bags_text};
    struct spec_list list;
    int status;
    if (trace_is_named(f->path)) {
        static const char like[] = "workload trace\n";
        if (f->workload) return fail(err, "monitor: a trace has no --workload");
        if (spec_parse("like", like, strlen(like), &over, &list, err)) return -1;
        list.specs[0].rule = f->rule;
        if (!f->bags_text) list.specs[0].num_batches = 0;
        status = workload_from_trace(f->path, list.specs, RING_MAX, GRAD_REAL, w, err);
    } else {
        if (f->rule_text) return fail(err, "monitor: a spec has a rule; --rule is for traces");
        if (spec_read(f->path, &over, &list, err)) return -1;
        const struct spec *spec = spec_pick(&list, f->path, f->workload, err);
        status = spec ? workload_generate(spec, RING_MAX, GRAD_REAL, w, err) : -1;
    }
    spec_list_free(&list);
    return status;
}

static int run(int argc, char **argv, struct error *err) {
    struct flags f = {0};
    struct workload w;
    int status = parse(argc, argv, &f, err);
    if (status) return status < 0 ? EXIT_USAGE : EXIT_FINE;
    if (make_workload(&f, &w, err)) return EXIT_USAGE;
    status = monitor(&f, &w, err);
    workload_free(&w);
    return status ? EXIT_USAGE : EXIT_FINE;
}

const struct subcommand monitor_command = {
    "monitor", "take steps, and show how rows are touched and how large their gradients are", run};
