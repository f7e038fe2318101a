/* SPDX-License-Identifier: MIT
 *
 * cmocka, and tests that run one function over a table of cases, with a TAP line for each case.
 * Include it last: cmocka's macro fail() would garble the declaration of harness/error.h.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* run receives the case as *state. */
static inline struct CMUnitTest case_test(const char *name, CMUnitTestFunction run,
                                          const void *the_case) {
    return (struct CMUnitTest){name, run, NULL, NULL, (void *)(uintptr_t)the_case};
}

/* The tests of a file test_NAME.c, begun as a function: TESTS(NAME) { ...; return status; } The
 * folder is the registry: main.c calls the tests of every file, and a NAME that is not the file's
 * does not link. */
#define TESTS(name)                                                                                \
    int tests_of_##name(void);                                                                     \
    int tests_of_##name(void)
