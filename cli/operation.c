/* SPDX-License-Identifier: MIT
 *
 * embfuse step, forward, gradient and weight-grad: what a kernel does with your own batch, checked by the oracle before
 * any file is written.
 */
#include <float.h>
#include <omp.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/outputs.h"
#include "cli/step.h"
#include "harness/registry.h"

/* --- flags */

enum { OPERATION_FLAGS_MAX = 32 };

/* The flags of f->operation, which point into f. Returns their number. */
static int operation_flags(struct step_flags *f, struct flag flags[OPERATION_FLAGS_MAX]) {
    enum {
        STEP = 1 << OP_STEP,
        FORWARD = 1 << OP_FORWARD,
        GRADIENT = 1 << OP_GRADIENT,
        WEIGHT = 1 << OP_WEIGHT_GRAD,
        ALL = STEP | FORWARD | GRADIENT | WEIGHT,
        TABLES = ALL - GRADIENT,
        GRADS = ALL - FORWARD
    };
    const struct {
        unsigned of;
        const char *name, *value, *help, **text;
    } all[] = {
        {ALL, "kernel", "NAME", "see embfuse list", &f->kernel},
        {STEP, "rule", "NAME", "rule of all tables; needed without --batch", &f->rule},
        {ALL, "batch", "PREFIX", "read PREFIX.batch and its arrays", &f->batch},
        {ALL, "ids", "FILE", "[N] row numbers", &f->files.ids},
        {ALL, "offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]",
         &f->files.offsets},
        {GRADS, "grad", "FILE", "[bags][dim]; with --pooling none [N][dim]", &f->files.grad},
        {GRADIENT, "rows", "V", "rows of the table", &f->rows_text},
        {GRADIENT, "dim", "D", "elements of a row", &f->dim_text},
        {ALL, "lookup-weights", "FILE", "[N] per-sample weights", &f->files.lookup_weights},
        {ALL - WEIGHT, "pooling", "MODE", "of the forward pass: sum, mean, none or max [sum]",
         &f->pooling},
        {WEIGHT, "pooling", "MODE", "of the forward pass: sum, mean or none [sum]", &f->pooling},
        {STEP | GRADIENT, "winners", "FILE", "[bags][dim] with pooling max: as forward writes them",
         &f->files.winners},
        {ALL, "padding", "ID", "id that does not count as a lookup [-1: none]", &f->padding},
        {STEP, "tables", "PREFIX", "read weights, states, and PREFIX.tables if it exists",
         &f->tables},
        {TABLES - STEP, "tables", "PREFIX", "read the weights of all tables", &f->tables},
        {TABLES, "weight", "FILE", "[rows][dim], instead of --tables", &f->weight},
        {STEP, "state", "FILE[,FILE]", "[rows][dim] for each per-element state", &f->state},
        {STEP, "row-state", "FILE", "[rows], or [rows][2] if the rule has two states per row",
         &f->row_state},
        {STEP, "zero-states", NULL, "ignore states: start as a new table, at step 1",
         &f->zero_states},
        {ALL, "out", "PREFIX", "start of the names of the results", &f->out},
        {FORWARD, "winners", "FILE", "write the winners of pooling max here", &f->files.winners},
        {STEP, "steps", "N", "steps with the same gradient [1]", &f->steps_text},
        {STEP, "first-step", "T", "number of the first step [1 + steps of PREFIX.tables, or 1]",
         &f->first_text},
        {ALL, "threads", "T", "threads of a CPU kernel [all]", &f->threads_text},
        {STEP, "clip-global-norm", "C",
         "scale gradients down to this norm over all rows [0: do not]", &f->global_norm_text},
        {ALL, "no-check", NULL, "skip the check and the search for NaN", &f->no_check},
    };
    enum { COUNT = sizeof all / sizeof *all };
    _Static_assert(COUNT <= (int)OPERATION_FLAGS_MAX, "room for all flags");
    int count = 0;
    for (int i = 0; i < COUNT; i++)
        if (all[i].of >> f->operation & 1)
            flags[count++] = (struct flag){all[i].name, all[i].value, all[i].help, all[i].text};
    return count;
}

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

/* A flag for each hyper-parameter of any rule. Returns their number. */
static int hyper_flags(struct step_flags *f, struct flag flags[HYPERS_MAX]) {
    static char help[HYPERS_MAX][HYPER_HELP_MAX];
    int h = 0;
    for (; hyper_name(h); h++) {
        hyper_help(hyper_name(h), help[h]);
        flags[h] = (struct flag){hyper_name(h), "X", help[h], &f->hyper[h]};
    }
    return h;
}

/* --- the commands */

static const char step_help[] =
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

static const char forward_help[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them, without the\n"
    "gradients), or --ids and --offsets for one table and one feature. Tables are\n"
    "--tables PREFIX (PREFIX.weight.npy, or PREFIX.weight.T.npy), by default the PREFIX of the\n"
    "batch, or --weight. ids and offsets are int32 or int64, --lookup-weights float32.\n"
    "The output has the shape and the type of the batch's gradients: [bags][sum of the\n"
    "features' dims]; with pooling none [ids][dim]. A bag without lookups is 0. mean divides by\n"
    "the lookups that are not padding. It is checked, then written to PREFIX.output.npy.\n"
    "max takes no --lookup-weights. Its winners, int32 in the shape of the output, are for step\n"
    "and gradient: for each column the number in its bag, from 0, of the lookup that has the\n"
    "largest element, the first of equals; -1 where no lookup counts or the pooling is not max.\n";

static const char gradient_help[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
    "--offsets and --grad for one table of --rows and --dim, and one feature. ids and offsets\n"
    "are int32 or int64, --grad float32, float16, or bf16 as uint16, --lookup-weights float32.\n"
    "A merged gradient has each row that was looked up once, ascending, with the sum of its\n"
    "gradients; an unmerged one has an entry for every lookup, in their order. Padding has none.\n"
    "It is checked, then written to PREFIX.rows.npy, int64 [entries], and PREFIX.values.npy,\n"
    "float32 [entries][dim]; with several tables to PREFIX.rows.T.npy and PREFIX.values.T.npy.\n";

static const char weight_grad_help[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
    "--offsets, --grad and --lookup-weights for one table and one feature. Tables are\n"
    "--tables PREFIX (PREFIX.weight.npy, or PREFIX.weight.T.npy), by default the PREFIX of the\n"
    "batch, or --weight. ids and offsets are int32 or int64, --lookup-weights float32.\n"
    "The result has the dot of each lookup's row with the gradient of its bag (pooling none: of\n"
    "the lookup); mean divides it by the lookups of the bag that are not padding. Padding has 0,\n"
    "but with pooling none it is a row like any other. It is checked, then written to\n"
    "PREFIX.weight_grad.npy, float32 [N]. It is of the rows before a step.\n";

static const struct {
    const char *name, *more; /* more: the end of the help */
} commands[OPERATIONS] = {
    [OP_STEP] = {"step", step_help},
    [OP_FORWARD] = {"forward", forward_help},
    [OP_GRADIENT] = {"gradient", gradient_help},
    [OP_WEIGHT_GRAD] = {"weight-grad", weight_grad_help},
};

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    struct flag flags[OPERATION_FLAGS_MAX + HYPERS_MAX];
    struct usage usage = {argv[0], NULL, commands[f->operation].more, flags,
                          operation_flags(f, flags)};
    if (f->operation == OP_STEP) usage.count += hyper_flags(f, flags + usage.count);
    const int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    f->command = usage.command;
    f->threads = omp_get_max_threads();
    f->steps = 1;
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err) ||
        outputs_check("--out", f->out, err) ||
        flag_whole("steps", f->steps_text, 1, 1000000, &f->steps, err) ||
        flag_whole("first-step", f->first_text, 1, 1000000000, &f->first, err))
        return -1;
    omp_set_num_threads((int)f->threads);
    if (f->global_norm_text &&
        number_read("C", false, 0, FLT_MAX, f->global_norm_text,
                    (struct where){"--clip-global-norm", 0}, &f->global_norm, err))
        return -1;
    if (f->operation == OP_STEP) return 0;
    f->rule = "sgd"; /* no states */
    f->zero_states = "";
    if (f->operation != OP_FORWARD || !f->files.winners) return 0;
    if (strcmp(f->files.winners, path_of(f->out, "output.npy").text) == 0)
        return fail(err, "--winners %.200s: the output goes there; take another name",
                    f->files.winners);
    return outputs_check("--winners", f->files.winners, err);
}

int operation_command(int argc, char **argv, struct error *err) {
    struct step_flags f = {0};
    struct step_inputs in;
    while (strcmp(commands[f.operation].name, argv[0]) != 0) f.operation++;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(f.operation, f.kernel, err) : NULL;
    f.no_tables = k && f.operation == OP_GRADIENT && k->place == ON_HOST;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    status = f.operation == OP_STEP ? step_apply(&f, k, &in, err) : output_apply(&f, k, &in, err);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status == 1 ? EXIT_WRONG_RESULT : status;
}
