/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "cli/session.h"

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
