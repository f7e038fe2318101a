/* SPDX-License-Identifier: MIT
 *
 * Shared memory of the block that runs: an array for each SHARED statement that a thread of the
 * block reaches, and the dynamic one. All start as 0xFF bytes and lie between red zones, which
 * AddressSanitizer watches, and which are looked at when the block ends otherwise. For the race
 * detector the addresses of a block are its own.
 */
#ifndef EMBFUSE_EMULATION_SHARED_MEMORY_H
#define EMBFUSE_EMULATION_SHARED_MEMORY_H

#include <cstddef>

namespace emulation {

enum {
    SHARED_LIMIT = 227 << 10,       /* of a block, with cudaFuncSetAttribute */
    STATIC_SHARED_LIMIT = 48 << 10, /* of a block otherwise, and of arrays of fixed size always */
};

/* False: addresses of earlier blocks of this launch are used again from here on. */
bool shared_begin_block(size_t dynamic_bytes);
void shared_end_block();

} // namespace emulation

#endif
