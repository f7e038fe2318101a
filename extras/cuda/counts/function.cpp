/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/function.h"

namespace counts {

static void write_lines(FILE *out, const Function &f) {
    const char *between = "";
    fprintf(out, ", \"lines\": [");
    for (auto &l : f.lines) {
        fprintf(out, "%s{\"source\": \"%s\", \"line\": %d, ", between, l.first.first.c_str(),
                l.first.second);
        l.second.write(out);
        fprintf(out, "}");
        between = ", ";
    }
    fprintf(out, "]");
}

void write_function(FILE *out, const char *labels, const Function &f, bool by_line) {
    fprintf(out,
            "{%s\"function\": \"%s\", \"launches\": %lu, \"blocks\": %lu, \"warps\": %lu, "
            "\"compulsory_read\": %lu, \"compulsory_written\": %lu, \"atomics\": %lu, "
            "\"most_per_address\": %lu, \"chain\": %lu, ",
            labels, f.symbol.c_str(), f.launches, f.blocks, f.warps, f.compulsory_read,
            f.compulsory_written, f.atomics, f.most_per_address, f.chain);
    f.totals.write(out);
    if (by_line) write_lines(out, f);
    fprintf(out, "}\n");
}

} // namespace counts
