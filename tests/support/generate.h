/* SPDX-License-Identifier: MIT
 *
 * Workloads from spec text, for tests. Include it after every header of the suite: see
 * cmocka_cases.h.
 */
#pragma once

#include <string.h>

#include "harness/workload/workload.h"

#include "tests/support/cmocka_cases.h"

/* The points of a spec; fails the test if the spec is refused. */
static inline struct spec_list points_of(const char *text) {
    struct spec_list list;
    struct error err = {""};
    if (spec_parse("test", text, strlen(text), NULL, &list, &err)) fail_msg("%s", err.text);
    return list;
}

/* The workload of the first point, validated. */
static inline struct workload generate(const char *text, int ring, enum grad_mode mode) {
    struct spec_list list = points_of(text);
    struct workload w;
    struct error err = {""};
    if (workload_generate(&list.specs[0], ring, mode, &w, &err)) fail_msg("%s", err.text);
    spec_list_free(&list);
    for (int k = 0; k < w.ring; k++)
        if (batch_validate(&w.batches[k], &err)) fail_msg("%s", err.text);
    return w;
}
