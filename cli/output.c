/* SPDX-License-Identifier: MIT
 *
 * embfuse forward, gradient and weight-grad: runs the kernel, checks its output, and writes that.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/outputs.h"
#include "cli/session.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"

static int output_shape(const struct step_flags *f, const struct batch *in, int64_t shape[2]) {
    const struct path offsets = path_of(f->batch ? f->batch : "", "offsets.npy");
    const int num_dims = batch_grad_shape(in, shape);
    if (batch_has_no_bags(f->batch ? offsets.text : f->files.offsets, in)) shape[0] = 0;
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
        for (int64_t b = 0; b < x->bags && x->pooling == POOL_MAX; b++)
            memcpy(all + forward_row(x, b), winners + forward_row(x, b), row);
    }
    const int status = outputs_npy(o, path, NPY_INT32, num_dims, shape, all, err);
    free(all);
    return status;
}

static int write_forward(const struct step_flags *f, const struct kernel *k, const struct batch *in,
                         const void *output, struct outputs *o, struct error *err) {
    (void)k;
    const enum npy_type type = npy_type_of(in->grad_type);
    int64_t shape[2];
    int32_t *winners;
    const int num_dims = output_shape(f, in, shape);
    forward_lay_out(in, (void *)output, &winners);
    int status =
        outputs_npy(o, path_of(f->out, "output.npy").text, type, num_dims, shape, output, err);
    return status || !f->files.winners
               ? status
               : write_winners(o, f->files.winners, in, num_dims, shape, winners, err);
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
                          const struct batch *in, const void *output, struct outputs *o,
                          struct error *err) {
    struct sparse_gradient *of = malloc((size_t)in->num_tables * sizeof *of);
    int status = of ? 0 : fail(err, "out of memory");
    if (of) gradient_lay_out(in, k->traits & MERGED, (void *)output, of);
    for (int32_t t = 0; t < in->num_tables && status == 0; t++) {
        const int64_t shape[] = {*of[t].count, in->tables[t].dim};
        const struct path rows = file_of(f->out, "rows", in, t),
                          values = file_of(f->out, "values", in, t);
        status = outputs_npy(o, rows.text, NPY_INT64, 1, shape, of[t].rows, err) ||
                         outputs_npy(o, values.text, NPY_FLOAT32, 2, shape, of[t].values, err)
                     ? -1
                     : 0;
    }
    free(of);
    return status;
}

static int write_weight_grad(const struct step_flags *f, const struct kernel *k,
                             const struct batch *in, const void *output, struct outputs *o,
                             struct error *err) {
    (void)k;
    return outputs_npy(o, path_of(f->out, "weight_grad.npy").text, NPY_FLOAT32, 1, &in->lookups,
                       output, err);
}

static int check_output(struct session *s, const struct step_inputs *in, bool exact, double *worst,
                        struct error *err) {
    const struct check c = {.in = &in->workload.batches[0],
                            .index = &s->index,
                            .rules = in->what.rules,
                            .step = 1,
                            .before = tables_copy_row,
                            .before_ctx = &s->before,
                            .exact = exact};
    struct check_result result = {0};
    const int status = runner_check(s->place, &s->job, c, &result, err);
    *worst = result.worst;
    if (status > 0) fail(err, "%s: wrong result: %s", s->job.kernel->name, result.message);
    return status;
}

static void print_output(const struct step_flags *f, const struct session *s, double seconds,
                         bool exact, double worst) {
    printf("%s: %lld lookups, %lld distinct rows, ", f->kernel, (long long)s->index.lookups,
           (long long)s->index.rows);
    if (!isnan(seconds)) printf("%.3f ms, ", 1e3 * seconds);
    if (f->no_check)
        printf("not checked\n");
    else
        printf("checked: %s, worst error/bound %.3g\n", exact ? "exact" : "bound", worst);
}

int output_apply(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
                 struct error *err) {
    static int (*const write[OPERATIONS])(const struct step_flags *, const struct kernel *,
                                          const struct batch *, const void *, struct outputs *,
                                          struct error *) = {[OP_FORWARD] = write_forward,
                                                             [OP_GRADIENT] = write_gradient,
                                                             [OP_WEIGHT_GRAD] = write_weight_grad};
    const struct batch *batch = &in->workload.batches[0];
    const bool exact = operation_has_order(k->operation) || session_exact(batch);
    struct session s;
    double seconds = NAN, worst = 0;
    void *output = NULL;
    struct outputs files = {0};
    int status = session_open(&s, k, in, f, err);
    if (status == 0 && s.before.tables) status = place_get_tables(s.place, &s.before, err);
    if (status == 0) status = session_run(&s, &seconds, err);
    if (status == 0 && !f->no_check) status = check_output(&s, in, exact, &worst, err);
    if (status == 0 && !(output = malloc(s.output.bytes + 1))) status = fail(err, "out of memory");
    if (status == 0) status = s.place->ops->scratch_get(s.place, &s.output, output, err);
    if (status == 0) status = write[k->operation](f, k, batch, output, &files, err);
    status = outputs_end(&files, status, err);
    if (status == 0) print_output(f, &s, seconds, exact, worst);
    free(output);
    session_close(&s);
    return status;
}
