/* SPDX-License-Identifier: MIT
 *
 * Runs and judges a step in any place. Benchmarks, `embfuse step`, peers and tests all use it, so
 * that the tests test what benchmarks measure. Scratch has exactly the declared size. The runner
 * fills it with a byte before the step, and checks guards and inputs after it.
 */
#pragma once

#include "harness/check/check.h"
#include "harness/measure/place.h"

/* The byte that fills scratch. POISON makes every float a NaN and every index out of range. UNWRITTEN fills
 * outputs: a NaN, or NO_WINNER, may be right there. */
enum { POISON = 0xff, AS_IT_IS = -1, UNWRITTEN = 0x5a };

/* Allocates scratch for a kernel. Fails if the kernel refuses the batches. */
int runner_scratch_open(struct place *p, const struct kernel *k, struct place_scratch *out,
                        struct error *err);

/* Allocates the output of an operation on these batches, and touches all of it. Opens none for a
 * step. */
int runner_output_open(struct place *p, const struct place_setup *setup, enum operation operation,
                       struct place_scratch *out, struct error *err);

/* Fills scratch, and the output with UNWRITTEN, and runs the kernel. Returns 0; 1 with the details in
 * err if the kernel's stages end in a wrong order; or -1. */
int runner_step(struct place *p, const struct place_job *job, int fill, struct error *err);

/* Checks the result of runner_step(): after a step the rows; after an iteration the output and the
 * rows; after another operation the output, and that all rows kept their bits. The caller fills c, except
 * `after`, `fetch`, `dense` and `per_lookup`, which come from the place and the kernel. All steps of a batch
 * may share c.right, and so may all other operations. Returns 0 if the result is right; 1 with the error in
 * out->message if it is wrong; -1 with the reason in err if it cannot be judged. */
int runner_check(struct place *p, const struct place_job *job, struct check c,
                 struct check_result *out, struct error *err);

/* Copies all tables to tables of the same shapes in host memory. */
int place_get_tables(struct place *p, struct table_set *to, struct error *err);
