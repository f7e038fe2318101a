/* SPDX-License-Identifier: MIT */
#include "cli/session.h"

#include <math.h>
#include <stdlib.h>

#include "harness/registry.h"

int session_open(struct session *s, const struct kernel *k, struct step_inputs *in,
                 const struct step_flags *f, struct error *err) {
    const struct batch *batch = &in->workload.batches[0];
    struct error why;
    *s = (struct session){.index = row_index_build(batch)};
    s->setup = (struct place_setup){.shapes = in->tables.shapes,
                                    .num_tables = in->tables.count,
                                    .batches = batch,
                                    .index = &s->index,
                                    .ring = 1,
                                    .threads = (int)f->threads,
                                    .tables = &in->tables};
    s->steps = calloc((size_t)in->what.num_tables, sizeof *s->steps);
    if (!s->steps) return fail(err, "out of memory");
    s->place = place_open(k->place, &s->setup, &why);
    if (!s->place)
        return k->place == ON_HOST ? fail(err, "%s", why.text)
                                   : fail(err, "%s runs on a device: %.400s", k->name, why.text);
    s->job = (struct place_job){.kernel = k, .steps = s->steps, .scratch = &s->scratch};
    if (!f->no_check && !f->no_tables &&
        tables_create(&s->before, s->setup.shapes, s->setup.num_tables, 0, err))
        return -1;
    if (runner_scratch_open(s->place, k, &s->scratch, err)) return -1;
    if (k->operation != OP_STEP) s->job.output = &s->output;
    return runner_output_open(s->place, &s->setup, k->operation, &s->output, err);
}

void session_close(struct session *s) {
    if (s->place) {
        s->place->ops->scratch_close(s->place, &s->scratch);
        s->place->ops->scratch_close(s->place, &s->output);
        s->place->ops->close(s->place);
    }
    tables_free(&s->before);
    row_index_free(&s->index);
    free(s->steps);
}

int session_run(struct session *s, double *seconds, struct error *err) {
    const struct place_ops *ops = s->place->ops;
    struct step_times times = {0};
    if (ops->scratch_fill(s->place, &s->scratch, POISON, err)) return -1;
    if (s->job.output && ops->scratch_fill(s->place, &s->output, UNWRITTEN, err)) return -1;
    const int status = ops->time(s->place, &s->job, false, &times, err);
    *seconds = times.seconds;
    return status;
}

/* True if all gradients and per-sample weights are values that exact mode makes (batch_fill.c). */
static bool made_exact(const struct batch *in) {
    bool exact = true;
    for (int64_t i = 0; exact && i < in->grad_elements; i++) {
        float units = batch_grad(in, i) * 64.0f;
        exact = units == rintf(units) && fabsf(units) <= 4.0f && !(units == 0 && signbit(units));
    }
    for (int64_t i = 0; exact && in->lookup_weights && i < in->lookups; i++) {
        float w = in->lookup_weights[i];
        exact = w == 0.5f || w == 1.0f || w == 2.0f;
    }
    return exact;
}

bool session_exact(const struct batch *in) {
    return batch_sums_exact(in, made_exact(in) ? GRAD_EXACT : GRAD_REAL);
}
