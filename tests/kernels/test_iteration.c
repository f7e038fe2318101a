/* SPDX-License-Identifier: MIT
 *
 * An iteration: the forward, the plan of a step and the step, run, timed and checked as one. With
 * max pooling its step reads the winners of its forward. (Those of the workload are others.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"
#include "tests/support/batch_builder.h"
#include "tests/support/bench_case.h"
#include "tests/support/kernel_tests.h"

static const char sums[] = "", maxima[] = "padding 2\npooling max\nfeatures 2\nrule sgd\n",
                  weights[] = "weighted 1\nrule sgd\n";

/* --- what is admitted and timed */

static double parts_of(const struct step_times *times) {
    double parts = times->forward + times->plan;
    for (int stage = 0; stage < STAGE_COUNT; stage++) parts += times->stage[stage];
    return parts;
}

/* Parts are timed by the clock of the sample, one after the other. */
static void sampled(struct bench *b, const struct kernel *k) {
    struct sample s;
    bench_must(measure_sample(&b->m, k, MODE_ITERATION, 1, NULL, &s, &b->err), b);
    assert_true(s.iteration && s.batch == 1);
    assert_true(s.times.forward > 0 && s.times.stage[STAGE_UPDATE] > 0);
    assert_true((s.times.plan > 0) == (k->plan != NULL));
    assert_true(parts_of(&s.times) <= 1.000001 * s.times.seconds);
    bench_must(measure_sample(&b->m, k, MODE_COLD, 0, NULL, &s, &b->err), b);
    assert_true(!s.iteration && s.times.forward == 0);
    /* A plan is no part of a step. */
    assert_true(parts_of(&s.times) - s.times.plan <= 1.000001 * s.times.seconds);
}

/* The emulation refuses a sample, so this makes its calls itself: all parts are timed, and run. */
static void timed_on_an_emulation(struct bench *b, const struct kernel *k) {
    struct step_times times;
    struct sample s;
    assert_int_equal(measure_sample(&b->m, k, MODE_ITERATION, 1, NULL, &s, &b->err), -1);
    struct place *p = b->m.at[ON_DEVICE].place;
    struct place_scratch *output = &b->m.at[ON_DEVICE].output;
    bench_must(p->ops->scratch_fill(p, output, POISON, &b->err), b);
    const struct place_job job = {.kernel = k,
                                  .forward = b->m.at[ON_DEVICE].forward,
                                  .batch = 1,
                                  .steps = b->m.steps,
                                  .scratch = &b->m.at[ON_DEVICE].scratch,
                                  .output = output};
    bench_must(p->ops->time(p, &job, true, &times, &b->err), b);
    bench_must(p->ops->restore(p, k->traits & DENSE_STEP ? -1 : 1, &b->err), b);
    assert_true(isnan(times.seconds) && isnan(times.forward) && isnan(times.stage[STAGE_UPDATE]));
    assert_true(k->plan ? isnan(times.plan) : times.plan == 0);
    unsigned char *written = malloc(output->bytes), poisoned = 0;
    bench_must(p->ops->scratch_get(p, output, written, &b->err), b);
    for (size_t i = 0; i < output->bytes; i++) poisoned |= written[i] != POISON;
    assert_true(poisoned);
    free(written);
}

static void admitted_and_timed(void **state) {
    const struct kernel_test *test = *state;
    const struct kernel *k = test->kernel;
    struct bench b;
    bench_must(bench_open(&b, test->param, OP_STEP, k->place), &b);
    if (kernel_refuses(k, &b.w.batches[0])) {
        bench_close(&b);
        skip();
    }
    bench_must(bench_admit(&b, k, MODE_COLD), &b);
    const struct scratch_use step = b.use;
    bench_must(bench_admit(&b, k, MODE_ITERATION), &b);
    assert_int_equal(b.use.declared, step.declared);
    if (k->place == ON_DEVICE) assert_int_equal(b.use.graph.kernels, step.graph.kernels + 1);
    for (int batch = 1; batch >= 0; batch--)
        bench_must(bench_check(&b, k, MODE_ITERATION, batch), &b);
    if (test->param == sums) (builder_emulates(k) ? timed_on_an_emulation : sampled)(&b, k);
    bench_must(bench_check(&b, k, MODE_ITERATION, 0), &b); /* rows were restored */
    bench_must(bench_check(&b, k, MODE_COLD, 0), &b);
    const struct kernel *forward = b.m.at[k->place].forward; /* see struct place_job */
    assert_true(forward->operation == OP_FORWARD && forward->place == k->place);
    assert_true(!forward->plan && !forward->scratch_bytes);
    bench_close(&b);
}

/* --- what is refused */

static const struct kernel *right;
static const struct batch *drawn;

/* Right but for the last element. */
static int wrong_forward(const struct batch *in, const struct rule_step *steps,
                         const struct table *io, const struct launch *how) {
    const int status = right->run(in, steps, io, how);
    ((float *)how->output)[in->grad_elements - 1] += 0.5f;
    return status;
}

/* The step is right, and its rows are: only the output shows it. */
static void wrong_output(void **state) {
    (void)state;
    struct bench b;
    bench_must(bench_open(&b, sums, OP_STEP, ON_HOST), &b);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &b.err);
    bench_must(bench_admit(&b, k, MODE_ITERATION), &b);
    right = b.m.at[ON_HOST].forward;
    struct kernel wrong = *right;
    wrong.run = wrong_forward;
    b.m.at[ON_HOST].forward = &wrong;
    assert_int_equal(bench_check(&b, k, MODE_ITERATION, 0), 1);
    bench_must(bench_check(&b, k, MODE_COLD, 0), &b);
    bench_close(&b);
}

/* A step that reads the workload's winners. */
static int run_drawn(const struct batch *in, const struct rule_step *steps, const struct table *io,
                     const struct launch *how) {
    (void)in;
    return right->run(drawn, steps, io, how);
}

static void a_step_of_other_winners_is_found(void **state) {
    (void)state;
    struct bench b;
    bench_must(bench_open(&b, maxima, OP_STEP, ON_HOST), &b);
    right = registry_find(OP_STEP, "cpu_sort", &b.err);
    struct kernel k = *right;
    k.run = run_drawn;
    drawn = &b.w.batches[0];
    bench_must(bench_admit(&b, &k, MODE_COLD), &b);
    assert_int_equal(bench_admit(&b, &k, MODE_ITERATION), 1);
    assert_non_null(strstr(b.result.message, "table"));
    bench_close(&b);
}

TESTS(iteration) {
    add_kernel_tests("an iteration is admitted and timed", admitted_and_timed, sums);
    add_kernel_tests("an iteration hands winners on", admitted_and_timed, maxima);
    add_kernel_tests("an iteration writes the gradient of weights", admitted_and_timed, weights);
    add_test("a wrong output", wrong_output, NULL, NULL);
    add_test("a step of other winners is found", a_step_of_other_winners_is_found, NULL, NULL);
    return run_listed("iteration");
}
