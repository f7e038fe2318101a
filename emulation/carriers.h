/* SPDX-License-Identifier: MIT
 *
 * The fibres that run threads. The race detector takes all that a fibre does for a sequence, whichever threads it
 * runs, and a thread for one that knows what earlier ones on its fibre knew. So under it a fibre runs only one thread
 * of a block and is drawn at random, and becomes a new one before it runs another thread of a launch with barriers.
 */
#pragma once

#include "emulation/fibre.h"
#include "emulation/runtime.h"

namespace emulation {

/* Fibres that enter work() at first. No thread runs, and what earlier ones knew no longer matters. */
void carriers_renew(Random &random, void (*work)());

/* Under the race detector, only the host may take one. */
Fibre *carrier_take();

/* Without the race detector, the caller's own fibre: it continues with a new thread, without a switch. */
void carrier_give(Fibre *fibre);

} // namespace emulation
