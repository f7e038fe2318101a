/* SPDX-License-Identifier: MIT
 *
 * A builder's batch behind the library: a model with the builder's tables, features and rules, whose
 * arrays are the builder's own.
 */
#pragma once

#include "include/embfuse.h"
#include "tests/support/batch_builder.h"

struct library_case {
    struct embfuse_table *tables;
    struct embfuse_feature *features;
    struct embfuse_options options; /* all 0 but size, grad_type and rounding_seed */
    struct embfuse_batch batch;
};

void library_case_begin(struct library_case *c, const struct builder *b);
void library_case_free(struct library_case *c);

/* A model of the case, with the builder's hyper-parameters, its step as the next one, and its arrays
 * (those of `tables` instead, unless that is NULL) bound. NULL: why says why. */
struct embfuse_model *library_case_open(const struct library_case *c, const struct builder *b,
                                        const struct table *tables, struct embfuse_error *why);
