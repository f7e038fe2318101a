/* SPDX-License-Identifier: MIT
 *
 * The emulation executes barriers and collectives of PTX, at their line of the PTX.
 */
#include "extras/cuda/ptx/run.h"
#include "emulation/scheduler.h"

namespace ptx {

using emulation::BarrierOp;
using emulation::WarpOp;

u32 lane() {
    return emulation::this_thread().linear % 32;
}

void let_others_run() {
    emulation::wake(emulation::this_thread());
    emulation::wait();
}

int block_barrier(BarrierOp op, bool value, const Instruction &at) {
    if (observer) observer->barrier(at);
    return emulation::block_barrier(op, value, {at.site, at.ptx_line});
}

static u64 collective(WarpOp op, u32 mask, const emulation::WarpInput &in, const Instruction &at) {
    if (observer) observer->collective(at, mask);
    return emulation::warp_collective(op, mask, in, {at.site, at.ptx_line});
}

u64 warp(WarpOp op, u32 mask, u64 value, const Instruction &at) {
    return collective(op, mask, {value, 0, 32}, at);
}

/* c has the mask of a segment in bits 8 to 12 and the clamp in bits 0 to 4. A lane whose source is
 * outside keeps its own value. */
static u32 shuffle(u32 value, int source, bool in, u32 mask, const Instruction &at) {
    return u32(collective(WarpOp::shuffle, mask, {value, in ? source : int(lane()), 32}, at));
}
static int segment(u32 c) {
    return int(c >> 8 & 31);
}
static int bound(u32 c) {
    return (int(lane()) & segment(c)) | (int(c & 31) & ~segment(c));
}

u32 shfl_idx(u32 value, u32 b, u32 c, u32 mask, const Instruction &at, bool &in) {
    int source = (int(lane()) & segment(c)) | (int(b & 31) & ~segment(c));
    in = source <= bound(c);
    return shuffle(value, source, in, mask, at);
}
u32 shfl_up(u32 value, u32 b, u32 c, u32 mask, const Instruction &at, bool &in) {
    int source = int(lane()) - int(b & 31);
    in = source >= bound(c);
    return shuffle(value, source, in, mask, at);
}
u32 shfl_down(u32 value, u32 b, u32 c, u32 mask, const Instruction &at, bool &in) {
    int source = int(lane()) + int(b & 31);
    in = source <= bound(c);
    return shuffle(value, source, in, mask, at);
}
u32 shfl_bfly(u32 value, u32 b, u32 c, u32 mask, const Instruction &at, bool &in) {
    int source = int(lane() ^ (b & 31));
    in = source <= bound(c);
    return shuffle(value, source, in, mask, at);
}

void fence(const Instruction &at) {
    if (observer) observer->fence(at);
    emulation::fence();
}

} // namespace ptx
