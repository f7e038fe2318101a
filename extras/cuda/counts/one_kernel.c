/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/one_kernel.h"

#include <stdlib.h>

#include "extras/cuda/counts/counts.h"
#include "harness/measure/measure.h"
#include "harness/registry.h"

/* One workload, in the memory of the device. */
struct setting {
    const struct spec *spec;
    struct workload workload;
    struct row_index index;
    struct rule *rules;
    struct rule_step *steps;
    struct place_setup setup;
    struct place *place;
};

static int setting_open(struct setting *s, const struct spec *spec, struct error *err) {
    *s = (struct setting){.spec = spec};
    if (workload_generate(spec, 1, GRAD_EXACT, &s->workload, err)) return -1;
    const struct workload *w = &s->workload;
    s->index = row_index_build(&w->batches[0]);
    s->rules = must_have(calloc((size_t)w->num_tables, sizeof *s->rules));
    s->steps = must_have(calloc((size_t)w->num_tables, sizeof *s->steps));
    for (int32_t t = 0; t < w->num_tables; t++) {
        s->rules[t] = workload_rule(w, t);
        s->steps[t] = rule_step(s->rules[t], MEASURED_STEP);
    }
    s->setup = (struct place_setup){.shapes = w->tables,
                                    .num_tables = w->num_tables,
                                    .batches = w->batches,
                                    .index = &s->index,
                                    .ring = 1,
                                    .threads = 1,
                                    .seed = w->seed};
    s->place = place_device_open(&s->setup, err);
    return s->place ? 0 : -1;
}

static void setting_close(struct setting *s) {
    if (s->place) s->place->ops->close(s->place);
    row_index_free(&s->index);
    free(s->rules);
    free(s->steps);
    workload_free(&s->workload);
}

static void write_counts(FILE *out, const struct setting *s, const struct kernel *k,
                         size_t scratch) {
    char labels[1024];
    const struct batch *in = &s->workload.batches[0];
    const struct traffic t = traffic_of(k->operation, in, &s->index);
    snprintf(labels, sizeof labels,
             "\"workload\": \"%s\", \"rule\": \"%s\", \"operation\": \"%s\", \"kernel\": \"%s\", "
             "\"lookups\": %lld, \"unique\": %lld, \"compulsory\": %lld, \"scratch\": %zu, ",
             s->workload.name, rule_info(s->spec->rule).name, operation_name(k->operation), k->name,
             (long long)in->lookups, (long long)s->index.rows, (long long)t.compulsory, scratch);
    counts_end(out, labels);
}

/* 0: right; 1: wrong; -1: could not run. err says why. */
static int check(struct setting *s, const struct place_job *job, struct error *err) {
    struct table_set shapes = {
        .count = s->workload.num_tables, .shapes = s->workload.tables, .seed = s->workload.seed};
    const struct check c = {.in = &s->workload.batches[0],
                            .index = &s->index,
                            .rules = s->rules,
                            .step = MEASURED_STEP,
                            .before = tables_initial_row,
                            .before_ctx = &shapes,
                            .exact = batch_sums_exact(&s->workload.batches[0], GRAD_EXACT)};
    struct check_result result;
    const int status = runner_check(s->place, job, c, &result, err);
    if (status > 0) fail(err, "%s: %.300s", job->kernel->name, result.message);
    return status;
}

static int run_with(struct setting *s, const struct kernel *k, struct place_scratch *scratch,
                    struct place_scratch *output, FILE *out, struct error *err) {
    if (runner_scratch_open(s->place, k, scratch, err) ||
        runner_output_open(s->place, &s->setup, k->operation, output, err))
        return -1;
    const struct place_job job = {.kernel = k,
                                  .steps = s->steps,
                                  .scratch = scratch,
                                  .output = k->operation != OP_STEP ? output : NULL};
    counts_begin();
    int status = runner_step(s->place, &job, POISON, err);
    write_counts(out, s, k, scratch->bytes);
    return status == 0 ? check(s, &job, err) : status;
}

static int run_kernel(struct setting *s, const struct kernel *k, FILE *out, struct error *err) {
    struct place_scratch scratch = {0}, output = {0};
    const int status = run_with(s, k, &scratch, &output, out, err);
    s->place->ops->scratch_close(s->place, &scratch);
    s->place->ops->scratch_close(s->place, &output);
    return status;
}

/* A dense step walks all rows of the tables, so small tables show as much as large ones. */
static bool too_dense(const struct setting *s, const struct kernel *k) {
    enum { ROWS_MOST = 50000 };
    int64_t rows = 0;
    for (int32_t t = 0; t < s->workload.num_tables; t++) rows += s->workload.tables[t].rows;
    return (k->traits & DENSE_STEP) && rows > ROWS_MOST;
}

static bool wanted(const struct setting *s, const struct kernel *k) {
    if (too_dense(s, k)) return false;
    return !kernel_refuses(k, &s->workload.batches[0]) && kernel_applies(k, s->spec->rule);
}

int one_kernel(const struct spec *spec, const struct kernel *k, FILE *out) {
    struct setting s;
    struct error err;
    int status = setting_open(&s, spec, &err);
    if (status == 0 && wanted(&s, k)) status = run_kernel(&s, k, out, &err);
    setting_close(&s);
    if (status == 0) return EXIT_FINE;
    fprintf(stderr, "%s: %s\n", spec->name, err.text);
    return status > 0 ? EXIT_WRONG_RESULT : EXIT_USAGE;
}
