/* SPDX-License-Identifier: MIT
 *
 * What fences and atomics order, for the race detector, as in PTX's memory model: a fence, then an atomic on p by one
 * thread; later an atomic on p, then a fence by another. What happened before the first fence then happens before what
 * follows the second one. No other order comes from fences or atomics. A fence of the block counts within its block.
 */
#pragma once

#include "emulation/device.h"
#include "emulation/sanitizers.h"

namespace emulation {

struct Observed;

/* Of a thread. */
struct Fences {
    Token
        *released[2]; /* by its last fence, of the block or larger, and of the device; NULL: none */
    Observed *observed; /* what its atomics have seen, for its next fence */
};

/* Forgets all that earlier launches released. */
void fences_begin_launch();

} // namespace emulation
