/* SPDX-License-Identifier: MIT
 *
 * Iterations of the ranks that mpirun has started, measured, and predicted by extras/ranks/cost.h:
 *
 *   here SPEC REPS CUT ...      one rank: its local work is the fit of the model
 *   here SPEC REPS CUT=FIT ...  several ranks, with the fit that one rank has printed
 *
 * SPEC is the text of a workload, CUT a sharding, or one with +overlap. Prints a line of JSON for each. Links and local
 * speeds are calibrated with all ranks at work, before each median. No measured time of several ranks goes into their
 * prediction. One thread of a rank, cold caches, the better of two medians of REPS.
 */
#define _GNU_SOURCE
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/runner.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/workload.h"
#include "extras/ranks/calibrate.h"
#include "extras/ranks/place_ranks.h"
#include "extras/ranks/times.h"
#include "extras/ranks/planner.h"
#include "extras/ranks/program.h"

/* Local work of a sharding beside the calibrated speeds: shares of them, and the bytes in caches that
 * are gathered while a step groups one lookup. */
enum fit { FIT_IDS, FIT_OUTPUT, FIT_GRADIENT, FIT_LOOKUP, FIT_UPDATE, FIT_GROUPING, FITS };

struct cut {
    char sharding[256];
    bool overlap;
    double fit[FITS];
};

struct here {
    struct transport *transport;
    int argc;
    char **argv;
    int reps;
    struct workload workload;
    struct row_index index;
    struct rule_step *steps;
    struct machine machine;
};

/* Reads CUT, or CUT=FIT. */
static int read_cut(const char *word, bool fitted, struct cut *out, struct error *err) {
    static const char overlap[] = "+overlap";
    const size_t length = strcspn(word, "=");
    const char *numbers = word + length;
    if (length >= sizeof out->sharding || fitted != (*numbers == '='))
        return fail(err, "'%.60s': %s", word,
                    fitted ? "several ranks need a fit: CUT=NUMBER,..."
                           : "one rank has no fit yet");
    *out = (struct cut){.sharding = ""};
    memcpy(out->sharding, word, length);
    char *end = strstr(out->sharding, overlap);
    out->overlap = end != NULL;
    if (end) *end = 0;
    for (int i = 0; fitted && i < FITS; i++) {
        char *after;
        out->fit[i] = strtod(++numbers, &after);
        if (after == numbers || out->fit[i] < 0 || *after != (i + 1 < FITS ? ',' : 0))
            return fail(err, "'%.60s': a fit is %d numbers", word, FITS);
        numbers = after;
    }
    return 0;
}

static int by_seconds(const void *a, const void *b) {
    const struct rank_times *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* The iteration of the median. */
static int measure(struct here *h, const struct cut *cut, struct rank_times *out,
                   struct error *err) {
    const struct workload *w = &h->workload;
    const struct ranks_options options = {.sharding = cut->sharding, .overlap = cut->overlap};
    const struct place_setup setup = {.shapes = w->tables,
                                      .num_tables = w->num_tables,
                                      .batches = w->batches,
                                      .index = &h->index,
                                      .ring = 1,
                                      .threads = 1,
                                      .seed = w->seed};
    struct place *p = place_ranks_open(h->transport, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    struct place_scratch scratch = {0};
    const struct place_job job = {.kernel = registry_find(OP_STEP, "cpu_fused", err),
                                  .forward = registry_find(OP_FORWARD, "cpu_lookup_ahead", err),
                                  .steps = h->steps,
                                  .scratch = &scratch};
    struct rank_times *all = must_have(calloc((size_t)h->reps + 1, sizeof *all));
    int status = runner_scratch_open(p, job.kernel, &scratch, err);
    for (int i = -1; status == 0 && i < h->reps; i++) { /* the first one warms up */
        struct step_times times;
        status = p->ops->time(p, &job, true, &times, err);
        all[i < 0 ? 0 : i] = *place_ranks_times(p);
    }
    qsort(all, (size_t)h->reps, sizeof *all, by_seconds);
    *out = all[h->reps / 2];
    free(all);
    p->ops->scratch_close(p, &scratch);
    p->ops->close(p);
    return status;
}

/* Lengths travel with the ids. */
static void measured_stages(const struct rank_times *t, double stage[COST_STAGES]) {
    stage[COST_LENGTHS] = 0;
    stage[COST_IDS] = t->exchange[EXCHANGE_IDS].seconds;
    stage[COST_LOOKUP] = t->forward;
    stage[COST_OUTPUT] = t->exchange[EXCHANGE_OUTPUT].seconds;
    stage[COST_GRADIENT] = t->exchange[EXCHANGE_GRADIENT].seconds;
    stage[COST_UPDATE] = t->plan;
    for (int s = 0; s < STAGE_COUNT; s++) stage[COST_UPDATE] += t->stage[s];
}

static int predict(const struct here *h, const struct cut *cut, struct cost *out,
                   struct error *err) {
    const struct planner_options options = {.ring = 1};
    const double *fit = cut->fit;
    struct machine m = h->machine;
    m.pack[COST_LENGTHS] = m.pack[COST_IDS] = m.copy * fit[FIT_IDS];
    m.pack[COST_OUTPUT] = m.copy * fit[FIT_OUTPUT];
    m.pack[COST_GRADIENT] = m.copy * fit[FIT_GRADIENT];
    m.rows *= fit[FIT_LOOKUP];
    m.gather *= fit[FIT_LOOKUP];
    m.update = fit[FIT_UPDATE] / fit[FIT_LOOKUP];
    m.grouping = fit[FIT_GROUPING] / h->machine.gather;
    return planner_cost(cut->sharding, &m, h->workload.batches, &h->index, &options, out, err);
}

static double share(double predicted, double measured) {
    return predicted > 0 && measured > 0 ? predicted / measured : 1;
}

/* The fit that makes the prediction of one rank right. */
static int fit(const struct here *h, const struct rank_times *times,
               const double measured[COST_STAGES], struct cut *cut, struct error *err) {
    const double grouping = times->plan + times->stage[STAGE_INDEX];
    struct cost c;
    for (int i = 0; i < FITS; i++) cut->fit[i] = i == FIT_GROUPING ? 0 : 1;
    if (predict(h, cut, &c, err)) return -1;
    cut->fit[FIT_IDS] = share(c.stage[COST_LENGTHS] + c.stage[COST_IDS], measured[COST_IDS]);
    cut->fit[FIT_OUTPUT] = share(c.stage[COST_OUTPUT], measured[COST_OUTPUT]);
    cut->fit[FIT_GRADIENT] = share(c.stage[COST_GRADIENT], measured[COST_GRADIENT]);
    cut->fit[FIT_LOOKUP] = share(c.stage[COST_LOOKUP], measured[COST_LOOKUP]);
    cut->fit[FIT_UPDATE] = share(c.stage[COST_UPDATE], measured[COST_UPDATE] - grouping);
    cut->fit[FIT_GROUPING] = grouping * h->machine.gather / (double)h->workload.batches[0].lookups;
    return 0;
}

static void print_stages(const char *name, const double stage[COST_STAGES]) {
    printf(", \"%s\": {", name);
    for (int s = 0; s < COST_STAGES; s++)
        printf("%s\"%s\": %.6g", s ? ", " : "", cost_stage_names[s], stage[s]);
    printf("}");
}

static void print(const struct here *h, const struct cut *cut, const struct rank_times *times,
                  const double measured[COST_STAGES], const struct cost *c) {
    const struct machine *m = &h->machine;
    int64_t sent = 0;
    for (int e = 0; e < EXCHANGES; e++) sent += times->exchange[e].sent;
    printf("{\"ranks\": %d, \"nodes\": %d, \"cpus\": %ld, \"sharding\": \"%s\", \"overlap\": %s, "
           "\"bags\": %lld, \"measured\": %.6g, \"predicted\": %.6g, \"sent\": %lld, "
           "\"alpha\": [%.4g, %.4g], \"speed\": [%.4g, %.4g], \"copy\": %.4g, \"rows\": %.4g, "
           "\"gather\": %.4g, \"fit\": \"",
           m->ranks, m->nodes, sysconf(_SC_NPROCESSORS_ONLN), cut->sharding,
           cut->overlap ? "true" : "false", (long long)h->workload.batches[0].bags, times->seconds,
           c->seconds, (long long)sent, m->link[LINK_NODE].alpha, m->link[LINK_NETWORK].alpha,
           m->link[LINK_NODE].speed, m->link[LINK_NETWORK].speed, m->copy, m->rows, m->gather);
    for (int i = 0; i < FITS; i++) printf("%s%.5g", i ? "," : "", cut->fit[i]);
    printf("\"");
    print_stages("stages", c->stage);
    print_stages("measured_stages", measured);
    printf("}\n");
    fflush(stdout);
}

static int calibrate_again(struct here *h, struct error *err) {
    struct machine now;
    if (ranks_calibrate(h->transport, 1, &now, err)) return -1;
    calibrate_keep_best(&h->machine, &now);
    return 0;
}

/* What is measured of a cut: the better of two medians that are some time apart, since other work often disturbs all
 * iterations of a second. */
enum { ROUNDS = 2 };

struct sample {
    struct cut cut;
    struct rank_times times;
};

static int show(struct here *h, struct sample *s, struct error *err) {
    struct cost c;
    double measured[COST_STAGES];
    measured_stages(&s->times, measured);
    if ((h->transport->ranks == 1 && fit(h, &s->times, measured, &s->cut, err)) ||
        predict(h, &s->cut, &c, err))
        return -1;
    print(h, &s->cut, &s->times, measured, &c);
    return 0;
}

static int all(struct here *h, char *const *words, int count, struct error *err) {
    struct sample *samples = must_have(calloc((size_t)count, sizeof *samples));
    int status = 0;
    for (int i = 0; status == 0 && i < count; i++)
        status = read_cut(words[i], h->transport->ranks > 1, &samples[i].cut, err);
    for (int k = 0; status == 0 && k < ROUNDS * count; k++) {
        struct sample *s = &samples[k % count];
        struct rank_times times;
        status = calibrate_again(h, err);
        if (status == 0) status = measure(h, &s->cut, &times, err);
        if (k < count || times.seconds < s->times.seconds) s->times = times;
    }
    for (int i = 0; status == 0 && i < count; i++) status = show(h, &samples[i], err);
    free(samples);
    return status;
}

static int prepare(struct here *h, struct error *err) {
    struct spec_list list;
    const struct spec_overrides none = {0};
    if (spec_parse("SPEC", h->argv[1], strlen(h->argv[1]), &none, &list, err)) return -1;
    const int status = workload_generate(&list.specs[0], 1, GRAD_REAL, &h->workload, err);
    spec_list_free(&list);
    if (status) return -1;
    const struct workload *w = &h->workload;
    h->index = row_index_build(&w->batches[0]);
    h->steps = must_have(calloc((size_t)w->num_tables, sizeof *h->steps));
    for (int32_t t = 0; t < w->num_tables; t++) h->steps[t] = rule_step(workload_rule(w, t), 1);
    return 0;
}

static int lead(void *ctx) {
    enum { REPS_MOST = 10000 };
    struct here *h = ctx;
    struct error err;
    char *end = "x";
    const long reps = h->argc > 3 ? strtol(h->argv[2], &end, 10) : 0;
    if (*end || reps < 1 || reps > REPS_MOST) {
        fprintf(stderr, "usage: here SPEC REPS CUT ...\n");
        return EXIT_USAGE;
    }
    h->reps = (int)reps;
    int status = prepare(h, &err);
    if (status == 0) status = all(h, h->argv + 3, h->argc - 3, &err);
    if (status) fprintf(stderr, "here: %s\n", err.text);
    free(h->steps);
    row_index_free(&h->index);
    workload_free(&h->workload);
    return status ? EXIT_USAGE : EXIT_FINE;
}

int main(int argc, char **argv) {
    struct here h = {.transport = program_open(&argc, &argv)};
    if (!h.transport) return EXIT_USAGE;
    h.argc = argc;
    h.argv = argv;
    omp_set_num_threads(1);
    return program_run(h.transport, lead, &h);
}
