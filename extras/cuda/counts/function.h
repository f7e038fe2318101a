/* SPDX-License-Identifier: MIT
 *
 * The counts of one device function, and their JSON.
 */
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "extras/cuda/counts/totals.h"

namespace counts {

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
