/* SPDX-License-Identifier: MIT
 *
 * Runs a launch. A few of its blocks are resident and take turns; the threads of a block are fibres. They switch
 * where they wait for each other, and in random order also at atomics and fences. Barriers, collectives and fences
 * use these calls; only a running thread may make them.
 */
#pragma once

#include "emulation/fences.h"
#include "emulation/fibre.h"
#include "emulation/runtime.h"
#include "emulation/sanitizers.h"
#include "emulation/shared_memory.h"

namespace emulation {

constexpr int MAX_THREADS = 1024, LANES = 32, WARPS = MAX_THREADS / LANES, MAX_RESIDENT = 4;

struct Thread {
    uint3 index;
    unsigned linear;
    Fibre *fibre;         /* runs this thread; NULL before its start and after its return */
    const char *waits_in; /* NULL: does not wait */
    Site waits_at;
    WarpInput input; /* what this thread gives to the collective that it waits in */
    uint64_t result;
    Fences fences;
};

/* A collective that lanes of a warp wait in. Its index is the lowest lane of its mask, so collectives with disjoint
 * masks have different slots. */
struct WarpSlot {
    unsigned mask, arrived; /* 0: not in use */
    WarpOp op;
    Site site;
    /* Says which of the two tokens this collective uses. They alternate: a lane that leaves one collective late must not
     * acquire what other lanes already did before the next one. */
    int turn;
};

/* A resident block. */
struct Block {
    uint3 index;
    uint64_t linear;
    unsigned size, alive; /* threads */
    struct {              /* a queue of threads */
        uint16_t linear[MAX_THREADS];
        unsigned head, count;
    } ready;
    SharedMemory shared;
    Token *tokens; /* two of the barrier, two of each warp slot; every block has new ones */
    Thread threads[MAX_THREADS];
    unsigned returned[WARPS]; /* a mask of lanes for each warp */
    WarpSlot warp_slots[WARPS][LANES];
    /* the barrier */
    unsigned arrived;
    BarrierOp op;
    Site site;
    unsigned first; /* to arrive */
    int sum;        /* of the predicates that have arrived */
    int result;     /* of the last complete barrier */
    int turn;
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
