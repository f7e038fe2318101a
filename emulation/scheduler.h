/* SPDX-License-Identifier: MIT
 *
 * Runs a launch: its blocks one after another, and the threads of a block as fibres that switch
 * only where they wait for each other. Barriers and collectives use these calls; only a running
 * thread may make them.
 */
#pragma once

#include "emulation/fibre.h"
#include "emulation/runtime.h"
#include "emulation/sanitizers.h"

namespace emulation {

constexpr int MAX_THREADS = 1024, LANES = 32, WARPS = MAX_THREADS / LANES;

struct Thread {
    uint3 index;
    unsigned linear;
    Fibre *fibre; /* that runs it; NULL before its start and after its return */
    bool returned;
    const char *waits_in; /* NULL: does not wait */
    Site waits_at;
    WarpInput input; /* to the collective that it waits in */
    uint64_t result;
};

/* The collective in which lanes of a warp wait, found by the lowest lane of its mask: disjoint
 * masks never collide. */
struct WarpSlot {
    unsigned mask, arrived; /* 0: not in use */
    WarpOp op;
    Site site;
    int turn;        /* the two tokens alternate: a lane that leaves late must not acquire what */
    Token tokens[2]; /* others did in the next collective */
};

struct Block {
    unsigned size; /* threads */
    Thread threads[MAX_THREADS];
    WarpSlot warp_slots[WARPS][LANES];
    /* the barrier */
    unsigned arrived;
    BarrierOp op;
    Site site;
    unsigned first;  /* to arrive */
    int sum, result; /* of predicates: so far, and of the last complete barrier */
    int turn;
    Token tokens[2];
};

Block &block();
Thread &this_thread();

/* Makes a waiting thread ready to run. */
void wake(Thread &thread);

/* Makes all threads of the block ready, including the caller, in the order of the schedule. */
void wake_all();

/* A thread first says where it will wait, then may wake others or all, and then waits. */
void will_wait(const char *what, Site site);
void wait();

/* "thread (3,0,0)" for a message; the text is valid for three more calls. */
const char *name_of(const Thread &thread);

} // namespace emulation
