/* SPDX-License-Identifier: MIT
 *
 * What was counted of one device function, and how it is written.
 */
#pragma once

#include <cstdio>
#include <map>
#include <string>

#include "extras/cuda/counts/totals.h"

namespace counts {

/* What one function did, in all its launches. */
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
