/* SPDX-License-Identifier: MIT
 *
 * An iteration: the forward, the plan of a step and the step, run, timed and checked as one. And plans
 * of host kernels by themselves (those of device kernels: test_device.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/measure.h"
#include "harness/registry.h"
#include "kernels/forward.h"
#include "tests/support/batch_builder.h"
#include "tests/support/generate.h"
#include "tests/support/kernel_tests.h"
#include "tests/support/shapes.h"

static const char ragged[] =
    "workload w\ntables 2\nrows 300\ndim 20\nbatch 40\nlength uniform 0 9\nids zipf\nalpha 1\n";

struct bench {
    struct workload w;
    struct measure m;
    struct scratch_use use;
    struct check_result result;
    struct error err;
};

static void open_at(struct bench *b, enum operation operation, enum backend place) {
    memset(b, 0, sizeof *b);
    b->w = generate(ragged, 2, GRAD_EXACT);
    if (measure_open(&b->m, &b->w, operation, GRAD_EXACT, 2, &b->err) ||
        measure_open_place(&b->m, place, &b->err))
        fail_msg("%s", b->err.text);
}

static void close_all(struct bench *b) {
    measure_close(&b->m);
    workload_free(&b->w);
}

static void must(int status, const struct bench *b) {
    if (status) fail_msg("%s", status < 0 ? b->err.text : b->result.message);
}

/* --- what is admitted and timed */

static double parts_of(const struct step_times *times) {
    double parts = times->forward + times->plan;
    for (int stage = 0; stage < STAGE_COUNT; stage++) parts += times->stage[stage];
    return parts;
}

static void admitted_and_timed(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct bench b;
    struct sample s;
    struct scratch_use step;
    open_at(&b, OP_STEP, k->place);
    if (kernel_refuses(k, &b.w.batches[0])) {
        close_all(&b);
        skip();
    }
    must(measure_admit(&b.m, k, MODE_COLD, &step, &b.result, &b.err), &b);
    must(measure_admit(&b.m, k, MODE_ITERATION, &b.use, &b.result, &b.err), &b);
    assert_int_equal(b.use.declared, step.declared);
    if (k->place == ON_DEVICE) assert_int_equal(b.use.graph.kernels, step.graph.kernels + 1);
    for (int batch = 1; batch >= 0; batch--)
        must(measure_check(&b.m, k, MODE_ITERATION, batch, &b.result, &b.err), &b);
    const int status = measure_sample(&b.m, k, MODE_ITERATION, 1, NULL, &s, &b.err);
    if (builder_emulates(k)) {
        assert_int_equal(status, -1);
    } else {
        must(status, &b);
        /* Parts and the gaps between them are all of a sample. An interrupt can lengthen a gap, not every time. */
        double parts = parts_of(&s.times);
        for (int again = 0; again < 50 && parts < 0.8 * s.times.seconds - 2e-5; again++) {
            must(measure_sample(&b.m, k, MODE_ITERATION, 1, NULL, &s, &b.err), &b);
            parts = parts_of(&s.times);
        }
        assert_true(s.iteration && s.batch == 1);
        assert_true(s.times.forward > 0 && s.times.stage[STAGE_UPDATE] > 0);
        assert_true((s.times.plan > 0) == (k->plan != NULL));
        assert_true(parts <= 1.000001 * s.times.seconds && parts >= 0.8 * s.times.seconds - 2e-5);
        must(measure_sample(&b.m, k, MODE_COLD, 0, NULL, &s, &b.err), &b);
        assert_true(!s.iteration && s.times.forward == 0);
        /* A plan is no part of a step. */
        assert_true(parts_of(&s.times) - s.times.plan <= 1.000001 * s.times.seconds);
    }
    must(measure_check(&b.m, k, MODE_ITERATION, 0, &b.result, &b.err), &b); /* rows were restored */
    close_all(&b);
}

/* The emulation refuses a sample, so this test makes its calls itself: all parts are timed, and run. */
static void timed_on_an_emulation(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct bench b;
    struct step_times times;
    open_at(&b, OP_STEP, ON_DEVICE);
    if (kernel_refuses(k, &b.w.batches[0])) {
        close_all(&b);
        skip();
    }
    must(measure_admit(&b.m, k, MODE_ITERATION, &b.use, &b.result, &b.err), &b);
    struct place *p = b.m.at[ON_DEVICE].place;
    struct place_scratch *output = &b.m.at[ON_DEVICE].output;
    must(p->ops->scratch_fill(p, output, POISON, &b.err), &b);
    const struct place_job job = {.kernel = k,
                                  .forward = b.m.at[ON_DEVICE].forward,
                                  .batch = 1,
                                  .steps = b.m.steps,
                                  .scratch = &b.m.at[ON_DEVICE].scratch,
                                  .output = output};
    must(p->ops->time(p, &job, true, &times, &b.err), &b);
    assert_true(isnan(times.seconds) && isnan(times.forward) && isnan(times.stage[STAGE_UPDATE]));
    assert_true(k->plan ? isnan(times.plan) : times.plan == 0);
    unsigned char *written = malloc(output->bytes), poisoned = 0;
    must(p->ops->scratch_get(p, output, written, &b.err), &b);
    for (size_t i = 0; i < output->bytes; i++) poisoned |= written[i] != POISON;
    assert_true(poisoned);
    free(written);
    close_all(&b);
}

/* Bytes of both operations. */
static void traffic_of_both(void **state) {
    (void)state;
    struct bench b;
    open_at(&b, OP_STEP, ON_HOST);
    for (int k = 0; k < b.w.ring; k++) {
        const struct traffic f = traffic_of(OP_FORWARD, &b.w.batches[k], &b.m.index[k]);
        const struct traffic s = traffic_of(OP_STEP, &b.w.batches[k], &b.m.index[k]);
        assert_true(f.compulsory > 0 && f.compulsory < s.compulsory);
        assert_int_equal(b.m.forward_traffic[k].compulsory, f.compulsory);
        assert_int_equal(b.m.traffic[k].compulsory, s.compulsory);
    }
    close_all(&b);
}

/* --- what is refused */

static int wrong_run(const struct batch *in, const struct rule_step *steps, const struct table *io,
                     const struct launch *how) {
    (void)in, (void)steps, (void)io;
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static void wrong_step(void **state) {
    (void)state;
    const struct kernel wrong = {.name = "wrong", .place = ON_HOST, .run = wrong_run};
    struct bench b;
    open_at(&b, OP_STEP, ON_HOST);
    assert_int_equal(measure_admit(&b.m, &wrong, MODE_ITERATION, &b.use, &b.result, &b.err), 1);
    assert_null(strstr(b.result.message, "output"));
    close_all(&b);
}

static const struct kernel *right_forward;

/* Right but for the last element. */
static int wrong_forward(const struct batch *in, const struct rule_step *steps,
                         const struct table *io, const struct launch *how) {
    const int status = right_forward->run(in, steps, io, how);
    ((float *)how->output)[in->grad_elements - 1] += 0.5f;
    return status;
}

/* The step is right, and its rows are: only the output shows it. */
static void wrong_output(void **state) {
    (void)state;
    struct bench b;
    open_at(&b, OP_STEP, ON_HOST);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &b.err);
    must(measure_admit(&b.m, k, MODE_ITERATION, &b.use, &b.result, &b.err), &b);
    right_forward = b.m.at[ON_HOST].forward;
    struct kernel wrong = *right_forward;
    wrong.run = wrong_forward;
    b.m.at[ON_HOST].forward = &wrong;
    assert_int_equal(measure_check(&b.m, k, MODE_ITERATION, 0, &b.result, &b.err), 1);
    must(measure_check(&b.m, k, MODE_COLD, 0, &b.result, &b.err), &b);
    close_all(&b);
}

static void no_iteration_of_a_forward(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct bench b;
    open_at(&b, OP_FORWARD, k->place);
    assert_int_equal(measure_admit(&b.m, k, MODE_ITERATION, &b.use, &b.result, &b.err), -1);
    assert_non_null(strstr(b.err.text, "iteration"));
    close_all(&b);
}

/* What struct place_job says of the forwards of iterations. */
static void forwards_need_no_scratch(void **state) {
    (void)state;
    const enum backend places[] = {ON_HOST, ON_DEVICE};
    for (int p = 0; p < 2; p++) {
        const enum backend place = places[p];
        const struct registered *r = registry();
        while (r->kernel && (r->kernel->place != place || r->kernel->operation != OP_STEP)) r++;
        if (!r->kernel) continue; /* a build without kernels of that place */
        struct bench b;
        open_at(&b, OP_STEP, place);
        must(measure_admit(&b.m, r->kernel, MODE_ITERATION, &b.use, &b.result, &b.err), &b);
        const struct kernel *forward = b.m.at[place].forward;
        assert_true(forward->operation == OP_FORWARD && forward->place == place);
        assert_true(!forward->plan && !forward->scratch_bytes);
        close_all(&b);
    }
}

/* --- plans on the host */

/* A plan has only the ids: there is no gradient yet, and no table. One plan serves several steps, with
 * gradients that come to lie elsewhere; each gives the bits of cpu_fused. */
static void plans_need_ids_alone(void **state) {
    const struct kernel_test *t = *state;
    const struct shape *shape = t->param;
    const struct kernel *k = t->kernel;
    struct error err;
    struct builder b;
    struct buffer scratch;
    size_t bytes;
    shape_build(shape, k, shape->modes == EXACT_ONLY, &b);
    builder_rules(&b, k, RULE_rowwise_adagrad);
    const struct kernel *fused = registry_find(OP_STEP, "cpu_fused", &err);
    const char *wrong = builder_check(&b, fused, 2);
    if (wrong) fail_msg("%s", wrong);
    void *expected = builder_snapshot(&b, &bytes);
    const struct launch how = {.threads = 2};
    const size_t most = k->scratch_bytes(&b.in, how.threads);
    if (buffer_alloc(&scratch, most, "scratch", &err)) fail_msg("%s", err.text);
    memset(scratch.data, POISON, most);
    struct launch with = how;
    with.scratch = scratch.data;
    struct batch early = b.in;
    early.grad = NULL;
    assert_int_equal(k->plan(&early, &with), 0);
    memset(&early, 0x7f, sizeof early); /* the plan keeps no pointer to its batch */
    struct rule_step *steps = malloc((size_t)b.in.num_tables * sizeof *steps);
    for (int32_t i = 0; i < b.in.num_tables; i++) steps[i] = rule_step(b.rules[i], b.step);
    const size_t grad_bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type));
    for (int run = 0; run < 3; run++) {
        struct batch now = b.in;
        void *moved = malloc(grad_bytes + 1);
        memcpy(moved, b.in.grad, grad_bytes);
        now.grad = moved;
        builder_start(&b);
        assert_int_equal(k->run(&now, steps, b.tables.tables, &with), 0);
        void *after = builder_snapshot(&b, &bytes);
        assert_memory_equal(after, expected, bytes);
        free(after);
        free(moved);
    }
    assert_true(buffer_intact(&scratch));
    free(steps);
    buffer_free(&scratch);
    free(expected);
    builder_free(&b);
}

TESTS(iteration) {
    add_kernel_tests("an iteration is admitted and timed", admitted_and_timed, NULL);
    for (const struct registered *r = registry(); r->kernel; r++)
        if (r->kernel->operation == OP_STEP && builder_emulates(r->kernel))
            add_test("its parts run where they are timed", timed_on_an_emulation, r->kernel, NULL);
    add_operation_tests(OP_FORWARD, "no iteration", no_iteration_of_a_forward, NULL);
    add_test("traffic is that of both operations", traffic_of_both, NULL, NULL);
    add_test("a wrong step", wrong_step, NULL, NULL);
    add_test("a wrong output", wrong_output, NULL, NULL);
    add_test("forwards without scratch and plan", forwards_need_no_scratch, NULL, NULL);
    for (const struct registered *r = registry(); r->kernel; r++)
        for (int s = 0; r->kernel->place == ON_HOST && r->kernel->plan && s < num_shapes;
             s += SHAPE_STEP) {
            char name[100];
            snprintf(name, sizeof name, "plan of %s", shapes[s].name);
            add_test(name, plans_need_ids_alone, r->kernel, &shapes[s]);
        }
    return run_listed("iteration");
}
