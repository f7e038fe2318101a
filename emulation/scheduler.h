/* SPDX-License-Identifier: MIT
 *
 * Runs a launch: its blocks one after another, and the threads of a block as fibres that change
 * only where they wait for each other. Barriers and collectives are built on these calls, which
 * only a running thread makes.
 */
#ifndef EMBFUSE_EMULATION_SCHEDULER_H
#define EMBFUSE_EMULATION_SCHEDULER_H

#include "emulation/fibre.h"
#include "emulation/runtime.h"
#include "emulation/sanitizers.h"

namespace emulation {

constexpr int MAX_THREADS = 1024, LANES = 32, WARPS = MAX_THREADS / LANES;

struct Thread {
    uint3 index;
    unsigned linear;
    Fibre *fibre; /* that it runs on; NULL before it starts and after it returned */
    bool returned;
    const char *waits_in; /* NULL: it does not */
    Site waits_at;
    WarpInput input; /* of the collective that it waits in */
    uint64_t result;
};

/* The collective in which lanes of a warp wait, found by the lowest lane of its mask: masks that
 * have no lane in common never collide. */
struct WarpSlot {
    unsigned mask, arrived; /* 0: not in use */
    WarpOp op;
    Site site;
    int turn;        /* the two tokens are used in turn: who leaves late must not learn of what */
    Token tokens[2]; /* happened after the next collective began */
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
    int sum, result; /* of predicates: so far, and of the barrier that was left last */
    int turn;
    Token tokens[2];
};

Block &block();
Thread &this_thread();

/* Makes a waiting thread ready to run. */
void wake(Thread &thread);

/* Makes all threads of the block ready, the caller's too, in the order of the schedule. */
void wake_all();

/* A thread first says where it will wait, then perhaps wakes others, or all, and waits. */
void will_wait(const char *what, Site site);
void wait();

/* "thread (3,0,0)" for a message; the text lasts until the fourth call from now. */
const char *name_of(const Thread &thread);

} // namespace emulation

#endif
