/* SPDX-License-Identifier: MIT
 *
 * The measurement of device kernels, up to the sample that an emulated device refuses. The code
 * that admits and checks host kernels also does so here, on tables that are only on the device.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/device/device_ceiling.h"
#include "harness/device/device_fill.h"
#include "harness/measure/measure.h"
#include "harness/registry.h"
#include "emulation/emulation.h"
#include "tests/support/generate.h"
#include "tests/support/batch_builder.h"
#include "tests/support/kernel_tests.h"

static const char ragged[] = "workload w\ntables 2\nrows 300\ndim 20\nbatch 40\n"
                             "length uniform 0 9\nids zipf\nalpha 1\n";

struct bench {
    struct workload w;
    struct measure m;
};

/* 0, or -1 if the place cannot be opened. */
static int open_at(struct bench *b, enum rule_kind rule, enum backend place, struct error *err) {
    char text[300];
    snprintf(text, sizeof text, "%srule %s\n", ragged, rule_info(rule).name);
    b->w = generate(text, 2, GRAD_EXACT);
    if (measure_open(&b->m, &b->w, OP_STEP, GRAD_EXACT, 2, err)) fail_msg("%s", err->text);
    return measure_open_place(&b->m, place, err);
}

static void close_all(struct bench *b) {
    measure_close(&b->m);
    workload_free(&b->w);
}

static void admitted_and_checked(void **state) {
    const struct kernel_test *t = *state;
    struct bench b;
    struct error err = {""};
    for (int r = 0; r < RULE_COUNT; r++) {
        struct scratch_use use;
        struct check_result result;
        if (!builder_distinct(t->kernel, r)) continue;
        if (open_at(&b, (enum rule_kind)r, t->kernel->place, &err)) fail_msg("%s", err.text);
        if (kernel_refuses(t->kernel, &b.w.batches[0])) {
            close_all(&b);
            continue;
        }
        int status = measure_admit(&b.m, t->kernel, MODE_COLD, &use, &result, &err);
        if (status) fail_msg("%s: %s", rule_info(r).name, status < 0 ? err.text : result.message);
        assert_true(t->kernel->place == ON_HOST || use.graph.kernels > 0);
        for (int batch = 1; batch >= 0; batch--) /* the first check finds the rows restored */
            assert_int_equal(measure_check(&b.m, t->kernel, MODE_COLD, batch, &result, &err), 0);
        assert_null(b.m.at[t->kernel->place == ON_HOST ? ON_DEVICE : ON_HOST].place);
        close_all(&b);
    }
}

/* A step that nobody can judge, of an lr that makes every weight NaN, leaves no trace for the next kernel. */
static void undecided_step_leaves_no_trace(void **state) {
    const struct kernel_test *t = *state;
    struct bench b;
    struct error err = {""};
    struct scratch_use use;
    struct check_result result;
    if (!builder_distinct(t->kernel, RULE_ftrl)) skip();
    if (open_at(&b, RULE_ftrl, t->kernel->place, &err)) fail_msg("%s", err.text);
    const struct rule rule = b.m.rules[0];
    b.m.rules[0].param[RULE_LR] = 0;
    b.m.steps[0] = rule_step(b.m.rules[0], MEASURED_STEP);
    const int undecided = measure_admit(&b.m, t->kernel, MODE_COLD, &use, &result, &err);
    b.m.rules[0] = rule;
    b.m.steps[0] = rule_step(rule, MEASURED_STEP);
    const bool refused = kernel_refuses(t->kernel, &b.w.batches[0]);
    assert_int_equal(undecided, -1);
    assert_true(refused || strstr(err.text, "no finite value"));
    assert_int_equal(measure_admit(&b.m, t->kernel, MODE_COLD, &use, &result, &err),
                     refused ? -1 : 0);
    close_all(&b);
    if (refused) skip();
}

static int nothing(const struct batch *in, const struct rule_step *steps, const struct table *io,
                   const struct launch *how) {
    (void)in, (void)steps, (void)io;
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static int refused_launch(const struct batch *in, const struct rule_step *steps,
                          const struct table *io, const struct launch *how) {
    (void)in, (void)steps, (void)io, (void)how;
    return 9; /* cudaErrorInvalidConfiguration */
}

static size_t a_terabyte(const struct batch *shape, int threads) {
    (void)shape, (void)threads;
    return (size_t)1 << 40;
}

static struct kernel planted(const char *name) {
    return (struct kernel){.name = name, .place = ON_DEVICE, .run = nothing, .traits = 0};
}

static void idle_kernel_is_wrong(void **state) {
    (void)state;
    struct bench b;
    struct error err = {""};
    struct scratch_use use;
    struct check_result result;
    struct kernel k = planted("idle");
    assert_int_equal(open_at(&b, RULE_sgd, ON_DEVICE, &err), 0);
    assert_int_equal(measure_admit(&b.m, &k, MODE_COLD, &use, &result, &err), 1);
    assert_non_null(strstr(result.message, "table 0 row"));
    close_all(&b);
}

static void errors_are_told(void **state) {
    (void)state;
    struct bench b;
    struct error err = {""};
    struct scratch_use use;
    struct check_result result;
    struct kernel refused = planted("refused"), huge = planted("huge");
    refused.run = refused_launch;
    huge.scratch_bytes = a_terabyte;
    assert_int_equal(open_at(&b, RULE_sgd, ON_DEVICE, &err), 0);
    assert_int_equal(measure_admit(&b.m, &refused, MODE_COLD, &use, &result, &err), -1);
    assert_non_null(strstr(err.text, "refused, after stage none"));
    assert_int_equal(measure_admit(&b.m, &huge, MODE_COLD, &use, &result, &err), -1);
    assert_non_null(strstr(err.text, "scratch of huge: needs 1024.0 GiB of device memory"));
    assert_false(device_lost());
    close_all(&b);
}

/* measure_sample refuses an emulated device, so this test makes the calls of a sample itself. */
static void no_time_on_an_emulation(void **state) {
    const struct kernel_test *t = *state;
    struct bench b;
    struct error err = {""};
    struct scratch_use use;
    struct check_result result;
    struct sample sample;
    if (open_at(&b, RULE_sgd, ON_DEVICE, &err)) fail_msg("%s", err.text);
    assert_int_equal(measure_admit(&b.m, t->kernel, MODE_COLD, &use, &result, &err), 0);
    for (int mode = MODE_COLD; mode <= MODE_WARM; mode++) {
        assert_int_equal(measure_sample(&b.m, t->kernel, mode, 0, NULL, &sample, &err), -1);
        assert_non_null(strstr(err.text, "emulated"));
        struct place *p = b.m.at[ON_DEVICE].place;
        const struct place_job job = {.kernel = t->kernel,
                                      .batch = 1,
                                      .steps = b.m.steps,
                                      .scratch = &b.m.at[ON_DEVICE].scratch};
        if (p->ops->time(p, &job, mode == MODE_COLD, &sample.times, &err) ||
            p->ops->restore(p, t->kernel->traits & DENSE_STEP ? -1 : 1, &err))
            fail_msg("%s", err.text);
        assert_true(isnan(sample.times.seconds) && isnan(sample.times.replay));
        assert_int_equal(measure_check(&b.m, t->kernel, MODE_COLD, 1, &result, &err), 0);
    }
    close_all(&b);
}

/* The device's memory does not hold the tables; the host's does. */
static void too_small_a_device(void **state) {
    (void)state;
    struct bench b;
    struct error err = {""};
    emulation_capacity(1 << 14);
    assert_int_equal(open_at(&b, RULE_adam, ON_DEVICE, &err), -1);
    emulation_capacity((size_t)8 << 30);
    assert_non_null(strstr(err.text, "GiB of device memory"));
    assert_non_null(strstr(err.text, "are free"));
    assert_int_equal(measure_open_place(&b.m, ON_HOST, &err), 0);
    close_all(&b);
}

/* Rows that the device filled equal those of the host from the same seed, even after everything
 * that is measured beside a kernel has visited them. */
static void ceilings_leave_the_rows(void **state) {
    (void)state;
    for (int32_t dim = 7; dim <= 20; dim += 13) {
        struct error err = {""};
        struct table_shape shape = {.rows = 3000, .dim = dim, .rule = RULE_adam};
        struct device_tables d;
        struct device_fill fill;
        struct device_probe probe;
        struct table_set want, got;
        struct ceiling ceiling;
        double seconds;
        if (device_open(&err) || device_tables_create(&d, &shape, 1, &err) ||
            device_fill_open(&fill, &d, 42, &err) || device_fill_all(&fill, &err) ||
            device_probe_open(&probe, d.tables[0].weight.data, shape.rows, dim, &err) ||
            tables_create(&want, &shape, 1, 42, &err) || tables_create(&got, &shape, 1, 43, &err))
            fail_msg("%s", err.text);
        if (device_probe_measure(&probe, &ceiling, &err) ||
            device_probe_clock(&probe, &seconds, &err) || device_probe_flush(&probe, &err) ||
            device_tables_get(&d, got.tables, &err))
            fail_msg("%s", err.text);
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (want.buffers[a].bytes)
                assert_memory_equal(got.buffers[a].data, want.buffers[a].data,
                                    want.buffers[a].bytes);
        assert_true(device_tables_intact(&d));
        assert_true(ceiling.gather_gbs == 0); /* the roof is a model of the host */
        tables_free(&want);
        tables_free(&got);
        device_probe_close(&probe);
        device_fill_close(&fill);
        device_tables_free(&d);
    }
}

/* Only a clock that moved, or a copy far below the usual one, counts as a disturbance. */
static void disturbances(void **state) {
    (void)state;
    struct device_probe p = {.measured = 5, .copies = {3000, 3010, 2990, 3005, 100}};
    assert_false(device_probe_disturbed(&p, 1e-4, 1.04e-4, 2980));
    assert_true(device_probe_disturbed(&p, 1e-4, 1.06e-4, 2980));
    assert_true(device_probe_disturbed(&p, 1.06e-4, 1e-4, 2980));
    assert_true(device_probe_disturbed(&p, 1e-4, 1e-4, 2690));
    assert_false(device_probe_disturbed(&p, 1e-4, 1e-4, 2750));
}

TESTS(measure_device) {
    add_kernel_tests("is admitted and checked", admitted_and_checked, NULL);
    add_kernel_tests("an undecided step leaves no trace", undecided_step_leaves_no_trace, NULL);
    add_kernel_tests_on(ON_DEVICE, "has no time on an emulation", no_time_on_an_emulation, NULL);
    add_test("a kernel that does nothing is wrong", idle_kernel_is_wrong, NULL, NULL);
    add_test("errors of a launch and of memory are told", errors_are_told, NULL, NULL);
    add_test("a device that is too small leaves the host", too_small_a_device, NULL, NULL);
    add_test("rows are the host's, and ceilings leave them", ceilings_leave_the_rows, NULL, NULL);
    add_test("what disturbs a sample", disturbances, NULL, NULL);
    return run_listed("measure_device");
}
