/* SPDX-License-Identifier: MIT */
#include "harness/measure/runner.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness/check/output_check.h"
#include "harness/registry.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"

int setup_scratch_bytes(const struct place_setup *setup, const struct kernel *k, size_t *bytes,
                        struct error *err) {
    size_t most = 0;
    for (int b = 0; b < setup->ring; b++) {
        const struct batch *in = &setup->batches[b];
        const char *why = kernel_refuses(k, in);
        if (why) return fail(err, "%s refuses this batch: %s", k->name, why);
        const size_t need = k->scratch_bytes ? k->scratch_bytes(in, setup->threads) : 0;
        if (need > most) most = need;
    }
    *bytes = most;
    return 0;
}

int runner_scratch_open(struct place *p, const struct kernel *k, struct place_scratch *out,
                        struct error *err) {
    char what[96];
    size_t bytes;
    if (p->ops->scratch_bytes(p, k, &bytes, err)) return -1;
    snprintf(what, sizeof what, "scratch of %s", k->name);
    return p->ops->scratch_open(p, out, bytes, what, err);
}

/* The bytes of the output. A gradient has room for the unmerged form, which is never the smaller one. */
static size_t output_bytes(enum operation operation, const struct batch *in) {
    int32_t *winners;
    if (operation == OP_GRADIENT) return gradient_lay_out(in, false, NULL, NULL);
    if (operation == OP_WEIGHT_GRAD) return (size_t)in->lookups * sizeof(float);
    return forward_lay_out(in, NULL, &winners);
}

int runner_output_open(struct place *p, const struct place_setup *setup, enum operation operation,
                       struct place_scratch *out, struct error *err) {
    size_t most = 0;
    if (operation == OP_STEP) return 0;
    for (int b = 0; b < setup->ring; b++) {
        const size_t bytes = output_bytes(operation, &setup->batches[b]);
        if (bytes > most) most = bytes;
    }
    return p->ops->scratch_open(p, out, most, "the output", err) ||
                   p->ops->scratch_fill(p, out, UNWRITTEN, err)
               ? -1
               : 0;
}

/* Stages must end in ascending order, and the last stage of the operation must end. */
struct watch {
    const struct place_job *job;
    int last;
    bool out_of_order;
};

static void stage_ended(void *ctx, enum stage ended) {
    struct watch *w = ctx;
    w->out_of_order |= (int)ended <= w->last;
    w->last = (int)ended;
    if (w->job->mark) w->job->mark(w->job->mark_ctx, ended);
}

int runner_step(struct place *p, const struct place_job *job, int fill, struct error *err) {
    struct watch watch = {.job = job, .last = -1};
    struct place_job watched = *job;
    watched.mark = stage_ended;
    watched.mark_ctx = &watch;
    if (fill != AS_IT_IS && p->ops->scratch_fill(p, job->scratch, fill, err)) return -1;
    if (job->output && p->ops->scratch_fill(p, job->output, UNWRITTEN, err)) return -1;
    if (p->ops->run(p, &watched, err)) return -1;
    static const int last[OPERATIONS] = {[OP_STEP] = STAGE_UPDATE,
                                         [OP_FORWARD] = -1,
                                         [OP_GRADIENT] = STAGE_REDUCE,
                                         [OP_WEIGHT_GRAD] = -1};
    if (!watch.out_of_order && watch.last == last[job->kernel->operation]) return 0;
    fail(err, "%s: stages ended out of order, or the last stage did not end", job->kernel->name);
    return 1;
}

static int fetch(const void *ctx, int32_t table, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    struct place *p = *(struct place *const *)ctx;
    return p->ops->get_rows(p, table, begin, end, rows, err);
}

/* Returns 0 if the output is right and nothing was written outside of it. *copy receives a copy of the output, or NULL;
 * the caller frees it. */
static int judge_output(struct place *p, const struct place_job *job, const struct check *c,
                        void **copy, struct check_result *out, struct error *err) {
    const struct place_scratch *written = job->output;
    struct error why;
    *copy = NULL;
    int status = p->ops->intact(p, job->batch, written, &why);
    if (status < 0) return fail(err, "%s: %.400s", job->kernel->name, why.text);
    if (status > 0) {
        snprintf(out->message, sizeof out->message, "output, %.380s", why.text);
        return 1;
    }
    *copy = malloc(written->bytes + 1);
    if (!*copy) return fail(err, "out of memory");
    if (p->ops->scratch_get(p, written, *copy, err)) return -1;
    const enum operation of = job->kernel->operation;
    const struct output o = {.data = *copy,
                             .bytes = written->bytes,
                             .filled = UNWRITTEN,
                             .merged = job->kernel->traits & MERGED,
                             .in_parts = p->sums_in_parts};
    /* the output of an iteration comes from its forward */
    *out = output_check(of == OP_STEP ? OP_FORWARD : of, c, &o);
    return !out->ok;
}

static int judge_rows(struct place *p, const struct place_job *job, struct check c,
                      struct check_result *out, struct error *err) {
    struct error why;
    struct row_run end = {0};
    const struct row_index nothing = {.run = &end};
    const double worst = out->worst;
    if (job->kernel->operation != OP_STEP) c.index = &nothing;
    c.after = p->ops->tables(p);
    c.fetch = fetch;
    c.fetch_ctx = &p;
    c.dense = job->kernel->traits & DENSE_STEP;
    c.per_lookup = job->kernel->traits & STEP_PER_LOOKUP;
    for (int32_t t = 0; t < c.in->num_tables; t++)
        if (c.per_lookup || (c.dense && !rule_keeps_idle(&c.rules[t]))) c.right = NULL;
    *out = c.after && !c.after->weight.data ? (struct check_result){.ok = true} : check_run(&c);
    if (worst > out->worst) out->worst = worst;
    if (out->unseen) return fail(err, "%s: %s", job->kernel->name, out->message);
    if (out->wrong) return 1;
    const int status = p->ops->intact(p, job->batch, job->scratch, &why);
    out->unseen = status < 0;
    out->ok &= status == 0;
    if (status) snprintf(out->message, sizeof out->message, "%.380s", why.text);
    if (status > 0 || out->ok) return status;
    return fail(err, "%s: %s", job->kernel->name, out->message);
}

int runner_check(struct place *p, const struct place_job *job, struct check c,
                 struct check_result *out, struct error *err) {
    struct batch iterated = *c.in;
    void *output = NULL;
    int status = 0;
    out->worst = 0;
    if (job->output) status = judge_output(p, job, &c, &output, out, err);
    if (status == 0 && job->forward) { /* the step has read the winners of its own forward */
        int32_t *winners;
        forward_lay_out(c.in, output, &winners);
        iterated.winners = winners;
        c.in = &iterated;
        if (winners) c.right = NULL; /* c.right belongs to the batch's own winners */
    }
    if (status == 0) status = judge_rows(p, job, c, out, err);
    free(output);
    return status;
}

int place_get_tables(struct place *p, struct table_set *to, struct error *err) {
    for (int32_t t = 0; t < to->count; t++)
        if (p->ops->get_rows(p, t, 0, to->shapes[t].rows, &to->tables[t], err)) return -1;
    return 0;
}
