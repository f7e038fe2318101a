/* SPDX-License-Identifier: MIT
 *
 * The fibres that run threads. To the race detector all that a fibre does is one sequence, so a thread seems to come
 * after the earlier threads on its fibre, and to have acquired what they did. Under it, a fibre therefore runs one
 * thread of a block, is drawn at random, and becomes a new fibre before it runs another thread of a launch with
 * barriers.
 */
#pragma once

#include "emulation/fibre.h"
#include "emulation/runtime.h"

namespace emulation {

/* Makes all fibres free for new threads, which run work(). No thread may be running. */
void carriers_renew(Random &random, void (*work)());

/* Under the race detector, only the host may take one. */
Fibre *carrier_take();

/* Without the race detector, the caller's own fibre: it continues with a new thread, without a switch. */
void carrier_give(Fibre *fibre);

} // namespace emulation
