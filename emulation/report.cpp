/* SPDX-License-Identifier: MIT */
#include <cstdarg>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

#include "emulation/device_heap.h"
#include "emulation/emulation.h"
#include "emulation/fibre.h"
#include "emulation/runtime.h"
#include "emulation/sanitizers.h"
#include "emulation/shared_memory.h"

namespace emulation {

void fatal(const char *format, ...) {
    fflush(stdout);
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated CUDA: ", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    Running now = running();
    if (now.launch) {
        fprintf(stderr, "  in kernel %s, launched at %s:%d\n", now.launch->kernel,
                now.launch->site.file, now.launch->site.line);
        fprintf(stderr, "  block (%u,%u,%u) of a grid of (%u,%u,%u)\n", now.block.x, now.block.y,
                now.block.z, now.launch->grid.x, now.launch->grid.y, now.launch->grid.z);
        if (now.in_thread)
            fprintf(stderr, "  thread (%u,%u,%u) of a block of (%u,%u,%u)\n", now.thread.x,
                    now.thread.y, now.thread.z, now.launch->block.x, now.launch->block.y,
                    now.launch->block.z);
    } else {
        fputs("  in host code\n", stderr);
    }
    fprintf(stderr, "  replay with EMULATION_ORDER=%d EMULATION_SEED=%llu EMULATION_RESIDENT=%d\n",
            settings().order, (unsigned long long)settings().seed, settings().resident);
    _exit(EMULATION_DEFECT);
}

void misaligned(const void *p, size_t bytes, Site site) {
    fatal("misaligned access of %zu bytes at %p (%s:%d)", bytes, p, site.file, site.line);
}

size_t global_address(const void *p, const char *what, Site site) {
    if (!heap_owns(p))
        fatal("%s of %p, which is not global memory but %s (%s:%d)", what, p,
              shared_owns(p)  ? "shared memory"
              : fibre_owns(p) ? "a thread's local memory"
              : p             ? "the host's"
                              : "null",
              site.file, site.line);
    return reinterpret_cast<size_t>(p);
}

/* --- faults */

static struct sigaction before[NSIG];

/* Restores the earlier handler for other faults; the access then faults again. */
static void on_fault(int number, siginfo_t *info, void *) {
    if (heap_owns(info->si_addr)) {
        char where[128];
        heap_describe(info->si_addr, where, sizeof where);
        if (running().launch) fatal("an access out of bounds: %s", where);
        fatal("the host accesses device memory: %s", where);
    }
    if (fibre_overflow(info->si_addr)) fatal("a thread's stack overflows");
    sigaction(number, &before[number], nullptr);
}

/* The handler needs a stack of its own: a fibre's may have overflowed. */
void catch_faults() {
    static char *stack;
    if (stack || with_asan()) return; /* AddressSanitizer reports faults with a backtrace */
    enum { STACK = 64 << 10 };
    stack = static_cast<char *>(malloc(STACK));
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = STACK;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &before[SIGSEGV]);
    sigaction(SIGBUS, &action, &before[SIGBUS]);
}

} // namespace emulation
