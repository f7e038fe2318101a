/* SPDX-License-Identifier: MIT
 *
 * The clocks of the device, from a stand-in for NVIDIA's management library
 * (tests/kernels/nvml/nvml.c): those of the device that CUDA opened, whatever the order in which
 * the library knows devices.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

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

static void of_the_open_device(void **state) {
    (void)state;
    library("nvml_reasons");
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
    ADD_TEST(of_the_open_device);
    ADD_TEST(heat_throttles_and_a_power_cap_does_not);
    return run_listed("device_clocks");
}
