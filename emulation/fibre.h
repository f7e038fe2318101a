/* SPDX-License-Identifier: MIT
 *
 * Stackful coroutines on one thread of the CPU. A fibre never ends: when it has nothing to do, it
 * switches to another one, and gets other work later.
 */
#pragma once

#include <cstddef>

namespace emulation {

struct Fibre {
    void *context;     /* where it continues: its stack pointer, or its ucontext_t */
    const void *stack; /* lowest address */
    size_t stack_bytes;
    void *asan; /* the sanitizers' handles of it */
    void *tsan;
};

/* Makes a fibre that runs entry at the first switch to it. entry must not return. The fibre lives
 * as long as the process. */
Fibre *fibre_create(void (*entry)());

/* For the race detector, the fibre becomes a new one that knows only what the caller knows. It enters entry again, and
 * must not be the current one. */
void fibre_renew(Fibre *fibre);

/* Makes the calling thread the current fibre. Call it before the first fibre_switch, which returns
 * when another fibre switches back to the caller. */
Fibre *fibre_adopt_thread();
void fibre_switch(Fibre *to);

/* True if the address is in a fibre's stack, or in the guard below a stack. */
bool fibre_owns(const void *address);
bool fibre_overflow(const void *address);

} // namespace emulation
