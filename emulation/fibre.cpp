/* SPDX-License-Identifier: MIT */
#include "emulation/fibre.h"

#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>

#include "emulation/runtime.h"
#include "emulation/sanitizers.h"

/* --- the switch: it saves the registers that a call preserves, and exchanges stacks */
#ifdef __x86_64__

extern "C" void emulation_switch_stack(void **save, void *restore);
asm(R"(
    .text
    .p2align 4
    .globl emulation_switch_stack
    .type emulation_switch_stack, @function
emulation_switch_stack:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .size emulation_switch_stack, . - emulation_switch_stack
)");

/* The first switch to a fibre pops six registers and the entry. The 0 above them stands for a
 * return address: it ends backtraces, and leaves the stack pointer as after a call. */
static void *new_context(char *stack, size_t bytes, void (*entry)()) {
    auto *top = reinterpret_cast<uint64_t *>(stack + bytes);
    *--top = 0;
    *--top = reinterpret_cast<uint64_t>(entry);
    for (int i = 0; i < 6; i++) *--top = 0;
    return top;
}

static void drop_context(void *) {}

static void *thread_context() {
    return nullptr;
}

static void switch_context(emulation::Fibre *from, emulation::Fibre *to) {
    emulation_switch_stack(&from->context, to->context);
}

#else /* other CPUs: several times slower, because it saves the signal mask, too */
#include <ucontext.h>

static void *new_context(char *stack, size_t bytes, void (*entry)()) {
    auto *context = new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}

static void drop_context(void *context) {
    delete static_cast<ucontext_t *>(context);
}

static void *thread_context() {
    return new ucontext_t;
}

static void switch_context(emulation::Fibre *from, emulation::Fibre *to) {
    swapcontext(static_cast<ucontext_t *>(from->context), static_cast<ucontext_t *>(to->context));
}

#endif

namespace emulation {

/* The guard is wide: a large local array would step over a narrow one. Of a stack only what a thread touches is
 * memory; clang and sanitizers take more than 64 KiB for the largest kernels. */
enum { GUARD = 256 << 10, STACK = 256 << 10, MAX_STACKS = 2048 };

static struct {
    Fibre thread;
    Fibre *current, *previous;
    const char *guards[MAX_STACKS];
    int stacks;
    void (*entry)();
} fibres;

/* Runs first on the new stack after a switch. */
static void arrived() {
    if (__sanitizer_finish_switch_fiber)
        __sanitizer_finish_switch_fiber(fibres.current->asan, &fibres.previous->stack,
                                        &fibres.previous->stack_bytes);
}

static void first_entry() {
    arrived();
    fibres.entry();
    abort();
}

Fibre *fibre_create(void (*entry)()) {
    void *mapping = mmap(nullptr, GUARD + STACK, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED || fibres.stacks == MAX_STACKS) fatal("no memory for a stack");
    mprotect(mapping, GUARD, PROT_NONE);
    char *stack = static_cast<char *>(mapping) + GUARD;
    fibres.guards[fibres.stacks++] = static_cast<char *>(mapping);
    fibres.entry = entry;
    return new Fibre{new_context(stack, STACK, first_entry), stack, STACK, nullptr,
                     with_tsan() ? __tsan_create_fiber(0) : nullptr};
}

/* The new mapping makes the race detector forget accesses to the stack. */
void fibre_renew(Fibre *fibre) {
    if (!with_tsan()) return;
    auto *stack = static_cast<char *>(const_cast<void *>(fibre->stack));
    if (mmap(stack, fibre->stack_bytes, PROT_READ | PROT_WRITE,
             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        fatal("no memory for a stack");
    __tsan_destroy_fiber(fibre->tsan);
    drop_context(fibre->context);
    fibre->context = new_context(stack, fibre->stack_bytes, first_entry);
    fibre->tsan = __tsan_create_fiber(0);
}

Fibre *fibre_adopt_thread() {
    if (!fibres.thread.context) fibres.thread.context = thread_context();
    if (with_tsan()) fibres.thread.tsan = __tsan_get_current_fiber();
    fibres.current = &fibres.thread;
    return fibres.current;
}

void fibre_switch(Fibre *to) {
    Fibre *from = fibres.current;
    fibres.previous = from;
    fibres.current = to;
    if (__sanitizer_start_switch_fiber)
        __sanitizer_start_switch_fiber(&from->asan, to->stack, to->stack_bytes);
    if (with_tsan()) __tsan_switch_to_fiber(to->tsan, 1); /* 1: does not synchronise */
    switch_context(from, to);
    arrived();
}

/* True if the address is `from` or more and less than `to` bytes above the start of a guard. */
static bool above_a_guard(const void *address, size_t from, size_t to) {
    auto *p = static_cast<const char *>(address);
    for (int i = 0; i < fibres.stacks; i++)
        if (p >= fibres.guards[i] + from && p < fibres.guards[i] + to) return true;
    return false;
}

bool fibre_owns(const void *address) {
    return above_a_guard(address, GUARD, GUARD + STACK);
}

bool fibre_overflow(const void *address) {
    return above_a_guard(address, 0, GUARD);
}

} // namespace emulation
