/* SPDX-License-Identifier: MIT
 *
 * Runs blocks: warps one after another up to the block's barriers, and within a warp groups of lanes that have parted.
 *
 * Lanes part at a branch and meet at BSYNC, WARPSYNC or the block's barrier, and nowhere else. Of the groups of a warp
 * that with the lowest address runs, until it ends, waits or parts again. Every instruction that a group issues counts
 * once. machine.py calls the functions at the end.
 */
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "extras/cuda/sass/machine.h"

namespace sass {
namespace {

constexpr uint32_t POISON = 0xffffffff; /* in unwritten registers and memory: NaN, -1 */

void begin(warp &w, machine &m, uint32_t first) {
    memset(w.reg, POISON & 0xff, sizeof w.reg);
    memset(w.local, POISON & 0xff, sizeof w.local);
    memset(w.reg[RZ], 0, sizeof w.reg[RZ]);
    memset(w.reg[URZ], 0, sizeof w.reg[URZ]);
    memset(w.predicate, 0, sizeof w.predicate);
    w.predicate[PT] = w.predicate[UNIFORM_PREDICATE + PT] = 0xffffffff;
    std::fill(w.waits, w.waits + LANES, -1);
    const uint32_t here = std::min<uint32_t>(m.threads - first, LANES);
    const uint32_t lanes = here == LANES ? 0xffffffff : (1u << here) - 1;
    w.exited = ~lanes;
    w.ready = {{0, lanes}};
    w.first = first, w.machine = &m;
}

uint32_t waiting(const warp &w, int barrier) {
    uint32_t lanes = 0;
    for (int l = 0; l < LANES; l++) lanes |= (uint32_t)(w.waits[l] == barrier) << l;
    return lanes;
}

/* These lanes go on after the instruction at which they waited. Lanes at one place become one group. */
void go_on(warp &w, uint32_t lanes) {
    while (lanes) {
        group g = {w.at[__builtin_ctz(lanes)], 0};
        for (int l = 0; l < LANES; l++)
            if (lanes >> l & 1 && w.at[l] == g.at) g.lanes |= 1u << l, w.waits[l] = -1;
        lanes &= ~g.lanes;
        g.at++;
        w.ready.push_back(g);
    }
}

/* Releases all lanes whose barrier waits for no other lane. */
void release(warp &w) {
    for (int b = 0; b < OF_BLOCK; b++) {
        const uint32_t here = waiting(w, b);
        uint32_t free = 0;
        for (int l = 0; l < LANES; l++)
            if (here >> l & 1 && !(w.barrier[b][l] & ~w.exited & ~here)) free |= 1u << l;
        go_on(w, free);
    }
}

void wait(warp &w, const group &g, int barrier, uint32_t lanes) {
    for (int l = 0; l < LANES; l++)
        if (lanes >> l & 1) w.waits[l] = (int8_t)barrier, w.at[l] = g.at;
}

void part(warp &w, const group &g, uint32_t target, uint32_t taken) {
    if (taken) w.ready.push_back({target, taken});
    if (g.lanes & ~taken) w.ready.push_back({g.at + 1, g.lanes & ~taken});
}

/* The lanes that take a branch. */
uint32_t branching(const warp &w, const instruction &i, const group &g, uint32_t lanes) {
    uint32_t space[LANES];
    if (has(i, MOD_DIV)) { /* if not all lanes that the register names are here */
        const uint32_t named = values(w, i.from[0], space)[0] & ~w.exited;
        return (named & ~g.lanes) ? g.lanes : 0;
    }
    if (has(i, MOD_ANY)) return lanes ? g.lanes : 0;
    return lanes & predicate(w, i.in[0]);
}

/* The register holds the address, counted from the begin of the function. */
void return_from(warp &w, const instruction &i, const group &g, uint32_t lanes) {
    const uint32_t *at = w.reg[i.from[0].reg];
    if (g.lanes & ~lanes) w.ready.push_back({g.at + 1, g.lanes & ~lanes});
    while (lanes) {
        group to = {at[__builtin_ctz(lanes)], 0};
        for (int l = 0; l < LANES; l++)
            if (lanes >> l & 1 && at[l] == to.at) to.lanes |= 1u << l;
        lanes &= ~to.lanes;
        if (to.at % 16) throw std::string("a return to an address within an instruction");
        to.at /= 16;
        w.ready.push_back(to);
    }
}

/* Executes a branch, barrier or exit. Returns true if the group goes on with the next instruction;
 * otherwise w.ready has its lanes, or they wait. */
bool flow(warp &w, const instruction &i, const group &g, uint32_t lanes) {
    const int b = (int)i.extra;
    uint32_t space[LANES], taken;
    switch (i.op) {
    case OP_BRA:
    case OP_CALL:
        taken = branching(w, i, g, lanes);
        if (!taken) return true;
        part(w, g, (uint32_t)i.target, taken);
        return false;
    case OP_RET: return_from(w, i, g, lanes); return false;
    case OP_BSSY:
        for (int l = 0; l < LANES; l++)
            if (lanes >> l & 1) w.barrier[b][l] = lanes;
        return true;
    case OP_BREAK:
        for (int l = 0; l < LANES; l++) w.barrier[b][l] &= ~lanes;
        release(w);
        return true;
    case OP_WARPSYNC: {
        const uint32_t *mask = values(w, i.from[0], space);
        for (int l = 0; l < LANES; l++)
            if (lanes >> l & 1) w.barrier[b][l] = mask[l];
        break;
    }
    case OP_EXIT: w.exited |= lanes; break;
    default: break;
    }
    if (g.lanes & ~lanes) w.ready.push_back({g.at + 1, g.lanes & ~lanes});
    if (i.op != OP_EXIT) wait(w, g, b, lanes);
    release(w);
    return false;
}

void run_group(warp &w, group g) {
    machine &m = *w.machine;
    for (;; g.at++) {
        m.problem_at = (int32_t)g.at;
        if (g.at >= m.code.size()) throw std::string("the way leaves the code");
        if (m.left-- == 0) throw std::string("no end after the most instructions of a block");
        const instruction &i = m.code[g.at];
        const uint32_t lanes = g.lanes & predicate(w, i.guard);
        m.issued[g.at]++, m.lanes[g.at] += (uint64_t)__builtin_popcount(lanes);
        if (i.op < OP_BRA)
            execute(w, i, lanes);
        else if (!flow(w, i, g, lanes))
            return;
    }
}

void run_warp(warp &w) {
    while (!w.ready.empty()) {
        auto lowest = std::min_element(w.ready.begin(), w.ready.end(),
                                       [](const group &a, const group &b) { return a.at < b.at; });
        const group g = *lowest;
        w.ready.erase(lowest);
        run_group(w, g);
    }
}

void run_block(machine &m) {
    std::vector<std::unique_ptr<warp>> warps;
    for (uint32_t first = 0; first < m.threads; first += LANES) {
        warps.emplace_back(new warp);
        begin(*warps.back(), m, first);
    }
    for (bool some = true; some;) {
        some = false;
        for (auto &w : warps) run_warp(*w);
        for (auto &w : warps) {
            const uint32_t alive = ~w->exited;
            if (alive & ~waiting(*w, OF_BLOCK)) {
                m.problem_at = (int32_t)w->at[__builtin_ctz(alive & ~waiting(*w, OF_BLOCK))];
                throw std::string("lanes wait for a barrier that the others never reach");
            }
            some |= alive != 0;
        }
        for (auto &w : warps) go_on(*w, ~w->exited);
    }
}

} // namespace
} // namespace sass

/* --- for machine.py */

using sass::machine;

#define EXPORT extern "C" __attribute__((visibility("default")))

#define X(name) #name " "
EXPORT const char *sass_names() {
    return SASS_OPERATIONS(X) "| " SASS_MODIFIERS(X);
}
#undef X

EXPORT machine *sass_new(const sass::instruction *code, uint64_t count, const uint8_t *constants,
                         uint64_t bytes, uint64_t shared, uint32_t threads) {
    machine *m = new machine;
    m->code.assign(code, code + count);
    m->issued.resize(count), m->lanes.resize(count);
    m->constants.assign(constants, constants + bytes);
    m->shared.resize(shared);
    m->threads = threads;
    return m;
}

EXPORT void sass_delete(machine *m) {
    for (auto &r : m->regions) munmap(r.at, r.bytes);
    delete m;
}

/* Zeroed memory of the device. Pages that stay untouched take no memory. */
EXPORT void *sass_memory(machine *m, uint64_t base, uint64_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return NULL;
    m->regions.push_back({base, bytes, (uint8_t *)at});
    return at;
}

/* Runs a block. NULL, or what is wrong; sass_place() then says at which instruction. */
EXPORT const char *sass_block(machine *m, uint32_t block, uint64_t most) {
    m->block = block, m->left = most;
    std::fill(m->shared.begin(), m->shared.end(), (uint8_t)sass::POISON);
    try {
        sass::run_block(*m);
    } catch (const std::string &problem) {
        m->problem = problem;
        return m->problem.c_str();
    }
    return NULL;
}

EXPORT int32_t sass_place(const machine *m) {
    return m->problem_at;
}

EXPORT const uint64_t *sass_counts(const machine *m, int lanes) {
    return lanes ? m->lanes.data() : m->issued.data();
}
