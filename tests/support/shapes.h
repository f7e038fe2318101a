/* SPDX-License-Identifier: MIT
 *
 * The shapes of batches that every kernel must get right; each is small and tests an edge. A shape
 * has no rule, gradient mode or number of threads.
 */
#pragma once

#include "tests/support/batch_builder.h"

enum modes { EXACT_AND_REAL, EXACT_ONLY, REAL_ONLY };

struct shape {
    const char *name;
    void (*make)(struct builder *b, int32_t n); /* between builder_begin and builder_finish */
    int32_t n;
    enum modes modes; /* in which the check can be sharp */
};

extern const struct shape shapes[];
extern const int num_shapes;

/* From one shape to the next of those that a test of another operation than a step takes: sanitizers are slow. */
enum { SHAPE_STEP = WITH_SANITIZER ? 4 : 1 };

/* Everything from builder_begin to builder_finish, in the size for this kernel (or for NULL). */
void shape_build(const struct shape *s, const struct kernel *k, bool exact, struct builder *b);
