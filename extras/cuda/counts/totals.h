/* SPDX-License-Identifier: MIT
 *
 * Sums over the requests of a kernel, or of a line of its source.
 */
#pragma once

#include <cstdint>
#include <cstdio>

#include "extras/cuda/counts/warps.h"

namespace counts {

/* Instructions that move nothing. */
enum Other { BARRIER, SYNC, SHUFFLE, VOTE, MATCH, REDUCE, FENCE, ANOTHER, OTHERS };

/* By the text of an instruction of PTX. */
Other other_of(const char *text);

struct Totals {
    struct Memory {
        uint64_t requests, sectors, used;
    } memory[MEMORY_KINDS]; /* global; used: bytes, of the sectors' */
    uint64_t lanes;         /* of all requests for memory, shared too */
    uint64_t shared, ways, least_ways;
    uint64_t others[OTHERS];

    void add(const warp_request &r, Other other);
    uint64_t requests() const; /* for memory, shared too */
    /* "key": value pairs of JSON. */
    void write(FILE *out) const;
};

} // namespace counts
