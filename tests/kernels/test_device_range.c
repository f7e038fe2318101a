/* SPDX-License-Identifier: MIT
 *
 * The ranges that a profiler sees: a step is in one of them, and nothing else. This program takes the place of the
 * profiler: NVTX calls InitializeInjectionNvtx2_fnptr where it is defined.
 */
#include <stdio.h>
#include <string.h>

#include "harness/device/device.h"
#include "harness/device/device_range.h"

#include "tests/support/cmocka_cases.h"

#if __has_include(<nvtx3/nvToolsExt.h>)

static char seen[400]; /* "(step run )": what happened, and in which ranges */

static void note(const char *what) {
    strncat(seen, what, sizeof seen - strlen(seen) - 1);
}

static int NVTX_API push(const char *name) {
    note("(");
    note(name);
    note(" ");
    return 0;
}

static int NVTX_API pop(void) {
    note(") ");
    return 0;
}

static int NVTX_API attach(NvtxGetExportTableFunc_t table) {
    const NvtxExportTableCallbacks *callbacks = table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable functions;
    unsigned count;
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count)) return 0;
    *functions[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)(void (*)(void))push;
    *functions[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)(void (*)(void))pop;
    return 1;
}

extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

static int plan(const struct batch *in, const struct launch *how) {
    (void)in, (void)how;
    note("plan ");
    return 0;
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    (void)in, (void)steps, (void)io;
    note("run ");
    stage_done(how, STAGE_UPDATE);
    return 0;
}

static int flush(const void *ctx, struct error *err) {
    (void)ctx, (void)err;
    note("flush ");
    return 0;
}

static void see(const char *expected) {
    assert_string_equal(seen, expected);
    seen[0] = 0;
}

static void steps_are_in_ranges(void **state) {
    (void)state;
    const struct kernel kernel = {.name = "k", .place = ON_DEVICE, .plan = plan, .run = run};
    const struct batch in = {0};
    const struct device_job job = {.kernel = &kernel, .in = &in, .before_run = flush};
    struct device_times times;
    struct error err;
    if (device_run(&job, NULL, NULL, &err)) fail_msg("%s", err.text);
    see("(plan plan ) (step run ) ");
    if (device_time(&job, TIMED_WHOLE, &times, &err)) fail_msg("%s", err.text);
    see("plan flush (step run ) ");
    if (device_time(&job, TIMED_STAGES, &times, &err)) fail_msg("%s", err.text);
    see("plan flush (step run ) ");
    if (device_time(&job, TIMED_REPLAY, &times, &err)) fail_msg("%s", err.text);
    see("plan run flush (replay ) "); /* the run is captured before */
}

#else

static void steps_are_in_ranges(void **state) {
    (void)state;
    print_message("# no nvtx3/nvToolsExt.h\n");
    skip();
}

#endif

TESTS(device_range) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_in_ranges)};
    return cmocka_run_group_tests_name("device_range", tests, NULL, NULL);
}
