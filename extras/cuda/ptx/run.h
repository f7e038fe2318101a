/* SPDX-License-Identifier: MIT
 *
 * The calls between the parts of this runtime.
 */
#pragma once

#include "extras/cuda/ptx/instructions.h"
#include "emulation/runtime.h"

namespace ptx {

/* --- memory.cpp */

/* Shared memory of the running block, at the start of each thread. */
void open_shared(const Translated &kernel, size_t dynamic_bytes);

/* Draws the accesses between which threads switch, by the seed and the number of the launch. */
void begin_switches();

/* Names the instruction in reports of faults; called before the first kernel runs. */
void catch_faults();

/* --- threads.cpp: another thread of the block continues first, if one can. */
void let_others_run();

} // namespace ptx
