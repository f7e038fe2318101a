/* SPDX-License-Identifier: MIT
 *
 * The counts of one device function, and their JSON.
 */
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "extras/cuda/counts/warps.h"

namespace counts {

/* Instructions that move nothing. */
enum Other { BARRIER, SYNC, SHUFFLE, VOTE, MATCH, REDUCE, FENCE, ANOTHER, OTHERS };

/* The kind of an instruction, by its text in PTX. */
Other other_of(const char *text);

struct Totals {
    struct Memory {
        uint64_t requests, sectors, used;
    } memory[MEMORY_KINDS]; /* global; used: bytes, of the sectors' */
    uint64_t lanes;         /* in all requests for memory, shared memory included */
    uint64_t shared, ways, least_ways;
    uint64_t others[OTHERS];

    void add(const warp_request &r, Other other);
    uint64_t requests() const; /* for memory, shared memory included */
    /* "key": value pairs of JSON. */
    void write(FILE *out) const;
};

/* Sums over all launches of one function. */
struct Function {
    std::string symbol;
    uint64_t launches, blocks, warps;
    Totals totals;
    uint64_t compulsory_read, compulsory_written, atomics, most_per_address, chain;
    std::map<std::pair<std::string, int>, Totals> lines;
};

/* An object of JSON that begins with the labels. */
void write_function(FILE *out, const char *labels, const Function &f, bool by_line);

} // namespace counts
