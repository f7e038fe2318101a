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
#include <stdlib.h>

#include <cmocka.h>

/* The tests of a file in the order of their calls: ADD_TEST(run), and ADD_CASES(cases, run) for an array of
 * structs that begin with a name, of which run receives one as *state; then return run_listed("NAME"). */
enum { LISTED_MAX = 4000 };

static struct {
    size_t count;
    struct CMUnitTest test[LISTED_MAX];
} listed;

static inline void add_case(const char *name, CMUnitTestFunction run, const void *the_case) {
    if (listed.count == LISTED_MAX) abort();
    listed.test[listed.count++] =
        (struct CMUnitTest){name, run, NULL, NULL, (void *)(uintptr_t)the_case};
}

static inline void add_cases(const void *cases, size_t bytes, size_t count,
                             CMUnitTestFunction run) {
    for (size_t i = 0; i < count; i++) {
        const char *const *one = (const void *)((const char *)cases + i * bytes);
        add_case(*one, run, one);
    }
}

#define ADD_CASES(cases, run)                                                                      \
    add_cases(cases, sizeof *(cases), sizeof(cases) / sizeof *(cases), run)
#define ADD_TEST(run) add_case(#run, run, NULL)

/* TESTS in the environment, a pattern such as '*: weighted*', chooses among them. */
static inline int run_listed(const char *group) {
    if (getenv("TESTS")) cmocka_set_test_filter(getenv("TESTS"));
    return _cmocka_run_group_tests(group, listed.test, listed.count, NULL, NULL);
}

/* The tests of a file test_NAME.c, begun as a function: TESTS(NAME) { ...; return status; } The folder is the
 * registry: main.c calls the tests of every file, and a NAME that is not the file's does not link. */
#define TESTS(name)                                                                                \
    int tests_of_##name(void);                                                                     \
    int tests_of_##name(void)
