/* SPDX-License-Identifier: MIT
 *
 * Stackful coroutines on one thread of the CPU. A fibre never ends; one that has nothing to do is
 * switched away from, and is given other work later.
 */
#ifndef EMBFUSE_EMULATION_FIBRE_H
#define EMBFUSE_EMULATION_FIBRE_H

#include <cstddef>

namespace emulation {

struct Fibre {
    void *context;     /* where it goes on: its stack pointer, or its ucontext_t */
    const void *stack; /* lowest address */
    size_t stack_bytes;
    void *asan; /* AddressSanitizer's and ThreadSanitizer's idea of it */
    void *tsan;
};

/* A fibre that runs entry, which must not return, when it is first switched to. It stays for the
 * life of the process. */
Fibre *fibre_create(void (*entry)());

/* The caller, which goes on when somebody switches back to it. Starts with the thread that calls
 * fibre_adopt_thread(), which comes first. */
Fibre *fibre_adopt_thread();
void fibre_switch(Fibre *to);

/* Whether the address is in the guard below a fibre's stack. */
bool fibre_overflow(const void *address);

} // namespace emulation

#endif
