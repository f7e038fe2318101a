/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/function.h"

#include <cstring>

namespace counts {

Other other_of(const char *text) {
    static const struct {
        const char *start;
        Other is;
    } known[] = {{"bar.warp", SYNC}, {"bar", BARRIER},    {"barrier", BARRIER}, {"shfl", SHUFFLE},
                 {"vote", VOTE},     {"match", MATCH},    {"redux", REDUCE},    {"membar", FENCE},
                 {"fence", FENCE},   {"activemask", VOTE}};
    for (auto &k : known)
        if (strncmp(text, k.start, strlen(k.start)) == 0) return k.is;
    return ANOTHER;
}

void Totals::add(const warp_request &r, Other other) {
    if (r.is.kind >= MEMORY_KINDS) {
        others[other]++;
        return;
    }
    lanes += r.lanes;
    if (r.shared) {
        shared++;
        ways += r.ways;
        least_ways += r.least_ways;
        return;
    }
    Memory &m = memory[r.is.kind];
    m.requests++;
    m.sectors += r.is.count;
    m.used += r.used;
}

uint64_t Totals::requests() const {
    uint64_t n = shared;
    for (const Memory &m : memory) n += m.requests;
    return n;
}

void Totals::write(FILE *out) const {
    static const char *const kinds[] = {"load", "store", "atomic", "reduction", "prefetch"};
    static const char *const names[] = {"barriers", "syncs",   "shuffles", "votes",
                                        "matches",  "reduces", "fences",   "others"};
    static_assert(sizeof kinds / sizeof *kinds == MEMORY_KINDS, "a name for each");
    static_assert(sizeof names / sizeof *names == OTHERS, "a name for each");
    for (int k = 0; k < MEMORY_KINDS; k++)
        fprintf(out, "\"%s\": {\"requests\": %lu, \"sectors\": %lu, \"used\": %lu}, ", kinds[k],
                memory[k].requests, memory[k].sectors, memory[k].used);
    for (int k = 0; k < OTHERS; k++) fprintf(out, "\"%s\": %lu, ", names[k], others[k]);
    fprintf(out, "\"lanes\": %lu, \"requests\": %lu, ", lanes, requests());
    fprintf(out, "\"shared\": {\"requests\": %lu, \"ways\": %lu, \"least\": %lu}", shared, ways,
            least_ways);
}

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
