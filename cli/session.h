/* SPDX-License-Identifier: MIT
 *
 * A kernel of a command, with the backend that runs it and what the check needs.
 */
#pragma once

#include "cli/step.h"
#include "harness/measure/runner.h"

struct session {
    struct place *place;
    struct place_setup setup;
    struct place_scratch scratch, output; /* output: of all but steps */
    struct place_job job;
    struct rule_step *steps; /* [num_tables] */
    struct table_set before; /* a copy of the tables before the step, if it is checked */
    struct row_index index;
};

/* Opens everything that the kernel needs for the batch of `in`. In any case, session_close(). */
int session_open(struct session *s, const struct kernel *k, struct step_inputs *in,
                 const struct step_flags *f, struct error *err);
void session_close(struct session *s);

/* True if all sums of the batch's gradients are exact. Then a stricter check applies, whatever the
 * source of the batch. */
bool session_exact(const struct batch *in);

/* Fills scratch with POISON, the output with UNWRITTEN, and runs the kernel. seconds: of the run. */
int session_run(struct session *s, double *seconds, struct error *err);
