/* SPDX-License-Identifier: MIT
 *
 * Bag lengths: fixed, uniform, or negative binomial by mean and coefficient of variation. The
 * negative binomial is ragged like real inputs: with a CV of 1 a tenth of the bags holds a third of
 * the lookups, and several percent are empty. Length i of a key is a pure function of (key, i).
 */
#pragma once

#include <stdint.h>

#include "harness/error.h"
#include "harness/workload/spec.h"

struct lengths {
    struct length_spec spec;
    int64_t *draws; /* negbin: of the 2^53 draws, length l takes draws[l] .. draws[l + 1] - 1 */
    int64_t count;  /* lengths */
};

/* Returns 0 if the numbers of a length spec are valid; otherwise -1 and the reason in err. */
int length_spec_check(const struct length_spec *spec, struct error *err);

/* Mean length of a bag. */
double length_spec_mean(const struct length_spec *spec);

/* Fails if length_spec_check() fails or memory runs out. */
int lengths_make(const struct length_spec *spec, struct lengths *out, struct error *err);
void lengths_free(struct lengths *l);

int64_t lengths_draw(const struct lengths *l, uint64_t key, uint64_t i);
