/* SPDX-License-Identifier: MIT
 *
 * A list of cmocka tests that is made at run time: one TAP line for every registered kernel, or for
 * one case. Include it last, as cmocka_cases.h.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "harness/registry.h"
#include "tests/support/cmocka_cases.h"

/* What a test receives as *state. */
struct kernel_test {
    const struct kernel *kernel; /* NULL in a test without a kernel */
    const void *param;
    char name[120];
};

enum { KERNEL_TESTS_MAX = 4000 };

struct kernel_tests {
    size_t count;
    struct CMUnitTest test[KERNEL_TESTS_MAX];
    struct kernel_test of[KERNEL_TESTS_MAX];
};

static struct kernel_tests kernel_tests;

static inline void add_test(const char *name, CMUnitTestFunction run, const struct kernel *kernel,
                            const void *param) {
    if (kernel_tests.count == KERNEL_TESTS_MAX) abort();
    struct kernel_test *of = &kernel_tests.of[kernel_tests.count];
    *of = (struct kernel_test){.kernel = kernel, .param = param};
    snprintf(of->name, sizeof of->name, "%s%s%s", kernel ? kernel->name : "", kernel ? ": " : "",
             name);
    kernel_tests.test[kernel_tests.count++] = case_test(of->name, run, of);
}

/* One test per registered kernel of an operation; those of device kernels also run on a GPU: see
 * tests/test.mk. */
static inline void add_operation_tests(enum operation operation, const char *name,
                                       CMUnitTestFunction run, const void *param) {
    for (const struct registered *r = registry(); r->kernel; r++)
        if (r->kernel->operation == operation) add_test(name, run, r->kernel, param);
}

/* The same for kernels of a step. */
static inline void add_kernel_tests(const char *name, CMUnitTestFunction run, const void *param) {
    add_operation_tests(OP_STEP, name, run, param);
}

/* Those of one backend. */
static inline void add_kernel_tests_on(enum backend place, const char *name, CMUnitTestFunction run,
                                       const void *param) {
    for (const struct registered *r = registry(); r->kernel; r++)
        if (r->kernel->place == place && r->kernel->operation == OP_STEP)
            add_test(name, run, r->kernel, param);
}

/* TESTS in the environment, a pattern such as '*: weighted*', chooses among them. */
static inline int run_listed(const char *group) {
    if (getenv("TESTS")) cmocka_set_test_filter(getenv("TESTS"));
    return _cmocka_run_group_tests(group, kernel_tests.test, kernel_tests.count, NULL, NULL);
}
