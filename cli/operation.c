/* SPDX-License-Identifier: MIT
 *
 * embfuse forward, gradient and weight-grad: what a kernel writes for your own batch, checked before any
 * file is written. They take the flags of embfuse step (step.c) that are of use to them.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/outputs.h"
#include "cli/session.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"

/* --- flags */

int operation_flags(struct step_flags *f, struct flag flags[OPERATION_FLAGS_MAX]) {
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
        struct flag flag;
    } all[] = {
        {ALL, {"kernel", "NAME", "see embfuse list", &f->kernel}},
        {STEP, {"rule", "NAME", "rule of all tables; needed without --batch", &f->rule}},
        {ALL, {"batch", "PREFIX", "read PREFIX.batch and its arrays", &f->batch}},
        {ALL, {"ids", "FILE", "[N] row numbers", &f->ids}},
        {ALL,
         {"offsets", "FILE",
          "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]", &f->offsets}},
        {GRADS, {"grad", "FILE", "[bags][dim]; with --pooling none [N][dim]", &f->grad}},
        {GRADIENT, {"rows", "V", "rows of the table", &f->rows_text}},
        {GRADIENT, {"dim", "D", "elements of a row", &f->dim_text}},
        {ALL, {"lookup-weights", "FILE", "[N] per-sample weights", &f->lookup_weights}},
        {ALL - WEIGHT,
         {"pooling", "MODE", "of the forward pass: sum, mean, none or max [sum]", &f->pooling}},
        {WEIGHT, {"pooling", "MODE", "of the forward pass: sum, mean or none [sum]", &f->pooling}},
        {STEP | GRADIENT,
         {"winners", "FILE", "[bags][dim] with pooling max: as forward writes them", &f->winners}},
        {ALL, {"padding", "ID", "id that does not count as a lookup [-1: none]", &f->padding}},
        {STEP,
         {"tables", "PREFIX", "read weights, states, and PREFIX.tables if it exists", &f->tables}},
        {TABLES - STEP, {"tables", "PREFIX", "read the weights of all tables", &f->tables}},
        {TABLES, {"weight", "FILE", "[rows][dim], instead of --tables", &f->weight}},
        {STEP, {"state", "FILE[,FILE]", "[rows][dim] for each per-element state", &f->state}},
        {STEP,
         {"row-state", "FILE", "[rows], or [rows][2] if the rule has two states per row",
          &f->row_state}},
        {STEP,
         {"zero-states", NULL, "ignore states: start as a new table, at step 1", &f->zero_states}},
        {ALL, {"out", "PREFIX", "start of the names of the results", &f->out}},
        {FORWARD, {"winners", "FILE", "write the winners of pooling max here", &f->winners}},
        {STEP, {"steps", "N", "steps with the same gradient [1]", &f->steps_text}},
        {STEP,
         {"first-step", "T", "number of the first step [1 + steps of PREFIX.tables, or 1]",
          &f->first_text}},
        {ALL, {"threads", "T", "threads of a CPU kernel [all]", &f->threads_text}},
        {STEP,
         {"clip-global-norm", "C", "scale gradients down to this norm over all rows [0: do not]",
          &f->global_norm_text}},
        {ALL, {"no-check", NULL, "skip the check and the search for NaN", &f->no_check}},
    };
    enum { COUNT = sizeof all / sizeof *all };
    _Static_assert(COUNT <= (int)OPERATION_FLAGS_MAX, "room for all flags");
    int count = 0;
    for (int i = 0; i < COUNT; i++)
        if (all[i].of >> f->operation & 1) flags[count++] = all[i].flag;
    return count;
}

int operation_parse(const struct usage *usage, int argc, char **argv, struct step_flags *f,
                    struct error *err) {
    const int status = flags_parse(usage, argc, argv, NULL, err);
    if (status) return status;
    f->command = usage->command;
    f->threads = omp_get_max_threads();
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err))
        return -1;
    omp_set_num_threads((int)f->threads);
    return outputs_check("--out", f->out, err);
}

/* --- what each of them writes */

static int output_shape(const struct step_flags *f, const struct batch *in, int64_t shape[2]) {
    const struct path offsets = path_of(f->batch ? f->batch : "", "offsets.npy");
    const int num_dims = batch_grad_shape(in, shape);
    if (batch_has_no_bags(f->batch ? offsets.text : f->offsets, in)) shape[0] = 0;
    return num_dims;
}

/* NO_WINNER in columns of other poolings, which the forward leaves alone. */
static int write_winners(struct outputs *o, const char *path, const struct batch *in, int num_dims,
                         const int64_t *shape, const int32_t *winners, struct error *err) {
    const size_t bytes = (size_t)in->grad_elements * sizeof *winners;
    int32_t *all = array_require(in->grad_elements, sizeof *all, path, err);
    if (!all) return -1;
    memset(all, 0xff, bytes); /* NO_WINNER */
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        const size_t row = (size_t)in->tables[x->table].dim * sizeof *all;
        for (int64_t b = 0; b < in->bags && x->pooling == POOL_MAX; b++)
            memcpy(all + forward_row(x, b), winners + forward_row(x, b), row);
    }
    const int status = outputs_npy(o, path, NPY_INT32, num_dims, shape, all, err);
    free(all);
    return status;
}

static int write_forward(const struct step_flags *f, const struct kernel *k, const struct batch *in,
                         const void *output, struct error *err) {
    (void)k;
    const enum npy_type type = npy_type_of(in->grad_type);
    struct outputs o = {0};
    int64_t shape[2];
    int32_t *winners;
    const int num_dims = output_shape(f, in, shape);
    forward_lay_out(in, (void *)output, &winners);
    int status =
        outputs_npy(&o, path_of(f->out, "output.npy").text, type, num_dims, shape, output, err);
    if (status == 0 && f->winners)
        status = write_winners(&o, f->winners, in, num_dims, shape, winners, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

/* PREFIX.NAME.npy, or PREFIX.NAME.T.npy if there are several tables. */
static struct path file_of(const char *prefix, const char *name, const struct batch *in,
                           int32_t t) {
    struct path p = path_of(prefix, name);
    if (in->num_tables > 1) text_add(p.text, sizeof p.text, ".%d", t);
    text_add(p.text, sizeof p.text, ".npy");
    return p;
}

static int write_gradient(const struct step_flags *f, const struct kernel *k,
                          const struct batch *in, const void *output, struct error *err) {
    struct sparse_gradient *of = malloc((size_t)in->num_tables * sizeof *of);
    struct outputs o = {0};
    int status = of ? 0 : fail(err, "out of memory");
    if (of) gradient_lay_out(in, k->traits & MERGED, (void *)output, of);
    for (int32_t t = 0; t < in->num_tables && status == 0; t++) {
        const int64_t shape[] = {*of[t].count, in->tables[t].dim};
        const struct path rows = file_of(f->out, "rows", in, t),
                          values = file_of(f->out, "values", in, t);
        status = outputs_npy(&o, rows.text, NPY_INT64, 1, shape, of[t].rows, err) ||
                         outputs_npy(&o, values.text, NPY_FLOAT32, 2, shape, of[t].values, err)
                     ? -1
                     : 0;
    }
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    free(of);
    return status;
}

static int write_weight_grad(const struct step_flags *f, const struct kernel *k,
                             const struct batch *in, const void *output, struct error *err) {
    (void)k;
    struct outputs o = {0};
    int status = outputs_npy(&o, path_of(f->out, "weight_grad.npy").text, NPY_FLOAT32, 1,
                             &in->lookups, output, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

/* --- the commands */

static const struct command {
    const char *more; /* end of the help */
    session_write *write;
} commands[OPERATIONS] = {
    [OP_FORWARD] =
        {"A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them, without the\n"
         "gradients), or --ids and --offsets for one table and one feature. Tables are\n"
         "--tables PREFIX (PREFIX.weight.npy, or PREFIX.weight.T.npy), by default the PREFIX of "
         "the\n"
         "batch, or --weight. ids and offsets are int32 or int64, --lookup-weights float32.\n"
         "The output has the shape and the type of the batch's gradients: [bags][sum of the\n"
         "features' dims]; with pooling none [ids][dim]. A bag without lookups is 0. mean divides "
         "by\n"
         "the lookups that are not padding. It is checked, then written to PREFIX.output.npy.\n"
         "max takes no --lookup-weights. Its winners, int32 in the shape of the output, are for "
         "step\n"
         "and gradient: for each column the number in its bag, from 0, of the lookup that has the\n"
         "largest element, the first of equals; -1 where no lookup counts or the pooling is not "
         "max.\n",
         write_forward},
    [OP_GRADIENT] =
        {"A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
         "--offsets and --grad for one table of --rows and --dim, and one feature. ids and "
         "offsets\n"
         "are int32 or int64, --grad float32, float16, or bf16 as uint16, --lookup-weights "
         "float32.\n"
         "A merged gradient has each row that was looked up once, ascending, with the sum of its\n"
         "gradients; an unmerged one has an entry for every lookup, in their order. Padding has "
         "none.\n"
         "It is checked, then written to PREFIX.rows.npy, int64 [entries], and PREFIX.values.npy,\n"
         "float32 [entries][dim]; with several tables to PREFIX.rows.T.npy and "
         "PREFIX.values.T.npy.\n",
         write_gradient},
    [OP_WEIGHT_GRAD] =
        {"A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
         "--offsets, --grad and --lookup-weights for one table and one feature. Tables are\n"
         "--tables PREFIX (PREFIX.weight.npy, or PREFIX.weight.T.npy), by default the PREFIX of "
         "the\n"
         "batch, or --weight. ids and offsets are int32 or int64, --lookup-weights float32.\n"
         "The result has the dot of each lookup's row with the gradient of its bag (pooling none: "
         "of\n"
         "the lookup); mean divides it by the lookups of the bag that are not padding. Padding has "
         "0,\n"
         "but with pooling none it is a row like any other. It is checked, then written to\n"
         "PREFIX.weight_grad.npy, float32 [N]. It is of the rows before a step.\n",
         write_weight_grad},
};

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    struct flag flags[OPERATION_FLAGS_MAX];
    const struct usage usage = {argv[0], NULL, commands[f->operation].more, flags,
                                operation_flags(f, flags)};
    const int status = operation_parse(&usage, argc, argv, f, err);
    if (status) return status;
    f->rule = "sgd"; /* no states */
    f->zero_states = "";
    if (f->operation != OP_FORWARD || !f->winners) return 0;
    if (strcmp(f->winners, path_of(f->out, "output.npy").text) == 0)
        return fail(err, "--winners %.200s: the output goes there; take another name", f->winners);
    return outputs_check("--winners", f->winners, err);
}

static int command(enum operation operation, int argc, char **argv, struct error *err) {
    struct step_flags f = {.operation = operation};
    struct step_inputs in;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(operation, f.kernel, err) : NULL;
    f.no_tables = k && operation == OP_GRADIENT && k->place == ON_HOST;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    status = session_output(&f, k, &in, commands[operation].write, err);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}

int forward_command(int argc, char **argv, struct error *err) {
    return command(OP_FORWARD, argc, argv, err);
}

int gradient_command(int argc, char **argv, struct error *err) {
    return command(OP_GRADIENT, argc, argv, err);
}

int weight_grad_command(int argc, char **argv, struct error *err) {
    return command(OP_WEIGHT_GRAD, argc, argv, err);
}
