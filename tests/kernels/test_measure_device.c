/* SPDX-License-Identifier: MIT
 *
 * The measurement of device kernels: what is refused and told, and what leaves rows alone. (Right
 * kernels: test_iteration.c.)
 */
#include <string.h>

#include "harness/device/device_ceiling.h"
#include "harness/device/device_fill.h"
#include "harness/registry.h"
#include "emulation/emulation.h"
#include "tests/support/batch_builder.h"
#include "tests/support/bench_case.h"
#include "tests/support/kernel_tests.h"

/* A step that nobody can judge, of an lr that makes every weight NaN, leaves no trace for the next
 * kernel. */
static void undecided_step_leaves_no_trace(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct bench b;
    if (!kernel_applies(k, RULE_ftrl)) skip();
    bench_must(bench_open(&b, "rule ftrl\n", OP_STEP, k->place), &b);
    const struct rule rule = b.m.rules[0];
    b.m.rules[0].param[RULE_LR] = 0;
    b.m.steps[0] = rule_step(b.m.rules[0], MEASURED_STEP);
    assert_int_equal(bench_admit(&b, k, MODE_COLD), -1);
    assert_non_null(strstr(b.err.text, "no finite value"));
    b.m.rules[0] = rule;
    b.m.steps[0] = rule_step(rule, MEASURED_STEP);
    bench_must(bench_admit(&b, k, MODE_COLD), &b);
    bench_close(&b);
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

/* A kernel that does nothing is wrong; errors of a launch and of memory are told. */
static void planted_kernels(void **state) {
    (void)state;
    struct bench b;
    struct kernel idle = {.name = "idle", .place = ON_DEVICE, .run = nothing},
                  refused = {.name = "refused", .place = ON_DEVICE, .run = refused_launch},
                  huge = idle;
    huge.scratch_bytes = a_terabyte;
    assert_int_equal(bench_open(&b, "rule sgd\n", OP_STEP, ON_DEVICE), 0);
    assert_int_equal(bench_admit(&b, &idle, MODE_COLD), 1);
    /* Threads judge the tables: the first one that finds a wrong row names it. */
    assert_true(strstr(b.result.message, "table 0 row") || strstr(b.result.message, "table 1 row"));
    assert_int_equal(bench_admit(&b, &refused, MODE_COLD), -1);
    assert_non_null(strstr(b.err.text, "refused, after stage none"));
    assert_int_equal(bench_admit(&b, &huge, MODE_COLD), -1);
    assert_non_null(strstr(b.err.text, "scratch of idle: needs 1024.0 GiB of device memory"));
    assert_false(device_lost());
    bench_close(&b);
}

/* The device's memory does not hold the tables; the host's does. */
static void too_small_a_device(void **state) {
    (void)state;
    struct bench b;
    emulation_capacity(1 << 14);
    assert_int_equal(bench_open(&b, "rule adam\n", OP_STEP, ON_DEVICE), -1);
    emulation_capacity((size_t)8 << 30);
    assert_non_null(strstr(b.err.text, "GiB of device memory"));
    assert_non_null(strstr(b.err.text, "are free"));
    assert_int_equal(measure_open_place(&b.m, ON_HOST, &b.err), 0);
    bench_close(&b);
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
    add_kernel_tests("an undecided step leaves no trace", undecided_step_leaves_no_trace, NULL);
    add_test("planted kernels", planted_kernels, NULL, NULL);
    add_test("a device that is too small leaves the host", too_small_a_device, NULL, NULL);
    add_test("rows are the host's, and ceilings leave them", ceilings_leave_the_rows, NULL, NULL);
    add_test("what disturbs a sample", disturbances, NULL, NULL);
    return run_listed("measure_device");
}
