/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/totals.h"

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

} // namespace counts
