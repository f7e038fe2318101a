/* SPDX-License-Identifier: MIT
 *
 * embfuse gradient: the gradient of your own batch as rows and values, for another optimizer, checked
 * before it is written.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/flags.h"
#include "cli/outputs.h"
#include "cli/session.h"
#include "harness/registry.h"
#include "kernels/gradient.h"

static const char more[] =
    "A batch is --batch PREFIX (PREFIX.batch and its arrays, as gen writes them), or --ids,\n"
    "--offsets and --grad for one table of --rows and --dim, and one feature. ids and offsets\n"
    "are int32 or int64, --grad float32, float16, or bf16 as uint16, --lookup-weights float32.\n"
    "A merged gradient has each row that was looked up once, ascending, with the sum of its\n"
    "gradients; an unmerged one has an entry for every lookup, in their order. Padding has none.\n"
    "It is checked, then written to PREFIX.rows.npy, int64 [entries], and PREFIX.values.npy,\n"
    "float32 [entries][dim]; with several tables to PREFIX.rows.T.npy and PREFIX.values.T.npy.\n";

static int parse(int argc, char **argv, struct step_flags *f, struct error *err) {
    const struct flag flags[] = {
        {"kernel", "NAME", "see embfuse list", &f->kernel},
        {"batch", "PREFIX", "read PREFIX.batch and its arrays", &f->batch},
        {"ids", "FILE", "[N] row numbers", &f->ids},
        {"offsets", "FILE",
         "[bags + 1], from 0 to N: bag b is ids[offsets[b]] to ids[offsets[b+1]-1]", &f->offsets},
        {"grad", "FILE", "[bags][dim]; with --pooling none [N][dim]", &f->grad},
        {"rows", "V", "rows of the table", &f->rows_text},
        {"dim", "D", "elements of a row", &f->dim_text},
        {"lookup-weights", "FILE", "[N] per-sample weights", &f->lookup_weights},
        {"pooling", "MODE", "of the forward pass: sum, mean, none or max [sum]", &f->pooling},
        {"winners", "FILE", "[bags][dim] with pooling max: as forward writes them", &f->winners},
        {"padding", "ID", "id that does not count as a lookup [-1: none]", &f->padding},
        {"out", "PREFIX", "start of the names of the results", &f->out},
        {"threads", "T", "threads of a CPU kernel [all]", &f->threads_text},
        {"no-check", NULL, "skip the check and the search for NaN", &f->no_check},
    };
    const struct usage usage = {"gradient", NULL, more, flags, sizeof flags / sizeof *flags};
    int status = flags_parse(&usage, argc, argv, NULL, err);
    if (status) return status;
    f->operation = OP_GRADIENT;
    f->rule = "sgd"; /* no states */
    f->threads = omp_get_max_threads();
    if (flag_required("kernel", f->kernel, err) || flag_required("out", f->out, err) ||
        flag_whole("threads", f->threads_text, 1, 4096, &f->threads, err))
        return -1;
    f->zero_states = "";
    omp_set_num_threads((int)f->threads);
    return outputs_check("--out", f->out, err);
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

int gradient_command(int argc, char **argv, struct error *err) {
    struct step_flags f = {0};
    struct step_inputs in;
    int status = parse(argc, argv, &f, err);
    if (status > 0) return EXIT_FINE;
    const struct kernel *k = status == 0 ? registry_find(OP_GRADIENT, f.kernel, err) : NULL;
    f.no_tables = k && k->place == ON_HOST;
    if (!k || step_inputs_read(&f, &in, err)) return EXIT_USAGE;
    status = session_output(&f, k, &in, write_gradient, err);
    step_inputs_free(&in);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}
