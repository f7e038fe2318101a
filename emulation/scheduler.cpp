/* SPDX-License-Identifier: MIT */
#include "emulation/scheduler.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "emulation/carriers.h"
#include "emulation/device_heap.h"
#include "emulation/emulation.h"

namespace emulation {

/* Plain arrays: standard library code could come from an instrumented object, and the race detector
 * would take the scheduler's accesses for the kernel's. */
static struct {
    const Launch *launch;
    const std::function<void()> *body;
    uint3 block_index; /* of the running thread */
    dim3 block_dim, grid_dim;
    bool takes_turns; /* threads and blocks do so at atomics and fences */
    Random random;
    Block blocks[MAX_RESIDENT];
    Block *resident[MAX_RESIDENT];
    unsigned num_resident;
    Block *block; /* the running thread's, or the last one */
    Thread *thread;
    Fibre *host;
    Token go, done; /* host to threads, threads to host */
} now;

static uint3 thread_index;

Block &block() {
    return *now.block;
}

Thread &this_thread() {
    return *now.thread;
}

Running running() {
    return {now.launch, now.block_index, thread_index, now.thread != nullptr};
}

const char *name_of(const Thread &t) {
    static char names[4][48];
    static unsigned turn;
    char *name = names[turn++ % 4];
    snprintf(name, sizeof names[0], "thread (%u,%u,%u)", t.index.x, t.index.y, t.index.z);
    return name;
}

/* --- the queue of a block */

static void push(Block &b, unsigned linear) {
    b.ready.linear[(b.ready.head + b.ready.count++) % MAX_THREADS] = uint16_t(linear);
}

static void push_all(Block &b) {
    bool descending = settings().order == EMULATION_DESCENDING;
    for (unsigned i = 0; i < b.size; i++) push(b, descending ? b.size - 1 - i : i);
}

static Thread &pop(Block &b) {
    unsigned head = b.ready.head % MAX_THREADS;
    uint16_t *linear = b.ready.linear;
    if (now.takes_turns) {
        unsigned other = (head + now.random.below(b.ready.count)) % MAX_THREADS;
        uint16_t taken = linear[other];
        linear[other] = linear[head];
        linear[head] = taken;
    }
    b.ready.head = head + 1;
    b.ready.count--;
    return b.threads[linear[head]];
}

void wake(Thread &t) {
    t.waits_in = nullptr;
    push(*now.block, t.linear);
}

void wake_all() {
    Block &b = *now.block;
    for (unsigned i = 0; i < b.size; i++) b.threads[i].waits_in = nullptr;
    push_all(b);
}

/* --- running */

[[noreturn]] static void deadlock(const Block &b) {
    char text[2048];
    int n =
        snprintf(text, sizeof text, "deadlock: no thread can run; %u of %u threads have returned",
                 b.size - b.alive, b.size);
    Site last = {"", 0};
    for (unsigned i = 0; i < b.size && n < int(sizeof text) - 400; i++) {
        const Thread &t = b.threads[i];
        if (!t.waits_in || (last.file == t.waits_at.file && last.line == t.waits_at.line)) continue;
        last = t.waits_at;
        n += snprintf(text + n, sizeof text - size_t(n), "\n  %s waits in %s at %.200s:%d",
                      name_of(t), t.waits_in, last.file, last.line);
    }
    fatal("%s", text);
}

/* Runs some thread of some block. Returns when the caller's fibre runs again. Each resident block has a thread that
 * can run: else run_next() would have noticed. */
static void run_any(Fibre *self) {
    unsigned which = now.num_resident > 1 ? now.random.below(now.num_resident) : 0;
    Block &b = *now.resident[which];
    Thread &t = pop(b);
    if (!t.fibre) t.fibre = carrier_take();
    now.block = &b;
    now.thread = &t;
    now.block_index = b.index;
    thread_index = t.index;
    if (t.fibre != self) fibre_switch(t.fibre);
}

/* After the running thread has returned or waits: the host goes on when a block is complete. */
static void run_next(Fibre *self) {
    Block &b = *now.block;
    if (b.alive > 0 && b.ready.count == 0) deadlock(b);
    if (b.alive > 0) return run_any(self);
    now.thread = nullptr;
    fibre_switch(now.host);
}

void will_wait(const char *what, Site site) {
    now.thread->waits_in = what;
    now.thread->waits_at = site;
}

void wait() {
    run_next(now.thread->fibre);
}

void switch_point() {
    enum { ONE_IN = 8 };
    if (!now.takes_turns || !now.thread || now.random.below(ONE_IN)) return;
    wake(*now.thread);
    wait();
}

/* The endless loop of a fibre. */
static void work() {
    for (;;) {
        if (with_tsan()) __tsan_acquire(&now.go);
        (*now.body)();
        now.done.release();
        Thread &t = *now.thread;
        Fibre *self = t.fibre;
        t.fibre = nullptr;
        now.block->returned[t.linear / LANES] |= 1u << t.linear % LANES;
        now.block->alive--;
        carrier_give(self);
        run_next(self);
    }
}

/* --- blocks */

static Token *new_tokens(const Block &b) {
    size_t warps = (b.size + LANES - 1) / LANES;
    if (with_tsan()) return static_cast<Token *>(malloc((2 + warps * LANES * 2) * sizeof(Token)));
    static Token unused[2 + WARPS * LANES * 2];
    return unused;
}

static void begin_block(Block &b, uint64_t linear) {
    dim3 grid = now.grid_dim;
    b.linear = linear;
    b.index = {unsigned(linear % grid.x), unsigned(linear / grid.x % grid.y),
               unsigned(linear / grid.x / grid.y)};
    shared_begin_block(b.shared, int(&b - now.blocks), now.launch->shared_bytes);
    b.tokens = new_tokens(b);
    for (unsigned &lanes : b.returned) lanes = 0;
    for (unsigned i = 0; i < b.size; i++) {
        b.threads[i].fences = {};
        b.threads[i].fibre = with_tsan() ? carrier_take() : nullptr;
    }
    b.alive = b.size;
    b.ready.count = 0;
    push_all(b);
    now.resident[now.num_resident++] = &b;
}

static void end_block(Block &b) {
    shared_end_block(b.shared);
    if (with_tsan()) free(b.tokens);
    unsigned i = 0;
    while (now.resident[i] != &b) i++;
    now.resident[i] = now.resident[--now.num_resident];
}

/* Everything that blocks did so far happens before what later blocks do. */
static void begin_anew() {
    carriers_renew(now.random, work);
    shared_begin_launch();
    now.done.acquire();
    now.go.release();
}

static void run_until_a_block_ends() {
    run_any(now.host);
    end_block(*now.block);
}

static void run_block(uint64_t linear, unsigned most) {
    while (now.num_resident > 0 && !shared_has_room(now.launch->shared_bytes))
        run_until_a_block_ends();
    if (!shared_has_room(now.launch->shared_bytes)) begin_anew();
    for (Block &b : now.blocks)
        if (b.alive == 0) {
            begin_block(b, linear);
            break;
        }
    if (now.num_resident == most) run_until_a_block_ends();
}

/* The number of resident blocks. */
static unsigned residents(unsigned threads) {
    if (!now.takes_turns) return 1;
    unsigned most =
        settings().resident > 0 ? unsigned(settings().resident) : 2 + now.random.below(3);
    if (most > MAX_RESIDENT) most = MAX_RESIDENT;
    if (most * threads > MAX_THREADS) most = MAX_THREADS / threads;
    return most;
}

/* Random order: a step that is coprime to the number of blocks visits all of them. */
static void run_blocks(uint64_t blocks, unsigned most) {
    Random random(settings().seed + settings().scheduled);
    uint64_t at = 0, step = 1;
    if (settings().order == EMULATION_DESCENDING) at = step = blocks - 1;
    if (settings().order == EMULATION_RANDOM) {
        uint32_t range = blocks < UINT32_MAX ? uint32_t(blocks) : UINT32_MAX;
        at = random.below(range);
        do {
            step = 1 + random.below(range);
        } while (std::gcd(step, blocks) != 1);
    }
    for (uint64_t i = 0; i < blocks; i++) {
        run_block(at, most);
        at = (at + step) % blocks;
    }
    while (now.num_resident > 0) run_until_a_block_ends();
}

static void prepare(Block &b, dim3 shape) {
    b.size = shape.x * shape.y * shape.z;
    unsigned linear = 0;
    for (unsigned z = 0; z < shape.z; z++)
        for (unsigned y = 0; y < shape.y; y++)
            for (unsigned x = 0; x < shape.x; x++, linear++)
                b.threads[linear] = {{x, y, z}, linear, nullptr, nullptr, {}, {}, 0, {}};
}

void run_kernel(const Launch &launch, const std::function<void()> &thread) {
    if (now.launch)
        fatal("kernel %s is launched from kernel %s", launch.kernel, now.launch->kernel);
    now.launch = &launch;
    now.body = &thread;
    now.block_dim = launch.block;
    now.grid_dim = launch.grid;
    now.takes_turns = settings().order == EMULATION_RANDOM;
    now.random = Random(settings().seed * 0x100000001b3u + settings().scheduled);
    unsigned most = residents(launch.block.x * launch.block.y * launch.block.z);
    for (unsigned i = 0; i < most; i++) prepare(now.blocks[i], launch.block);
    now.host = fibre_adopt_thread();
    {
        DeviceRuns runs;
        fences_begin_launch();
        begin_anew();
        run_blocks(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z, most);
        now.done.acquire();
    }
    now.launch = nullptr;
}

void run_library(const Launch &call, const std::function<void()> &work) {
    now.launch = &call;
    {
        DeviceRuns runs;
        work();
    }
    now.launch = nullptr;
}

} // namespace emulation

const uint3 &threadIdx = emulation::thread_index;
const uint3 &blockIdx = emulation::now.block_index;
const dim3 &blockDim = emulation::now.block_dim;
const dim3 &gridDim = emulation::now.grid_dim;
