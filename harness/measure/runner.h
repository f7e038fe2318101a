/* SPDX-License-Identifier: MIT
 *
 * How a step is run and judged, wherever: benchmarks, `embfuse step`, peers and tests all come through
 * here, so that what is tested is what is measured. Scratch has exactly the declared size and is
 * filled with a byte before the step; guards and inputs are looked at after it.
 */
#ifndef EMBFUSE_RUNNER_H
#define EMBFUSE_RUNNER_H

#include "harness/check/check.h"
#include "harness/measure/place.h"

/* What scratch is filled with: every float a NaN, every index out of range; or nothing. */
enum { POISON = 0xff, AS_IT_IS = -1 };

/* Most bytes of scratch that the kernel asks for on a batch of the setup. */
size_t runner_scratch_bytes(const struct place_setup *setup, const struct kernel *k);

/* Scratch for a kernel. Fails where it refuses the batches. */
int runner_scratch_open(struct place *p, const struct place_setup *setup, const struct kernel *k,
                        struct place_scratch *out, struct error *err);

/* Fills scratch and runs a step. Returns 0; 1 if the kernel went through its stages in a wrong order,
 * with what it did in err; or -1. */
int runner_step(struct place *p, const struct place_job *job, int fill, struct error *err);

/* Judges what a step left. c has all but `after`, `fetch`, `dense` and `per_lookup`, which come from
 * the place and the kernel. Returns 0 if right; 1 if wrong, with what is wrong in out->message; -1 if
 * nobody can tell, with the reason in err. */
int runner_check(struct place *p, const struct place_job *job, struct check c,
                 struct check_result *out, struct error *err);

#endif
