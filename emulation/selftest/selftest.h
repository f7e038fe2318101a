/* SPDX-License-Identifier: MIT
 *
 * The self-test of the emulation has two kinds of cases. A good case is correct CUDA, and must pass
 * in every order and build without a report. A planted case has a bug, and the builds that can
 * catch it must do so. Each case runs in its own process.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "emulation/emulation.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sanitizer of the build, as a bit. */
enum build { PLAIN = 1, ADDRESS = 2, UNDEFINED = 4, THREAD = 8, ALL_BUILDS = 15 };

struct self_case {
    const char *name;
    void (*run)(void);
    /* These builds must find the planted bug, with this text. A build in no entry cannot see it. */
    struct {
        unsigned builds;
        const char *says;
    } caught[3];
};

/* Each table ends with a case that has no name. */
extern const struct self_case good_kernels[], good_fences[], good_intrinsics[],
    good_library_calls[], good_host_calls[], planted_races[], planted_fences[], planted_accesses[],
    planted_barriers[];

static inline void check(bool holds, const char *what, const char *file, int line) {
    if (holds) return;
    fprintf(stderr, "%s:%d: wrong: %s\n", file, line, what);
    exit(1);
}

#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)

#ifdef __cplusplus
}
#endif
