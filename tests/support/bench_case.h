/* SPDX-License-Identifier: MIT
 *
 * A small ragged workload that is measured, with tables that are longer than a block of the check.
 * Include it after every header of the suite: see cmocka_cases.h.
 */
#pragma once

#include <stdio.h>

#include "harness/measure/measure.h"
#include "tests/support/generate.h"

struct bench {
    struct workload w;
    struct measure m;
    struct scratch_use use;
    struct check_result result;
    struct error err;
};

/* `more` is added to the workload's spec. 0, or -1 if the place cannot be opened. */
static inline int bench_open(struct bench *b, const char *more, enum operation operation,
                             enum backend place) {
    char spec[400];
    snprintf(spec, sizeof spec,
             "workload w\ntables 2\nrows 5000\ndim 20\nbatch 60\nlength uniform 0 9\nids zipf\n"
             "alpha 1\n%s",
             more);
    memset(b, 0, sizeof *b);
    b->w = generate(spec, 2, GRAD_EXACT);
    if (measure_open(&b->m, &b->w, operation, GRAD_EXACT, 2, &b->err)) fail_msg("%s", b->err.text);
    return measure_open_place(&b->m, place, &b->err);
}

static inline void bench_close(struct bench *b) {
    measure_close(&b->m);
    workload_free(&b->w);
}

static inline void bench_must(int status, const struct bench *b) {
    if (status) fail_msg("%s", status < 0 ? b->err.text : b->result.message);
}

static inline int bench_admit(struct bench *b, const struct kernel *k, enum cache_mode mode) {
    return measure_admit(&b->m, k, mode, &b->use, &b->result, &b->err);
}

static inline int bench_check(struct bench *b, const struct kernel *k, enum cache_mode mode,
                              int batch) {
    return measure_check(&b->m, k, mode, batch, &b->result, &b->err);
}
