/* SPDX-License-Identifier: MIT
 *
 * embfuse step: takes the steps, checks each by the oracle, and writes the tables.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/session.h"
#include "cli/table_files.h"
#include "harness/memory.h"

/* The report of all steps. */
struct step_outcome {
    double seconds;             /* the time of the last step */
    int64_t lookups;            /* without padding */
    int64_t distinct;           /* unique rows */
    bool checked, exact, dense; /* exact: all steps */
    double worst;               /* largest error / bound of all steps */
    int64_t undecided;          /* rows of all steps that the oracle has no bound for */
    struct error first_undecided;
};

/* Checks step t by the oracle: it led from s->before to the tables of the backend. */
static int check_one(struct session *s, const struct step_inputs *in, int64_t t,
                     struct step_outcome *out, struct error *err) {
    const struct check c = {.in = &in->workload.batches[0],
                            .index = &s->index,
                            .rules = in->what.rules,
                            .step = t,
                            .before = tables_copy_row,
                            .before_ctx = &s->before,
                            .exact = out->exact};
    struct check_result result;
    struct error why;
    int status = runner_check(s->place, &s->job, c, &result, &why);
    if (result.worst > out->worst) out->worst = result.worst;
    if (status < 0) fail(err, "step %lld: %s", (long long)t, result.message);
    if (status < 0 && result.undecided && !result.no_value && !result.unseen) {
        if (out->undecided == 0) out->first_undecided = *err;
        out->undecided += result.undecided;
        return 0;
    }
    if (status > 0)
        fail(err, "%s: wrong result at step %lld: %s", s->job.kernel->name, (long long)t,
             result.message);
    return status;
}

/* Checks each step: a row that is wrong after an early step could be right again after the last. */
static int run_all(const struct step_flags *f, struct session *s, struct step_inputs *in,
                   struct step_outcome *out, struct error *err) {
    int status = 0;
    for (int64_t t = f->first; status == 0 && t < f->first + f->steps; t++) {
        for (int32_t i = 0; i < in->what.num_tables; i++)
            s->steps[i] = rule_step(in->what.rules[i], t);
        if (out->checked) status = place_get_tables(s->place, &s->before, err);
        if (status == 0) status = session_run(s, &out->seconds, err);
        if (status == 0 && out->checked) status = check_one(s, in, t, out, err);
    }
    if (status == 0 && !s->place->ops->tables(s->place))
        status = place_get_tables(s->place, &in->tables, err);
    return status;
}

/* Runs the steps in place and checks each. 0: fine, -1: could not run, 1: wrong. */
static int step_run(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
                    struct step_outcome *out, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    struct session session;
    *out = (struct step_outcome){.checked = !f->no_check};
    int status = session_open(&session, k, in, f, err);
    out->lookups = session.index.lookups;
    out->distinct = session.index.rows;
    out->exact = session_exact(batch);
    for (int32_t t = 0; t < in->what.num_tables; t++)
        out->dense |= k->traits & DENSE_STEP && !rule_keeps_idle(&in->what.rules[t]);
    if (status == 0) status = run_all(f, &session, in, out, err);
    out->exact &= !(k->traits & STEP_PER_LOOKUP);
    session_close(&session);
    return status;
}

/* --- the clip of gradients by their global norm
 *
 * torch.nn.utils.clip_grad_norm_ and tf.clip_by_global_norm take the norm over the summed gradients of all rows of
 * all tables. A fused step never has all of these at once, so a pass of the same kernel comes before it: sgd with
 * lr -1 on weights of 0 leaves each row's summed gradient in its place. Squares and their sum are in double
 * precision, so that none underflows. The step then scales its gradients. */

struct global_norm {
    double norm;    /* over the summed gradients of all rows, adjusted but for decay of weights */
    double factor;  /* scales gradients; 1 if the norm is within its limit */
    double seconds; /* the time of the pass */
};

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

/* Measures the global norm with a pass of the kernel, and scales the gradients of in's rules down to
 * f->global_norm. Returns as step_run(). */
static int global_norm_clip(const struct step_flags *f, const struct kernel *k,
                            struct step_inputs *in, struct global_norm *out, struct error *err) {
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

/* --- the command */

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
    return outputs_end(&o, status, err);
}

static int require_steps(const struct description *d, int64_t last, struct error *err) {
    for (int32_t t = 0; t < d->num_tables; t++)
        if (!rule_has_step(d->tables[t].rule, last))
            return fail(err,
                        "step %lld: %s counts steps in a float of each row, so %d is the last one",
                        (long long)last, rule_info(d->tables[t].rule).name, RULE_COUNTED_STEPS);
    return 0;
}

int step_apply(struct step_flags *f, const struct kernel *k, struct step_inputs *in,
               struct error *err) {
    struct step_outcome outcome = {0};
    struct global_norm norm = {0};
    if (!f->first) f->first = in->steps_before + 1;
    const size_t bytes = (size_t)in->what.num_tables * sizeof(struct rule);
    struct rule *given = memcpy(must_have(malloc(bytes)), in->what.rules, bytes);
    int status = require_steps(&in->what, f->first + f->steps - 1, err);
    if (status == 0 && f->global_norm > 0) status = global_norm_clip(f, k, in, &norm, err);
    if (status == 0) status = step_run(f, k, in, &outcome, err);
    if (status == 0) status = write_results(f, in, given, err);
    if (status == 0) report(f, in, &norm, &outcome);
    free(given);
    if (status || !outcome.undecided) return status;
    *err = outcome.first_undecided;
    return EXIT_UNDECIDED;
}
