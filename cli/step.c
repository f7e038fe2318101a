/* SPDX-License-Identifier: MIT
 *
 * embfuse step: one kernel on your own batch and tables, checked against the oracle before anything
 * is written.
 */
#include "cli/step.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/table_files.h"
#include "harness/registry.h"

static const char more[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or for one "
    "table\n"
    "and one feature --ids, --offsets, --grad. It may be without lookups: then nothing changes, "
    "but\n"
    "by a kernel whose step is dense. Tables are --tables PREFIX (.weight.npy, .state.K.npy,\n"
    ".row_state.npy; of several tables .weight.T.npy ...), by default the batch's PREFIX, or for "
    "one\n"
    "table --weight. States that are not given start at zero. All arrays are float32 but ids and\n"
    "offsets (int32, int64).\n"
    "Every step is checked against the oracle. Then the tables are written as PREFIX.weight.npy "
    "and\n"
    "so on, to be read again, with PREFIX.tables: the rule of each, and the steps that it has "
    "behind\n"
    "it. The next run goes on from there (Adam's bias correction), and refuses states of another\n"
    "rule. PREFIX may be that of the input: files are replaced when all is written and right.\n";

enum { HYPER_HELP_MAX = 400 };

/* "of the rules a, b [0.1]" */
static void hyper_help(const char *name, char text[HYPER_HELP_MAX]) {
    size_t used = 0;
    for (int rule = 0; rule < RULE_COUNT && used < HYPER_HELP_MAX; rule++) {
        const struct rule_info info = rule_info((enum rule_kind)rule);
        const int k = hyper_of((enum rule_kind)rule, name);
        if (k < 0) continue;
        used += (size_t)snprintf(text + used, HYPER_HELP_MAX - used, "%s%s [%g]",
                                 used ? ", " : "of ", info.name, (double)info.params[k].preset);
    }
}

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    const struct flag first[] = {
        {"kernel", "NAME", "see embfuse list", &f->kernel},
        {"rule", "NAME", "of all tables; needed unless --batch says it", &f->rule},
        {"batch", "PREFIX", "PREFIX.batch and its arrays", &f->batch},
        {"ids", "FILE", "[N] row numbers", &f->ids},
        {"offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]", &f->offsets},
        {"grad", "FILE", "[bags][dim]; with --pooling none [N][dim]", &f->grad},
        {"lookup-weights", "FILE", "[N] factors of the gradient", &f->lookup_weights},
        {"pooling", "sum|mean|none", "what the forward pass did [sum]", &f->pooling},
        {"padding", "ID", "the id that is no lookup [-1: none]", &f->padding},
        {"tables", "PREFIX", "weights and states, and PREFIX.tables where there is one",
         &f->tables},
        {"weight", "FILE", "[rows][dim], in the place of --tables", &f->weight},
        {"state", "FILE[,FILE]", "[rows][dim] for each per-element state", &f->state},
        {"row-state", "FILE", "[rows] of a rule with one state per row", &f->row_state},
        {"zero-states", NULL, "states start at zero, whatever is there; steps at 1",
         &f->zero_states},
        {"out", "PREFIX", "begin of the results' names", &f->out},
        {"steps", "N", "steps with the same gradient [1]", &f->steps_text},
        {"first-step", "T", "number of the first [one more than PREFIX.tables says, or 1]",
         &f->first_text},
        {"threads", "T", "of a kernel of the host [all]", &f->threads_text},
        {"no-check", NULL, "neither the oracle, nor a search for NaN", &f->no_check},
    };
    enum { FIRST = sizeof first / sizeof *first };
    struct flag flags[FIRST + HYPERS_MAX];
    char help[HYPERS_MAX][HYPER_HELP_MAX];
    struct usage usage = {"step", NULL, more, flags, FIRST};
    memcpy(flags, first, sizeof first);
    for (int h = 0; hyper_name(h); h++) {
        hyper_help(hyper_name(h), help[h]);
        flags[usage.count++] = (struct flag){hyper_name(h), "X", help[h], &f->hyper[h]};
    }
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    f->steps = 1;
    f->first = 0;
    f->threads = omp_get_max_threads();
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("steps", f->steps_text, 1, 1000000, &f->steps, err) ||
        flag_whole("first-step", f->first_text, 1, 1000000000, &f->first, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err))
        return -1;
    omp_set_num_threads((int)f->threads);
    return outputs_check("--out", f->out, err);
}

static void print_rules(const struct description *d) {
    unsigned seen = 0;
    for (int32_t t = 0; t < d->num_tables; t++) {
        enum rule_kind kind = d->tables[t].rule;
        if (!(seen & (1u << kind))) printf("%s%s", seen ? "+" : "", rule_info(kind).name);
        seen |= 1u << kind;
    }
}

static void report(const struct step_flags *f, const struct step_inputs *in,
                   const struct step_outcome *o) {
    printf("%s, ", f->kernel);
    print_rules(&in->what);
    printf(": %lld step%s from number %lld, %lld lookups, %lld distinct rows, ",
           (long long)f->steps, f->steps == 1 ? "" : "s", (long long)f->first,
           (long long)o->lookups, (long long)o->distinct);
    if (!isnan(o->seconds)) printf("%.3f ms the last step, ", 1e3 * o->seconds);
    if (o->checked)
        printf("checked: %s, worst error/bound %.3g", o->exact ? "exact" : "bound", o->worst);
    else
        printf("not checked");
    printf("%s\n", o->dense ? " (a dense step: idle rows move too)" : "");
}

static int write_tables(const struct step_flags *f, const struct table_set *s, struct error *err) {
    struct outputs o = {0};
    int status = table_files_write(&o, f->out, s, f->first + f->steps - 1, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

int step_command(int argc, char **argv, struct error *err) {
    struct step_flags f;
    struct step_inputs in;
    struct step_outcome outcome;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(f.kernel, err) : NULL;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    if (!f.first) f.first = in.steps_before + 1;
    status = step_run(&f, k, &in, &outcome, err);
    if (status == 0) status = write_tables(&f, &in.tables, err);
    if (status == 0) report(&f, &in, &outcome);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}
