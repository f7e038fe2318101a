/* SPDX-License-Identifier: MIT
 *
 * embfuse forward: looks up and pools the rows of your own batch and tables, and checks the result
 * before it writes anything.
 */
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/session.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/forward.h"

static const char more[] =
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

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    const struct flag flags[] = {
        {"kernel", "NAME", "see embfuse list", &f->kernel},
        {"batch", "PREFIX", "read PREFIX.batch and its arrays", &f->batch},
        {"ids", "FILE", "[N] row numbers", &f->ids},
        {"offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]", &f->offsets},
        {"lookup-weights", "FILE", "[N] per-sample weights", &f->lookup_weights},
        {"pooling", "MODE", "sum, mean, none or max [sum]", &f->pooling},
        {"padding", "ID", "id that does not count as a lookup [-1: none]", &f->padding},
        {"tables", "PREFIX", "read the weights of all tables", &f->tables},
        {"weight", "FILE", "[rows][dim], instead of --tables", &f->weight},
        {"out", "PREFIX", "start of the name of the result", &f->out},
        {"winners", "FILE", "write the winners of pooling max here", &f->winners},
        {"threads", "T", "threads of a CPU kernel [all]", &f->threads_text},
        {"no-check", NULL, "skip the check and the search for NaN", &f->no_check},
    };
    const struct usage usage = {"forward", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    f->operation = OP_FORWARD;
    f->rule = "sgd"; /* no states */
    f->threads = omp_get_max_threads();
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err))
        return -1;
    f->zero_states = "";
    omp_set_num_threads((int)f->threads);
    if (f->winners && strcmp(f->winners, path_of(f->out, "output.npy").text) == 0)
        return fail(err, "--winners %.200s: the output goes there; take another name", f->winners);
    return outputs_check("--out", f->out, err) ||
                   (f->winners && outputs_check("--winners", f->winners, err))
               ? -1
               : 0;
}

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

static int write_output(const struct step_flags *f, const struct kernel *k, const struct batch *in,
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

int forward_command(int argc, char **argv, struct error *err) {
    struct step_flags f = {0};
    struct step_inputs in;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(OP_FORWARD, f.kernel, err) : NULL;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    status = session_output(&f, k, &in, write_output, err);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}
