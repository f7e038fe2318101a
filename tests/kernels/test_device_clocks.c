/* SPDX-License-Identifier: MIT
 *
 * The clocks of the device, from a stand-in for NVIDIA's management library
 * (tests/kernels/nvml/nvml.c): those of the device that CUDA opened, whatever the order in which
 * the library knows devices.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/device/device.h"
#include "harness/device/device_clocks.h"

#include "tests/support/cmocka_cases.h"

enum { POWER_CAP = 0x04, HEAT = 0x40 };

/* Once it is loaded, the harness finds it by its name alone. */
static void *library(const char *name) {
    const char *build = getenv("BUILD");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/nvml/libnvidia-ml.so.1", build ? build : "build");
    void *nvml = dlopen(path, RTLD_NOW);
    if (!nvml) fail_msg("%s", dlerror());
    void *symbol = dlsym(nvml, name);
    assert_non_null(symbol);
    return symbol;
}

static void open_device(void) {
    struct error err;
    if (device_open(&err)) fail_msg("%s", err.text);
}

/* In a child, because a process loads the library once. */
static void a_library_that_fails(void **state) {
    (void)state;
    int *status = library("nvml_status"), ended;
    open_device();
    const pid_t child = fork();
    if (child == 0) {
        *status = 1;
        const struct device_clocks c = device_clocks();
        _exit(c.sm_mhz == -1 && c.memory_mhz == -1 && c.limits == -1 && !c.throttled ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
}

static void of_the_open_device(void **state) {
    (void)state;
    open_device();
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", "1", 1), 0);
    const struct device_clocks c = device_clocks();
    assert_int_equal(c.sm_mhz, 1401);
    assert_int_equal(c.memory_mhz, 2601);
}

static void heat_throttles_and_a_power_cap_does_not(void **state) {
    (void)state;
    unsigned long long *reasons = library("nvml_reasons");
    open_device();
    *reasons = POWER_CAP;
    assert_int_equal(device_clocks().limits, POWER_CAP);
    assert_false(device_clocks().throttled);
    *reasons = POWER_CAP | HEAT;
    assert_int_equal(device_clocks().limits, POWER_CAP | HEAT);
    assert_true(device_clocks().throttled);
}

TESTS(device_clocks) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_fails),
        cmocka_unit_test(of_the_open_device),
        cmocka_unit_test(heat_throttles_and_a_power_cap_does_not),
    };
    return cmocka_run_group_tests_name("device_clocks", tests, NULL, NULL);
}
