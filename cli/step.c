/* SPDX-License-Identifier: MIT
 *
 * embfuse step: takes the steps, checks each by the oracle, and writes the tables.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/session.h"
#include "cli/table_files.h"
#include "harness/memory.h"

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
        if (out->checked) status = session_remember(s, err);
        if (status == 0) status = session_run(s, &out->seconds, err);
        if (status == 0 && out->checked) status = check_one(s, in, t, out, err);
    }
    if (status == 0 && !s->place->ops->tables(s->place))
        status = place_get_tables(s->place, &in->tables, err);
    return status;
}

int step_run(const struct step_flags *f, const struct kernel *k, struct step_inputs *in,
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
    struct global_norm norm;
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
