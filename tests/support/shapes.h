/* SPDX-License-Identifier: MIT
 *
 * The batches that every kernel must get right. About twenty shapes are pinned: each has a boundary
 * that the code of kernels has. All others are drawn from a seed, which a failure prints:
 *
 *     SEED=4711 build/tests/kernels/tests kernels     runs that shape alone, in every way
 *     DRAWS=5000 build/tests/kernels/tests kernels    draws more than the usual number
 *
 * Sizes depend on the kernel: an emulated device and a build with a sanitizer get smaller ones.
 */
#pragma once

#include "tests/support/batch_builder.h"

enum modes { EXACT_AND_REAL, EXACT_ONLY, REAL_ONLY };

enum {
    SHAPE_WEIGHTED = 1,
    SHAPE_INT32 = 2,
    SHAPE_SEQUENCES = 4, /* the first feature is a sequence, and all that have no lookups */
    SHAPE_MAX = 8,       /* max pooling in place of sums and means, but for each third feature */
    SHAPE_LARGE =
        16, /* for device kernels that put lookups in order: an emulation gets all of it */
};

struct shape {
    const char *name;
    enum modes modes;                                       /* in which the check can be sharp */
    void (*make)(struct builder *b, const struct shape *s); /* all between begin and finish */
    int32_t n;
    uint64_t seed; /* of a drawn shape; 0: a pinned one */
    const struct part *parts;
    int num_parts;
    unsigned flags;
};

extern const struct shape shapes[];
extern const int num_shapes;

/* From one pinned shape to the next where not all of them are taken: sanitizers are slow. */
enum { SHAPE_STEP = WITH_SANITIZER ? 4 : 1 };

/* Seeds first .. first + count - 1 are to be drawn: `usual` from 1 on, or as many as DRAWS says, or from SEED on; SEED
 * alone repeats one. */
struct draws {
    uint64_t first, count;
    bool repeated; /* by SEED */
};
struct draws shape_draws(uint64_t usual);

struct shape shape_drawn(uint64_t seed);

/* A number below `count` that belongs to a drawn shape: choices of a test, each with a `what` of
 * its own. */
uint64_t shape_choice(uint64_t seed, uint64_t what, uint64_t count);

/* Everything from builder_begin to builder_finish, in the size for this kernel (or for NULL). */
void shape_build(const struct shape *s, const struct kernel *k, bool exact, struct builder *b);

/* Tables get the rules rule, rule + 1, ...; a drawn shape also draws how tables and gradients are
 * stored, and hyper-parameters that all rules share. True: some table has such a one. */
bool shape_dress(const struct shape *s, const struct kernel *k, enum rule_kind rule,
                 struct builder *b);
