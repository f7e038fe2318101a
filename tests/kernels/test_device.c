/* SPDX-License-Identifier: MIT
 *
 * What device kernels and harness/device/device.h must do beyond the right result: a step can be
 * captured into a CUDA graph and replayed with other constants, and a plan reads only ids. (A lost
 * device: tests/programs/test_device_programs.sh; too little memory: test_measure_device.c.)
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "tests/support/device_case.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

static const struct kernel *kernel_of(void **state) {
    return ((const struct kernel_test *)*state)->kernel;
}

/* Fails the test with the text of err unless status is 0. */
static void must(int status, const struct error *err) {
    if (status) fail_msg("%s", err->text);
}

static enum rule_kind first_rule(const struct kernel *k) {
    int rule = 0;
    while (!kernel_applies(k, (enum rule_kind)rule)) rule++;
    return (enum rule_kind)rule;
}

/* --- graphs */

/* The builder's tables after `steps` ordinary steps. */
static void *eager(struct builder *b, const struct kernel *k, int steps, size_t *bytes) {
    builder_start(b);
    for (int i = 0; i < steps; i++) {
        const char *wrong = builder_run(b, k, builder_way[0]);
        if (!wrong) wrong = builder_judge(b, k);
        if (wrong) fail_msg("eager step %d: %s", i + 1, wrong);
    }
    return builder_snapshot(b, bytes);
}

/* The bits of a step per lookup may differ from run to run, since its order of roundings is not
 * fixed; the oracle judges the one replayed step. */
static void compare(struct builder *b, const struct kernel *k, const void *expected) {
    if (k->traits & STEP_PER_LOOKUP) {
        const char *wrong = builder_judge(b, k);
        if (wrong) fail_msg("a replay: %s", wrong);
        return;
    }
    size_t bytes;
    void *now = builder_snapshot(b, &bytes);
    bool same = memcmp(now, expected, bytes) == 0;
    free(now);
    if (!same) fail_msg("a replay differs from the eager step");
}

/* One capture that is replayed n times equals n steps, although scratch is as the previous step left it. Sums are exact
 * in later steps, too, since builder_judge() compares each row with its content before the step. */
static void replay(const struct shape *s, const struct kernel *k, enum rule_kind rule) {
    const int replays = k->traits & STEP_PER_LOOKUP ? 1 : 2;
    struct builder b;
    struct device_case d;
    struct error err;
    struct device_graph graph;
    size_t bytes;
    shape_build(s, k, true, &b);
    builder_rules(&b, k, rule);
    void *expected = eager(&b, k, replays, &bytes);
    builder_start(&b);
    must(device_case_create(&d, &b, k, &err), &err);
    must(device_replay(&d.job, replays, &graph, &err), &err);
    must(device_case_get(&d, &err), &err);
    if (b.in.lookups > 0) assert_true(graph.kernels > 0);
    compare(&b, k, expected);
    device_case_free(&d);
    free(expected);
    builder_free(&b);
}

/* Together, shapes of the list and drawn ones take every path from a batch to its launches. */
static void replay_as_eager(void **state) {
    enum { DRAWS = 5 };
    const struct kernel *k = kernel_of(state);
    for (int i = 0; i < num_shapes; i += 4) {
        if (shapes[i].modes == REAL_ONLY) continue; /* other orders may give other bits */
        enum rule_kind rule = (enum rule_kind)(i % RULE_COUNT);
        replay(&shapes[i], k, kernel_applies(k, rule) ? rule : first_rule(k));
    }
    for (uint64_t seed = 1; seed <= 2 * DRAWS; seed += 2) {
        const struct shape s = shape_drawn(seed);
        enum rule_kind rule = (enum rule_kind)(3 * seed % RULE_COUNT);
        replay(&s, k, kernel_applies(k, rule) ? rule : first_rule(k));
    }
}

/* Captures a step, which reads step constants and tables only when it is replayed. Its plan gets no gradient. */
static cudaGraphExec_t captured(const struct device_job *job) {
    struct batch ids = *job->in;
    ids.grad = NULL;
    cudaStream_t stream = device_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const struct launch how = {.threads = 1, .stream = stream, .scratch = job->scratch};
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), 0);
    if (job->kernel->plan) assert_int_equal(job->kernel->plan(&ids, &how), 0);
    assert_int_equal(job->kernel->run(job->in, job->steps, job->io, &how), 0);
    assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), 0);
    assert_int_equal(cudaGraphDestroy(graph), 0);
    return exec;
}

/* One capture serves a whole training: step number and rates change between replays. */
static void replay_with_new_constants(void **state) {
    const struct kernel *k = kernel_of(state);
    struct builder b;
    struct device_case d;
    struct error err;
    const struct shape several_tables = shape_drawn(5);
    shape_build(&several_tables, k, true, &b);
    builder_rules(&b, k, first_rule(k));
    builder_start(&b);
    must(device_case_create(&d, &b, k, &err), &err);
    cudaGraphExec_t exec = captured(&d.job);
    for (int i = 0; i < 3; i++) {
        b.step += i;
        for (int t = 0; t < b.in.num_tables; t++) b.rules[t].param[RULE_LR] *= 0.5f;
        size_t bytes;
        void *expected = eager(&b, k, 1, &bytes);
        tables_reset(&b.tables);
        must(device_case_put(&d, &err), &err);
        assert_int_equal(cudaGraphLaunch(exec, device_stream()), 0);
        assert_int_equal(cudaStreamSynchronize(device_stream()), 0);
        must(device_case_get(&d, &err), &err);
        compare(&b, k, expected);
        free(expected);
    }
    assert_int_equal(cudaGraphExecDestroy(exec), 0);
    device_case_free(&d);
    builder_free(&b);
}

/* --- time: however it is launched, a timed step is a whole step */

static void timed(void **state) {
    const struct kernel *k = kernel_of(state);
    const struct shape several_tables = shape_drawn(5);
    struct builder b;
    struct device_case d;
    struct error err;
    struct device_times times;
    size_t bytes;
    shape_build(&several_tables, k, true, &b);
    builder_rules(&b, k, first_rule(k));
    void *expected = eager(&b, k, 1, &bytes);
    builder_start(&b);
    must(device_case_create(&d, &b, k, &err), &err);
    for (int timing = TIMED_WHOLE; timing <= TIMED_REPLAY; timing++) {
        tables_reset(&b.tables);
        must(device_case_put(&d, &err), &err);
        must(device_time(&d.job, (enum timing)timing, &times, &err), &err);
        must(device_case_get(&d, &err), &err);
        compare(&b, k, expected);
        assert_true(device_facts().emulated ? isnan(times.seconds) : times.seconds > 0);
    }
    free(expected);
    device_case_free(&d);
    builder_free(&b);
}

/* Guard zones show a write outside of a buffer. An emulated device needs none: the write itself faults there. */
static void write_outside(void **state) {
    (void)state;
    struct error err;
    struct device_buffer b;
    must(device_open(&err), &err);
    if (device_facts().emulated) skip();
    for (int side = 0; side < 2; side++) {
        must(device_alloc(&b, 1000, "a buffer", &err), &err);
        assert_true(device_intact(&b));
        char *at = side ? (char *)b.data + 1000 : (char *)b.data - 1;
        must(device_put(at, "x", 1, &err), &err);
        assert_false(device_intact(&b));
        device_free(&b);
    }
}

TESTS(device) {
    add_test("a write outside of a buffer", write_outside, NULL, NULL);
    add_kernel_tests_on(ON_DEVICE, "replayed", replay_as_eager, NULL);
    add_kernel_tests_on(ON_DEVICE, "replayed with new constants", replay_with_new_constants, NULL);
    add_kernel_tests_on(ON_DEVICE, "timed", timed, NULL);
    return run_listed("device");
}
