/* SPDX-License-Identifier: MIT
 *
 * embfuse weight-grad: the gradient of the per-sample weights of your own batch and tables, checked before
 * it is written.
 */
#include <omp.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/session.h"
#include "harness/registry.h"

static const char more[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
    "--offsets, --grad and --lookup-weights for one table and one feature. Tables are\n"
    "--tables PREFIX (PREFIX.weight.npy, or PREFIX.weight.T.npy), by default the PREFIX of the\n"
    "batch, or --weight. ids and offsets are int32 or int64, --lookup-weights float32.\n"
    "The result has the dot of each lookup's row with the gradient of its bag (pooling none: of\n"
    "the lookup); mean divides it by the lookups of the bag that are not padding. Padding has 0,\n"
    "but with pooling none it is a row like any other. It is checked, then written to\n"
    "PREFIX.weight_grad.npy, float32 [N]. embfuse step --weight-grad writes it with a step.\n";

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    const struct flag flags[] = {
        {"kernel", "NAME", "see embfuse list", &f->kernel},
        {"batch", "PREFIX", "read PREFIX.batch and its arrays", &f->batch},
        {"ids", "FILE", "[N] row numbers", &f->ids},
        {"offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]", &f->offsets},
        {"grad", "FILE", "[bags][dim]; with --pooling none [N][dim]", &f->grad},
        {"lookup-weights", "FILE", "[N] per-sample weights", &f->lookup_weights},
        {"pooling", "sum|mean|none", "pooling of the forward pass [sum]", &f->pooling},
        {"padding", "ID", "id that does not count as a lookup [-1: none]", &f->padding},
        {"tables", "PREFIX", "read the weights of all tables", &f->tables},
        {"weight", "FILE", "[rows][dim], instead of --tables", &f->weight},
        {"out", "PREFIX", "start of the name of the result", &f->out},
        {"threads", "T", "threads of a CPU kernel [all]", &f->threads_text},
        {"no-check", NULL, "skip the check and the search for NaN", &f->no_check},
    };
    const struct usage usage = {"weight-grad", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    f->operation = OP_WEIGHT_GRAD;
    f->rule = "sgd"; /* no states */
    f->threads = omp_get_max_threads();
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err))
        return -1;
    f->zero_states = "";
    omp_set_num_threads((int)f->threads);
    return outputs_check("--out", f->out, err);
}

static int write_output(const struct step_flags *f, const struct kernel *k, const struct batch *in,
                        const void *output, struct error *err) {
    (void)k;
    struct outputs o = {0};
    int status = outputs_npy(&o, path_of(f->out, "weight_grad.npy").text, NPY_FLOAT32, 1,
                             &in->lookups, output, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

int weight_grad_command(int argc, char **argv, struct error *err) {
    struct step_flags f = {0};
    struct step_inputs in;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(OP_WEIGHT_GRAD, f.kernel, err) : NULL;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    status = session_output(&f, k, &in, write_output, err);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}
