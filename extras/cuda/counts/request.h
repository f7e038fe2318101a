/* SPDX-License-Identifier: MIT
 *
 * A request: the accesses of a warp's lanes by one instruction, which the warp issues as one. The
 * lanes' bytes are sorted into sectors of 32 bytes, the unit in which memory moves.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    SECTOR = 32,
    LINE_SECTORS = 4, /* of a line of L2 */
};

enum request_kind {
    REQUEST_LOAD,
    REQUEST_STORE,
    REQUEST_ATOMIC,    /* returns a value */
    REQUEST_REDUCTION, /* an atomic that returns none */
    REQUEST_PREFETCH,  /* into L2 */
    REQUEST_BARRIER,   /* of the block: moves nothing */
    REQUEST_OTHER,     /* collectives and fences: move nothing */
    REQUEST_KINDS,
    MEMORY_KINDS = REQUEST_BARRIER,
};

/* Addresses count from 0: see Pages in footprint.h. */
struct sector {
    uint32_t number;
    uint32_t bytes; /* a bit for each byte that the lanes access */
};

struct request {
    enum request_kind kind;
    uint32_t count; /* sectors */
    const struct sector *sectors;
};
