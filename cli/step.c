/* SPDX-License-Identifier: MIT
 *
 * embfuse step: applies one kernel to your own batch and tables, and checks the result against the
 * oracle before it writes anything.
 */
#include "cli/step.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/table_files.h"
#include "harness/memory.h"
#include "harness/registry.h"

static const char more[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
    "--offsets and --grad for one table and one feature. A batch without lookups changes\n"
    "nothing, unless the step of the kernel is dense. Tables are --tables PREFIX (.weight.npy,\n"
    ".state.K.npy, .row_state.npy; several tables: .weight.T.npy ...), by default the PREFIX of\n"
    "the batch, or --weight for one table. Missing states start as in a new table. ids and\n"
    "offsets are int32 or int64, all other arrays are float32.\n"
    "Every step is checked against the oracle. Then step writes the tables as PREFIX.weight.npy\n"
    "and so on, and PREFIX.tables with the rules, their hyper-parameters and the number of steps\n"
    "taken. The next run continues from there (Adam's bias correction), with the same\n"
    "hyper-parameters where flags give no others, and refuses states of another rule.\n"
    "--out may be the PREFIX of the input: files are replaced when all are written and right.\n";

enum { HYPER_HELP_MAX = 40 * RULE_COUNT };

/* "of adam [0.001], sgd [0.01]" */
static void hyper_help(const char *name, char text[HYPER_HELP_MAX]) {
    strcpy(text, "of ");
    bool shared = false;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        const struct rule_info info = rule_info((enum rule_kind)rule);
        const int k = rule_hyper_of((enum rule_kind)rule, name);
        shared |= k >= RULE_PARAMS;
        if (k >= 0 && k < RULE_PARAMS)
            text_add(text, HYPER_HELP_MAX, "%s%s [%g]", text[3] ? ", " : "", info.name,
                     (double)info.params[k].preset);
    }
    if (shared)
        text_add(text, HYPER_HELP_MAX, "%s", text[3] ? ", all other rules [0]" : "all rules [0]");
}

static int flag_norm(const char *text, double *out, struct error *err) {
    const struct where flag = {"--clip-global-norm", 0};
    *out = 0;
    return text ? number_read("C", false, 0, FLT_MAX, text, flag, out, err) : 0;
}

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    struct flag flags[OPERATION_FLAGS_MAX + HYPERS_MAX];
    static char help[HYPERS_MAX][HYPER_HELP_MAX];
    struct usage usage = {"step", NULL, more, flags, operation_flags(f, flags)};
    for (int h = 0; hyper_name(h); h++) {
        hyper_help(hyper_name(h), help[h]);
        flags[usage.count++] = (struct flag){hyper_name(h), "X", help[h], &f->hyper[h]};
    }
    f->steps = 1;
    f->first = 0;
    const int status = operation_parse(&usage, argc, argv, f, err);
    if (status) return status;
    return flag_whole("steps", f->steps_text, 1, 1000000, &f->steps, err) ||
                   flag_whole("first-step", f->first_text, 1, 1000000000, &f->first, err) ||
                   flag_norm(f->global_norm_text, &f->global_norm, err)
               ? -1
               : 0;
}

static void print_rules(const struct description *d) {
    bool seen[RULE_COUNT] = {false};
    for (int32_t t = 0; t < d->num_tables; t++) {
        enum rule_kind kind = d->tables[t].rule;
        if (!seen[kind]) printf("%s%s", t ? "+" : "", rule_info(kind).name);
        seen[kind] = true;
    }
}

static void report(const struct step_flags *f, const struct step_inputs *in,
                   const struct global_norm *norm, const struct step_outcome *o) {
    printf("%s, ", f->kernel);
    print_rules(&in->what);
    printf(": %lld step%s from number %lld, %lld lookups, %lld distinct rows, ",
           (long long)f->steps, f->steps == 1 ? "" : "s", (long long)f->first,
           (long long)o->lookups, (long long)o->distinct);
    if (f->global_norm > 0) {
        printf("global norm %.6g, gradients times %.6g, ", norm->norm, norm->factor);
        if (!isnan(norm->seconds)) printf("%.3f ms its pass, ", 1e3 * norm->seconds);
    }
    if (!isnan(o->seconds)) printf("%.3f ms the last step, ", 1e3 * o->seconds);
    if (o->checked)
        printf("checked: %s, worst error/bound %.3g", o->exact ? "exact" : "bound", o->worst);
    else
        printf("not checked");
    if (o->undecided) printf(", %lld rows undecided", (long long)o->undecided);
    printf("%s\n", o->dense ? " (a dense step: idle rows move too)" : "");
}

/* rules: as they were given, without the scale of a clipped norm. */
static int write_results(const struct step_flags *f, const struct step_inputs *in,
                         struct rule *rules, struct error *err) {
    struct outputs o = {0};
    int status = table_files_write(&o, f->out, &in->tables, rules, f->first + f->steps - 1, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

static int require_steps(const struct description *d, int64_t last, struct error *err) {
    for (int32_t t = 0; t < d->num_tables; t++)
        if (!rule_has_step(d->tables[t].rule, last))
            return fail(err,
                        "step %lld: %s counts steps in a float of each row, so %d is the last one",
                        (long long)last, rule_info(d->tables[t].rule).name, RULE_COUNTED_STEPS);
    return 0;
}

int step_command(int argc, char **argv, struct error *err) {
    struct step_flags f = {0};
    struct step_inputs in;
    struct step_outcome outcome = {0};
    struct global_norm norm;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(OP_STEP, f.kernel, err) : NULL;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    if (!f.first) f.first = in.steps_before + 1;
    const size_t bytes = (size_t)in.what.num_tables * sizeof(struct rule);
    struct rule *given = memcpy(must_have(malloc(bytes)), in.what.rules, bytes);
    status = require_steps(&in.what, f.first + f.steps - 1, err);
    if (status == 0 && f.global_norm > 0) status = global_norm_clip(&f, k, &in, &norm, err);
    if (status == 0) status = step_run(&f, k, &in, &outcome, err);
    if (status == 0) status = write_results(&f, &in, given, err);
    if (status == 0) report(&f, &in, &norm, &outcome);
    free(given);
    step_inputs_free(&in);
    if (status == 0 && outcome.undecided) {
        *err = outcome.first_undecided;
        return EXIT_UNDECIDED;
    }
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}
