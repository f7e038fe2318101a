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

/* Where threads switch between accesses depends on the launch as the order of threads does. */
void begin_switches();

/* Names the instruction in reports of faults; called before the first kernel runs. */
void catch_faults();

/* --- threads.cpp: another thread of the block continues first, if one can. */
void let_others_run();

} // namespace ptx
