/* SPDX-License-Identifier: MIT
 *
 * Clips gradients by their global norm, as torch.nn.utils.clip_grad_norm_ and tf.clip_by_global_norm: the
 * norm is over the summed gradients of all rows of all tables. A fused step never has all of these at
 * once, so a pass of the same kernel comes before it: sgd with lr -1 on weights of 0, which leaves each row's
 * summed gradient in its place. Squares and their sum are in double precision: none underflows. The step then has its
 * gradients scaled.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/step.h"

/* The rule of the pass. Decay of weights comes after clipping, so the pass has none. */
static struct rule rule_of_pass(const struct rule *r) {
    static const enum rule_shared kept[] = {GRAD_SCALE, CLIP_VALUE, CLIP_NORM};
    struct rule pass = rule_default(RULE_sgd);
    pass.param[RULE_LR] = -1;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        pass.shared[kept[i]] = r->shared[kept[i]];
    return pass;
}

/* Scales a limit or a scale of gradients; 0 stands for none. False: the result is out of range. */
static bool scale(struct rule *r, enum rule_shared which, double factor) {
    const struct rule_info info = rule_info(r->kind);
    const struct rule_param p = rule_hyper(&info, (int)RULE_PARAMS + (int)which);
    float *x = &r->shared[which];
    const bool given = *x != 0;
    *x = (float)(factor * *x);
    return !given || (*x >= FLT_MIN && rule_hyper_takes(&p, *x));
}

/* Scales an adjusted gradient: its limits scale with it. */
static int rule_scale_gradient(struct rule *r, const struct global_norm *norm, struct error *err) {
    if (r->shared[GRAD_SCALE] == 0) r->shared[GRAD_SCALE] = 1;
    const bool good = scale(r, GRAD_SCALE, norm->factor) && scale(r, CLIP_VALUE, norm->factor) &&
                      scale(r, CLIP_NORM, norm->factor);
    if (good) return 0;
    return fail(
        err,
        "--clip-global-norm: the norm is %.6g; gradients times %.6g, or their limits, are too "
        "small for single precision; take another limit",
        norm->norm, norm->factor);
}

static void clear(struct table_set *s) {
    for (int32_t t = 0; t < s->count; t++)
        for (int64_t row = 0; row < s->shapes[t].rows; row++)
            memset(array_row(&s->tables[t].weight, row), 0,
                   (size_t)s->shapes[t].dim * sizeof(float));
}

/* Adds in the order of the rows, so all kernels whose rows agree give the same norm. */
static double norm_of(const struct table_set *s) {
    double squares = 0;
    for (int32_t t = 0; t < s->count; t++)
        for (int64_t row = 0; row < s->shapes[t].rows; row++) {
            const float *g = array_row(&s->tables[t].weight, row);
            for (int32_t d = 0; d < s->shapes[t].dim; d++) squares += (double)g[d] * (double)g[d];
        }
    return sqrt(squares);
}

/* Runs and checks the pass on tables of its own. */
static int run_pass(const struct step_flags *f, const struct kernel *k, struct step_inputs *pass,
                    struct step_outcome *out, struct error *err) {
    struct step_flags once = *f;
    struct error why;
    once.first = once.steps = 1;
    once.global_norm = 0;
    const struct workload *w = &pass->workload;
    if (tables_create(&pass->tables, w->tables, w->num_tables, 0, err)) return -1;
    clear(&pass->tables);
    const int status = step_run(&once, k, pass, out, &why);
    if (status == 0 && out->undecided) why = out->first_undecided;
    if (status || out->undecided) fail(err, "the pass for the global norm: %.440s", why.text);
    return status ? status : out->undecided ? -1 : 0;
}

int global_norm_clip(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
                     struct global_norm *out, struct error *err) {
    const int32_t count = in->what.num_tables;
    struct step_inputs pass = *in;
    struct batch batch = in->workload.batches[0];
    struct step_outcome outcome = {0};
    struct table_shape *shapes = calloc((size_t)count, sizeof *shapes);
    struct rule *rules = calloc((size_t)count, sizeof *rules);
    int status = shapes && rules ? 0 : fail(err, "out of memory");
    for (int32_t t = 0; status == 0 && t < count; t++) {
        shapes[t] = in->workload.tables[t];
        rules[t] = rule_of_pass(&in->what.rules[t]);
        shapes[t].rule = rules[t].kind;
        shapes[t].weight_type = FP32;
    }
    pass.tables = (struct table_set){0};
    pass.what.rules = rules;
    batch.tables = shapes;
    pass.workload.tables = shapes;
    pass.workload.batches = &batch;
    if (status == 0) status = run_pass(f, k, &pass, &outcome, err);
    if (status == 0) {
        *out = (struct global_norm){norm_of(&pass.tables), 1, outcome.seconds};
        if (out->norm > f->global_norm) out->factor = f->global_norm / out->norm;
    }
    for (int32_t t = 0; status == 0 && out->factor < 1 && t < count; t++)
        status = rule_scale_gradient(&in->what.rules[t], out, err);
    tables_free(&pass.tables);
    free(shapes);
    free(rules);
    return status;
}
