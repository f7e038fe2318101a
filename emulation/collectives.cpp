/* SPDX-License-Identifier: MIT
 *
 * The last thread to arrive at a barrier or collective computes all results and wakes the others.
 * Later no thread reads from another one, so consecutive collectives cannot disturb each other.
 */
#include "emulation/scheduler.h"

namespace emulation {

/* --- the barrier of the block */

static const char *name_of(BarrierOp op) {
    static const char *const names[] = {"__syncthreads", "__syncthreads_count", "__syncthreads_and",
                                        "__syncthreads_or"};
    return names[int(op)];
}

static bool same(Site a, Site b) {
    return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

int block_barrier(BarrierOp op, int predicate, Site site) {
    Block &b = block();
    Thread &self = this_thread();
    if (b.arrived == 0) {
        b.op = op;
        b.site = site;
        b.first = self.linear;
        b.sum = 0;
    } else if (b.op != op || !same(b.site, site)) {
        fatal("divergent barrier: %s waits in %s at %s:%d, and %s arrives in %s at %s:%d",
              name_of(b.threads[b.first]), name_of(b.op), b.site.file, b.site.line, name_of(self),
              name_of(op), site.file, site.line);
    }
    b.sum += predicate != 0;
    int turn = b.turn;
    b.tokens[turn].release();
    will_wait(name_of(op), site);
    if (++b.arrived == b.size) { /* returned threads never arrive: that is an error */
        b.arrived = 0;
        b.turn = !turn;
        b.result = op == BarrierOp::all   ? b.sum == int(b.size)
                   : op == BarrierOp::any ? b.sum != 0
                                          : b.sum;
        wake_all();
    }
    wait();
    b.tokens[turn].acquire();
    return b.result; /* the next barrier replaces it only when all have arrived there */
}

/* --- collectives of a warp: only __syncwarp orders accesses to memory */

static const char *name_of(WarpOp op) {
    static const char *const names[] = {
        "__syncwarp",        "__shfl_sync",       "__shfl_up_sync",    "__shfl_down_sync",
        "__shfl_xor_sync",   "__ballot_sync",     "__any_sync",        "__all_sync",
        "__match_any_sync",  "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
        "__reduce_min_sync", "__reduce_max_sync",
    };
    return names[int(op)];
}

/* The lane whose value a shuffle reads; the lane itself if the source is outside the segment, as on
 * a GPU. */
static int source_of(WarpOp op, int lane, const WarpInput &input) {
    int base = lane / input.width * input.width;
    int source = lane;
    switch (op) {
    case WarpOp::shuffle: return base + (input.parameter & (input.width - 1));
    case WarpOp::shuffle_up: source = lane - input.parameter; return source < base ? lane : source;
    case WarpOp::shuffle_down:
        source = lane + input.parameter;
        return source >= base + input.width ? lane : source;
    default:
        source = lane ^ input.parameter;
        /* A segment may read from itself and from lower ones. */
        return source >= base + input.width || source < 0 ? lane : source;
    }
}

/* The result of a vote or a reduction, for all lanes. */
static uint64_t combine(WarpOp op, unsigned mask, const Thread *lanes) {
    unsigned ballot = 0, sum = 0, least = UINT32_MAX, most = 0;
    int signed_least = INT32_MAX, signed_most = INT32_MIN;
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1u)) continue;
        unsigned value = unsigned(lanes[lane].input.value);
        ballot |= unsigned(value != 0) << lane;
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
        signed_least = int(value) < signed_least ? int(value) : signed_least;
        signed_most = int(value) > signed_most ? int(value) : signed_most;
    }
    switch (op) {
    case WarpOp::ballot: return ballot;
    case WarpOp::any: return ballot != 0;
    case WarpOp::all: return ballot == mask;
    case WarpOp::add: return sum;
    case WarpOp::min_unsigned: return least;
    case WarpOp::max_unsigned: return most;
    case WarpOp::min_signed: return unsigned(signed_least);
    case WarpOp::max_signed: return unsigned(signed_most);
    default: return 0;
    }
}

static unsigned matching(unsigned mask, const Thread *lanes, uint64_t value) {
    unsigned match = 0;
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1u) match |= unsigned(lanes[lane].input.value == value) << lane;
    return match;
}

static bool is_shuffle(WarpOp op) {
    return op >= WarpOp::shuffle && op <= WarpOp::shuffle_xor;
}

static void complete(WarpOp op, unsigned mask, Thread *lanes, Site site) {
    uint64_t all = is_shuffle(op) || op == WarpOp::sync ? 0 : combine(op, mask, lanes);
    for (int lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1u)) continue;
        Thread &t = lanes[lane];
        t.result = all;
        if (op == WarpOp::match_any) t.result = matching(mask, lanes, t.input.value);
        if (!is_shuffle(op)) continue;
        int source = source_of(op, lane, t.input);
        if (source >= LANES || !(mask >> source & 1u))
            fatal("%s at %s:%d: lane %d reads from lane %d, which is not in the mask %08x",
                  name_of(op), site.file, site.line, lane, source, mask);
        t.result = lanes[source].input.value;
    }
}

static void check_arguments(WarpOp op, unsigned mask, const WarpInput &input, Site site) {
    const Block &b = block();
    unsigned lane = this_thread().linear % LANES, first = this_thread().linear - lane;
    unsigned lanes = b.size - first < LANES ? b.size - first : LANES;
    if (!(mask >> lane & 1u))
        fatal("%s at %s:%d: lane %u is not in its mask %08x", name_of(op), site.file, site.line,
              lane, mask);
    if (lanes < LANES && mask >> lanes)
        fatal("%s at %s:%d: the mask %08x names lanes that the block lacks: its last warp has %u",
              name_of(op), site.file, site.line, mask, lanes);
    if (input.width < 1 || input.width > LANES || (input.width & (input.width - 1)))
        fatal("%s at %s:%d: the width is %d", name_of(op), site.file, site.line, input.width);
    if (const unsigned gone = mask & b.returned[first / LANES])
        fatal("%s at %s:%d: lane %d in the mask %08x has returned", name_of(op), site.file,
              site.line, __builtin_ctz(gone), mask);
}

uint64_t warp_collective(WarpOp op, unsigned mask, const WarpInput &input, Site site) {
    check_arguments(op, mask, input, site);
    Block &b = block();
    Thread &self = this_thread();
    unsigned lane = self.linear % LANES, warp = self.linear / LANES;
    unsigned first = unsigned(__builtin_ctz(mask));
    WarpSlot &slot = b.warp_slots[warp][first];
    Token *tokens = b.tokens + 2 + (warp * LANES + first) * 2;
    if (slot.arrived == 0) {
        slot.mask = mask;
        slot.op = op;
        slot.site = site;
    } else if (slot.mask != mask || slot.op != op || !same(slot.site, site)) {
        fatal("divergent warp: lanes %08x wait in %s with mask %08x at %s:%d, and lane %u arrives "
              "in %s with mask %08x at %s:%d",
              slot.arrived, name_of(slot.op), slot.mask, slot.site.file, slot.site.line, lane,
              name_of(op), mask, site.file, site.line);
    }
    self.input = input;
    slot.arrived |= 1u << lane;
    int turn = slot.turn;
    if (op == WarpOp::sync) tokens[turn].release();
    will_wait(name_of(op), site);
    if (slot.arrived == mask) {
        slot.arrived = 0;
        slot.turn = !turn;
        Thread *lanes = &b.threads[warp * LANES];
        complete(op, mask, lanes, site);
        for (int i = 0; i < LANES; i++)
            if (mask >> i & 1u) wake(lanes[i]);
    }
    wait();
    if (op == WarpOp::sync) tokens[turn].acquire();
    return self.result;
}

} // namespace emulation
