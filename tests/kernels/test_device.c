/* SPDX-License-Identifier: MIT
 *
 * What device kernels and harness/device/device.h must do beyond the right result: a step can be
 * captured into a CUDA graph and replayed with other constants, a plan reads only ids, and an error
 * says in one line what failed, in which kernel and stage. Tests that need an emulated device are
 * skipped on a real one.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "tests/support/device_case.h"
#include "emulation/emulation.h"
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

/* A drawn batch of several tables, with the rules from the kernel's first one on. */
enum { SEVERAL_TABLES = 5 };

static void build(struct builder *b, const struct kernel *k) {
    const struct shape s = shape_drawn(SEVERAL_TABLES);
    shape_build(&s, k, true, b);
    builder_rules(b, k, first_rule(k));
    builder_start(b);
}

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

/* One capture replayed n times equals n steps; scratch stays as the previous step left it. After
 * the first step, too, sums are exact; each row is compared with its own past. */
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

/* Pinned and drawn shapes take every path from a batch to its launches. */
static void replay_as_eager(void **state) {
    enum { DRAWS = 5 };
    const struct kernel *k = kernel_of(state);
    for (int i = 0; i < num_shapes; i += 2) {
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

/* A captured step; it reads step constants and tables only at a replay. */
static cudaGraphExec_t captured(const struct device_job *job) {
    cudaStream_t stream = device_stream();
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    const struct launch how = {.threads = 1, .stream = stream, .scratch = job->scratch};
    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), 0);
    if (job->kernel->plan) assert_int_equal(job->kernel->plan(job->in, &how), 0);
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
    build(&b, k);
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

/* --- plan */

static int runs_nothing(const struct batch *in, const struct rule_step *steps,
                        const struct table *io, const struct launch *how) {
    (void)in, (void)steps, (void)io;
    stage_done(how, STAGE_UPDATE);
    return 0;
}

/* A plan has only the ids: there is no gradient yet, and it changes no table. */
static void plan_needs_ids_alone(void **state) {
    const struct kernel *k = kernel_of(state);
    if (!k->plan) skip();
    struct kernel planning = *k;
    planning.run = runs_nothing;
    struct builder b;
    struct device_case d;
    struct error err;
    build(&b, k);
    size_t bytes;
    void *before = builder_snapshot(&b, &bytes);
    must(device_case_create(&d, &b, k, &err), &err);
    struct batch no_grad = d.batch.batch;
    no_grad.grad = NULL;
    d.job.kernel = &planning;
    d.job.in = &no_grad;
    must(device_run(&d.job, NULL, NULL, &err), &err);
    must(device_case_get(&d, &err), &err);
    void *after = builder_snapshot(&b, &bytes);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    device_case_free(&d);
    builder_free(&b);
}

/* --- time */

/* However it is launched, a timed step is a whole step; an emulated device has no time for it. */
static void timed(void **state) {
    const struct kernel *k = kernel_of(state);
    struct builder b;
    struct device_case d;
    struct error err;
    struct device_times times;
    size_t bytes;
    build(&b, k);
    void *expected = eager(&b, k, 1, &bytes);
    builder_start(&b);
    must(device_case_create(&d, &b, k, &err), &err);
    for (int timing = TIMED_WHOLE; timing <= TIMED_REPLAY; timing++) {
        tables_reset(&b.tables);
        must(device_case_put(&d, &err), &err);
        must(device_time(&d.job, (enum timing)timing, &times, &err), &err);
        must(device_case_get(&d, &err), &err);
        compare(&b, k, expected);
        if (device_facts().emulated)
            assert_true(isnan(times.seconds)); /* not a time */
        else
            assert_true(times.seconds > 0 && times.seconds < 1);
        if (!device_facts().emulated && timing == TIMED_STAGES)
            assert_true(times.stage[STAGE_UPDATE] > 0);
    }
    free(expected);
    device_case_free(&d);
    builder_free(&b);
}

/* --- errors */

/* Runs part in a child process, which may lose the device, and returns its text. A part must not
 * start threads: a fork does not copy those of OpenMP. */
static void in_child(void (*part)(const struct device_job *job, char *text, size_t size),
                     const struct device_job *job, char *text, size_t size) {
    int ends[2], status;
    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char said[2200] = "";
        part(job, said, sizeof said);
        _exit(write(ends[1], said, strlen(said)) < 0);
    }
    close(ends[1]);
    ssize_t n = 0, used = 0;
    while ((n = read(ends[0], text + used, size - 1 - (size_t)used)) > 0) used += n;
    text[used] = 0;
    close(ends[0]);
    waitpid(child, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) fail_msg("the child ended with %x", status);
}

static void lose_device(const struct device_job *job, char *text, size_t size) {
    struct error first, second;
    emulation_fail_launch("e"); /* every kernel has a function with an e in its name */
    if (device_run(job, NULL, NULL, &first) == 0) return;
    int again = device_open(&second);
    snprintf(text, size, "%s\n%s\n", first.text, again ? second.text : "it opens");
}

/* The error names the kernel and its last stage; later calls do not use that device any more. */
static void error_of_the_device(void **state) {
    const struct kernel *k = kernel_of(state);
    if (!builder_emulates(k)) skip(); /* the test would break a real device */
    char text[2200], stage[200], planned[200];
    struct builder b;
    struct device_case d;
    struct error err;
    build(&b, k);
    must(device_case_create(&d, &b, k, &err), &err);
    in_child(lose_device, &d.job, text, sizeof text);
    device_case_free(&d);
    builder_free(&b);
    char *newline = strchr(text, '\n');
    assert_non_null(newline);
    *newline = 0;
    snprintf(stage, sizeof stage, "%s, after stage ", k->name);
    snprintf(planned, sizeof planned, "%s, plan: ", k->name);
    if (!(strstr(text, stage) || strstr(text, planned)) || !strstr(text, "cudaErrorIllegalAddress"))
        fail_msg("%s", text);
    if (strncmp(newline + 1, "the device is lost to an earlier error: ", 40) != 0 ||
        strchr(newline + 1, '\n')[1])
        fail_msg("%s", newline + 1);
}

/* Too large a request is refused before it is tried, with the figures. */
static void memory_that_is_not_there(void **state) {
    (void)state;
    struct error err;
    struct device_buffer b;
    must(device_open(&err), &err);
    bool emulated = device_facts().emulated;
    if (emulated) emulation_capacity((size_t)3 << 30);
    int64_t have = device_facts().free_memory;
    assert_int_equal(device_alloc(&b, (size_t)have + (1 << 30), "3 tables", &err), -1);
    char expected[200];
    snprintf(expected, sizeof expected,
             "3 tables: needs %.1f GiB of device memory, %.1f GiB are free",
             (double)(have + (1 << 30)) / (1 << 30), (double)have / (1 << 30));
    assert_string_equal(err.text, expected);
    struct table_shape shape = {.rows = have / 4, .dim = 3, .rule = RULE_adam, .features = 1};
    struct device_tables tables;
    assert_int_equal(device_tables_create(&tables, &shape, 1, &err), -1);
    assert_non_null(strstr(err.text, "the tables and their optimizer state need "));
    assert_true(device_facts().free_memory == have);
    if (emulated) emulation_capacity((size_t)8 << 30);
}

/* Guard zones; an emulated device has none, since such a write faults there at once. */
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

static void opens_again(void **state) {
    (void)state;
    struct error err;
    must(device_open(&err), &err);
    void *stream = device_stream();
    must(device_open(&err), &err);
    assert_ptr_equal(device_stream(), stream);
    struct device_facts f = device_facts();
    assert_true(f.capability >= OLDEST_CAPABILITY && f.memory >= f.free_memory && *f.name);
    print_message("# %s, compute capability %d.%d, driver %d, runtime %d\n", f.name,
                  f.capability / 10, f.capability % 10, f.driver, f.runtime);
}

TESTS(device) {
    add_test("opens again", opens_again, NULL, NULL);
    add_test("memory that is not there", memory_that_is_not_there, NULL, NULL);
    add_test("a write outside of a buffer", write_outside, NULL, NULL);
    add_kernel_tests_on(ON_DEVICE, "replayed", replay_as_eager, NULL);
    add_kernel_tests_on(ON_DEVICE, "replayed with new constants", replay_with_new_constants, NULL);
    add_kernel_tests_on(ON_DEVICE, "plan needs ids alone", plan_needs_ids_alone, NULL);
    add_kernel_tests_on(ON_DEVICE, "timed", timed, NULL);
    add_kernel_tests_on(ON_DEVICE, "error of the device", error_of_the_device, NULL);
    return run_listed("device");
}
