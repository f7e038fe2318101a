/* SPDX-License-Identifier: MIT
 *
 * Shared memory of a block: an array for each SHARED statement that a thread of the block reaches, and the dynamic
 * array. All start as 0xFF bytes and lie between red zones. AddressSanitizer watches the zones; other builds check
 * them when the block ends. For the race detector each block of a launch has addresses of its own.
 */
#pragma once

#include <cstddef>

#include "emulation/device.h"

namespace emulation {

enum {
    SHARED_LIMIT = 227 << 10,       /* of a block, with cudaFuncSetAttribute */
    STATIC_SHARED_LIMIT = 48 << 10, /* of a block otherwise, and of arrays of fixed size always */
    MAX_ARRAYS = 64,
};

struct SharedArray {
    const void *token;
    char *begin;
    size_t bytes;
    Site site;
};

struct SharedMemory {
    char *begin, *next; /* of the block's part of the arena, and of what is free there */
    size_t total;       /* bytes of all arrays */
    SharedArray arrays[MAX_ARRAYS];
    int count; /* the dynamic array is the first */
};

/* Makes the addresses of earlier blocks free for new ones. */
void shared_begin_launch();

/* False if no addresses are left for one more block until shared_begin_launch(). */
bool shared_has_room(size_t dynamic_bytes);

/* slot: the number of the block among the resident ones. */
void shared_begin_block(SharedMemory &memory, int slot, size_t dynamic_bytes);
void shared_end_block(const SharedMemory &memory);

/* True for an address in shared memory. */
bool shared_owns(const void *p);

} // namespace emulation
