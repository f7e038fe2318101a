/* SPDX-License-Identifier: MIT
 *
 * Tells the race detector what fences and atomics order, as in PTX's memory model. One thread executes a fence, then an
 * atomic on p; later another thread executes an atomic on p, then a fence. Everything before the first fence then happens
 * before everything after the second one. Fences and atomics give no other order. A fence of the block counts within its
 * block.
 */
#pragma once

#include "emulation/device.h"
#include "emulation/sanitizers.h"

namespace emulation {

struct Observed;

/* The fences of one thread. */
struct Fences {
    Token
        *released[2]; /* by its last fence, of the block or larger, and of the device; NULL: none */
    Observed *observed; /* what its atomics have seen, for its next fence */
};

/* Forgets all that earlier launches released. */
void fences_begin_launch();

} // namespace emulation
