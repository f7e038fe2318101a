/* SPDX-License-Identifier: MIT */
#include "emulation/ptx/mbarrier.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "emulation/ptx/run.h"

namespace ptx {

static_assert(sizeof(Mbarrier) == 8);

static Mbarrier load(const char *at) {
    Mbarrier b;
    memcpy(&b, at, sizeof b);
    return b;
}

static void store(char *at, Mbarrier b) {
    if (b.count && b.pending == 0 && b.bytes == 0) {
        b.pending = b.count;
        b.phase ^= 1;
    }
    memcpy(at, &b, sizeof b);
}

struct Copy {
    char *to;
    const char *from;
    uint32_t bytes;
    char *barrier;
};
static std::vector<Copy> under_way;

void barrier_init(char *at, uint32_t count) {
    for (const Copy &c : under_way)
        if (c.barrier == at)
            emulation::fatal("an mbarrier begins again before its bulk copies end");
    store(at, {0, uint16_t(count & 0x7fff), 0, uint16_t(count)});
}

void expect(char *at, uint32_t bytes) {
    Mbarrier b = load(at);
    b.bytes += int32_t(bytes);
    memcpy(at, &b, sizeof b); /* the arrival that follows may end the phase */
}

void complete(char *at, uint32_t bytes) {
    Mbarrier b = load(at);
    b.bytes -= int32_t(bytes);
    store(at, b);
}

void bulk_copy(char *to, const char *from, uint32_t bytes, char *barrier) {
    memset(to, 0xff, bytes);
    under_way.push_back({to, from, bytes, barrier});
}

static void finish_copies(const char *barrier) {
    const auto rest = std::stable_partition(under_way.begin(), under_way.end(),
                                            [&](const Copy &c) { return c.barrier != barrier; });
    const std::vector<Copy> mine(rest, under_way.end());
    under_way.erase(rest, under_way.end());
    for (const Copy &c : mine) {
        memcpy(c.to, c.from, c.bytes);
        complete(c.barrier, c.bytes);
    }
}

void kernel_ended() {
    if (!under_way.empty())
        emulation::fatal("a kernel ends before its bulk copies, for which no thread waited");
}

uint64_t arrive(char *at, uint32_t arrivals) {
    Mbarrier b = load(at);
    uint64_t before;
    memcpy(&before, at, sizeof before);
    if (b.pending < arrivals) emulation::fatal("more arrivals at an mbarrier than it was made for");
    b.pending = uint16_t(b.pending - arrivals) & 0x7fff;
    store(at, b);
    return before;
}

uint32_t phase_of(uint64_t state) {
    Mbarrier b;
    memcpy(&b, &state, sizeof b);
    return b.phase;
}

bool test_wait(char *at, uint32_t parity) {
    if (load(at).phase == parity) finish_copies(at);
    return load(at).phase != parity;
}

bool try_wait(char *at, uint32_t parity) {
    enum { ENOUGH = 1 << 20 };
    static int in_vain; /* in succession, of all threads */
    if (!test_wait(at, parity)) let_others_run();
    bool ended = test_wait(at, parity);
    in_vain = ended ? 0 : in_vain + 1;
    if (in_vain == ENOUGH) emulation::fatal("a phase of an mbarrier does not end");
    return ended;
}

} // namespace ptx
