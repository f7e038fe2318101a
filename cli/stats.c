/* SPDX-License-Identifier: MIT
 *
 * embfuse stats: measures the ids that a workload or a trace really has.
 */
#include "cli/stats.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/source.h"
#include "harness/workload/trace.h"

struct flags {
    const char *path, *workload, *bags_text, *json, *plot;
    int64_t bags;
};

static int parse(int argc, char **argv, struct flags *f, struct error *err) {
    const struct flag flags[] = {
        {"workload", "NAME", "only this workload of the spec", &f->workload},
        {"bags", "B", "bags per batch [spec: its own; trace: about 2^20 lookups]", &f->bags_text},
        {"json", NULL, "print JSON", &f->json},
        {"plot", "PREFIX", "draw PREFIX.svg and PREFIX.png with gnuplot", &f->plot},
    };
    static const char more[] =
        "Prints statistics of batch 0 of every workload, and what batch 1 shares with it. A trace\n"
        "is *.txt or *.txt.gz with one bag per line, or PREFIX.ids.npy with PREFIX.offsets.npy,\n"
        "[bags + 1] from 0 to the number of ids: bag b is ids[offsets[b]] to ids[offsets[b+1]-1].\n"
        "In PREFIX.npy without offsets each id is a bag. a,b,c are the features of one input.\n";
    struct usage usage = {"stats", "SPECFILE|TRACE", more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, &f->path, err);
    if (status) return status;
    f->bags = 0;
    if (!f->path) return fail(err, "stats: give a spec file or a trace; see --help");
    if (flag_whole("bags", f->bags_text, 1, 1000000000, &f->bags, err)) return -1;
    return f->plot ? outputs_check("--plot", f->plot, err) : 0;
}

/* Prints one workload, draws it with --plot, and frees it. */
static int show(const struct flags *f, struct workload *w, bool first, struct error *err) {
    struct stats s;
    int status = stats_make(w, &s, err);
    if (status == 0 && f->plot) status = stats_plot(f->plot, w, &s, err);
    if (status == 0) {
        if (!first) printf(f->json ? ",\n" : "\n");
        if (f->json)
            stats_print_json(w, &s);
        else
            stats_print_text(w, &s);
    }
    stats_free(&s);
    workload_free(w);
    return status;
}

static int show_trace(const struct flags *f, struct error *err) {
    static const char like[] = "workload trace\n";
    struct spec_list list;
    struct workload w;
    if (f->workload) return fail(err, "stats: a trace has no --workload");
    if (spec_parse("like", like, strlen(like), NULL, &list, err)) return -1;
    int status = workload_from_trace(f->path, list.specs, f->bags, 2, GRAD_EXACT, &w, err);
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
