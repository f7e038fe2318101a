/* SPDX-License-Identifier: MIT
 *
 * Tests of every registered kernel, each with a TAP line of its own. Include it last, as
 * cmocka_cases.h.
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

static inline void add_test(const char *name, CMUnitTestFunction run, const struct kernel *kernel,
                            const void *param) {
    static struct kernel_test tests[LISTED_MAX];
    struct kernel_test *of = &tests[listed.count % LISTED_MAX];
    *of = (struct kernel_test){.kernel = kernel, .param = param};
    snprintf(of->name, sizeof of->name, "%s%s%s", kernel ? kernel->name : "", kernel ? ": " : "",
             name);
    add_case(of->name, run, of);
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
