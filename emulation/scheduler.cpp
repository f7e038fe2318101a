/* SPDX-License-Identifier: MIT */
#include "emulation/scheduler.h"

#include <cstdio>
#include <numeric>

#include "emulation/device_heap.h"
#include "emulation/emulation.h"
#include "emulation/shared_memory.h"

namespace emulation {

/* Plain arrays: standard library code could come from an instrumented object, and the race detector
 * would take the scheduler's accesses for the kernel's. */
static struct {
    const Launch *launch;
    const std::function<void()> *body;
    uint3 block_index;
    dim3 block_dim, grid_dim;
    Random random;
    Block block;
    Thread *thread; /* the running one */
    unsigned alive;
    struct { /* a queue of threads */
        uint16_t linear[MAX_THREADS];
        unsigned head, count;
    } ready;
    Fibre *host;
    Fibre *fibres[MAX_THREADS], *idle[MAX_THREADS];
    unsigned num_fibres, num_idle;
    Token go, done; /* host to threads, threads to host */
} now;

static uint3 thread_index;

Block &block() {
    return now.block;
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

/* --- the queue */

static void push(unsigned linear) {
    now.ready.linear[(now.ready.head + now.ready.count++) % MAX_THREADS] = uint16_t(linear);
}

static void push_all() {
    unsigned n = now.block.size;
    bool descending = settings().order == EMULATION_DESCENDING;
    for (unsigned i = 0; i < n; i++) push(descending ? n - 1 - i : i);
}

static Thread &pop() {
    unsigned head = now.ready.head % MAX_THREADS;
    uint16_t *linear = now.ready.linear;
    if (settings().order == EMULATION_RANDOM) {
        unsigned other = (head + now.random.below(now.ready.count)) % MAX_THREADS;
        uint16_t taken = linear[other];
        linear[other] = linear[head];
        linear[head] = taken;
    }
    now.ready.head = head + 1;
    now.ready.count--;
    return now.block.threads[linear[head]];
}

void wake(Thread &t) {
    t.waits_in = nullptr;
    push(t.linear);
}

void wake_all() {
    for (unsigned i = 0; i < now.block.size; i++) now.block.threads[i].waits_in = nullptr;
    push_all();
}

/* --- fibres */

static void work();

/* The race detector takes all that a fibre does for a sequence, whichever threads it runs. So under
 * it a fibre runs only one thread of a block, and is drawn at random from many. */
static void all_idle() {
    enum { AT_LEAST = 128 };
    if (!with_tsan()) return;
    while (now.num_fibres < now.block.size || now.num_fibres < AT_LEAST)
        now.fibres[now.num_fibres++] = fibre_create(work);
    for (unsigned i = 0; i < now.num_fibres; i++) now.idle[i] = now.fibres[i];
    now.num_idle = now.num_fibres;
}

static Fibre *take_fibre() {
    if (now.num_idle == 0) return now.fibres[now.num_fibres++] = fibre_create(work);
    unsigned at = with_tsan() ? now.random.below(now.num_idle) : now.num_idle - 1;
    Fibre *taken = now.idle[at];
    now.idle[at] = now.idle[--now.num_idle];
    return taken;
}

/* Without the race detector, a fibre continues with a new thread, without a switch. */
static void give_fibre(Fibre *fibre) {
    if (!with_tsan()) now.idle[now.num_idle++] = fibre;
}

/* --- running */

[[noreturn]] static void deadlock() {
    char text[2048];
    int n =
        snprintf(text, sizeof text, "deadlock: no thread can run; %u of %u threads have returned",
                 now.block.size - now.alive, now.block.size);
    Site last = {"", 0};
    for (unsigned i = 0; i < now.block.size && n < int(sizeof text) - 400; i++) {
        const Thread &t = now.block.threads[i];
        if (!t.waits_in || (last.file == t.waits_at.file && last.line == t.waits_at.line)) continue;
        last = t.waits_at;
        n += snprintf(text + n, sizeof text - size_t(n), "\n  %s waits in %s at %.200s:%d",
                      name_of(t), t.waits_in, last.file, last.line);
    }
    fatal("%s", text);
}

/* Runs the next thread, or the host if all returned. Returns when the caller's fibre runs again. */
static void run_next(Fibre *self) {
    Fibre *next = now.host;
    if (now.alive == 0) {
        now.thread = nullptr;
    } else {
        if (now.ready.count == 0) deadlock();
        Thread &t = pop();
        if (!t.fibre) t.fibre = take_fibre();
        now.thread = &t;
        thread_index = t.index;
        next = t.fibre;
    }
    if (next != self) fibre_switch(next);
}

void will_wait(const char *what, Site site) {
    now.thread->waits_in = what;
    now.thread->waits_at = site;
}

void wait() {
    run_next(now.thread->fibre);
}

/* The endless loop of a fibre. */
static void work() {
    for (;;) {
        now.go.acquire();
        (*now.body)();
        now.done.release();
        Thread &t = *now.thread;
        Fibre *self = t.fibre;
        t.fibre = nullptr;
        t.returned = true;
        now.alive--;
        give_fibre(self);
        run_next(self);
    }
}

static void run_block(uint64_t linear) {
    dim3 grid = now.grid_dim;
    now.block_index = {unsigned(linear % grid.x), unsigned(linear / grid.x % grid.y),
                       unsigned(linear / grid.x / grid.y)};
    now.random = Random(settings().seed * 0x100000001b3u + (settings().scheduled << 32) + linear);
    if (!shared_begin_block(now.launch->shared_bytes)) {
        now.done.acquire(); /* else a block would race with an earlier one at its addresses */
        now.go.release();
    }
    for (unsigned i = 0; i < now.block.size; i++) now.block.threads[i].returned = false;
    now.alive = now.block.size;
    all_idle();
    push_all();
    run_next(now.host);
    shared_end_block();
}

/* Random order: a step that is coprime to the number of blocks visits all of them. */
static void run_blocks(uint64_t blocks) {
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
        run_block(at);
        at = (at + step) % blocks;
    }
}

void run_kernel(const Launch &launch, const std::function<void()> &thread) {
    if (now.launch)
        fatal("kernel %s is launched from kernel %s", launch.kernel, now.launch->kernel);
    now.launch = &launch;
    now.body = &thread;
    now.block_dim = launch.block;
    now.grid_dim = launch.grid;
    now.block.size = launch.block.x * launch.block.y * launch.block.z;
    unsigned linear = 0;
    for (unsigned z = 0; z < launch.block.z; z++)
        for (unsigned y = 0; y < launch.block.y; y++)
            for (unsigned x = 0; x < launch.block.x; x++, linear++)
                now.block.threads[linear] = {{x, y, z}, linear, nullptr, false, nullptr, {}, {}, 0};
    now.host = fibre_adopt_thread();
    {
        DeviceRuns runs;
        now.go.release();
        run_blocks(uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z);
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
