/* SPDX-License-Identifier: MIT
 *
 * Shared memory of the running block: an array for each SHARED statement that a thread of the block
 * reaches, and the dynamic array. All start as 0xFF bytes and lie between red zones.
 * AddressSanitizer watches the zones; other builds check them when the block ends. For the race
 * detector each block has addresses of its own.
 */
#pragma once

#include <cstddef>

namespace emulation {

enum {
    SHARED_LIMIT = 227 << 10,       /* of a block, with cudaFuncSetAttribute */
    STATIC_SHARED_LIMIT = 48 << 10, /* of a block otherwise, and of arrays of fixed size always */
};

/* False: from now on the addresses of earlier blocks of this launch are reused. */
bool shared_begin_block(size_t dynamic_bytes);
void shared_end_block();

} // namespace emulation
