/* SPDX-License-Identifier: MIT
 *
 * Finds the memory of an access, and reports an access that is out of bounds. Global addresses lie in
 * the emulation's heap, and its guard pages judge them. Each array in shared memory has a slot of
 * addresses, so that an access past its end never meets the next array.
 */
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <unistd.h>

#include "extras/cuda/ptx/run.h"

namespace ptx {

Observer *observer;

enum { SLOTS = 64, SLOT_BITS = 20 }; /* write.py knows the bits, too */

/* The arrays of the running block. */
static struct {
    char *begin[SLOTS];
    u32 bytes[SLOTS], packed[SLOTS]; /* packed: offset in the window that a device has */
    int used[SLOTS], count;
} window;

static const Instruction *current; /* the last access, for reports of faults */

void open_shared(const Translated &k, size_t dynamic_bytes) {
    for (int i = 0; i < window.count; i++) window.bytes[window.used[i]] = 0;
    window.count = 0;
    u32 next = 0;
    for (int pass = 0; pass < 2; pass++) { /* the dynamic array follows the others */
        for (int i = 0; i < k.array_count; i++) {
            const Array &a = k.arrays[i];
            if (a.dynamic != (pass == 1)) continue;
            if (a.slot >= SLOTS) emulation::fatal("more than %d shared arrays", SLOTS - 1);
            next = (next + a.align - 1) / a.align * a.align;
            window.packed[a.slot] = next;
            window.bytes[a.slot] = a.dynamic ? u32(dynamic_bytes) : a.bytes;
            void *begin = a.dynamic ? emulation::dynamic_shared()
                                    : emulation::shared_array(&a, a.bytes, a.align, {k.symbol, 0});
            window.begin[a.slot] = static_cast<char *>(begin);
            window.used[window.count++] = int(a.slot);
            next += window.bytes[a.slot];
        }
    }
}

/* --- reports */

static void describe(const Instruction &i, char *text, size_t size) {
    if (i.source)
        snprintf(text, size, "%s at %s:%d (%s:%d)", i.text, i.source, i.source_line, i.ptx,
                 i.ptx_line);
    else
        snprintf(text, size, "%s at %s:%d", i.text, i.ptx, i.ptx_line);
}

void defect(const Instruction &at, const char *format, ...) {
    char what[400], where[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    describe(at, where, sizeof where);
    emulation::fatal("%s: %s", what, where);
}

void trap(const Instruction &at) {
    defect(at, "a trap");
}

static struct sigaction before[NSIG];

/* The emulation's handler follows, and ends the process. */
static void on_fault(int number, siginfo_t *info, void *context) {
    if (current && emulation::running().in_thread) {
        char where[400];
        describe(*current, where, sizeof where);
        fprintf(stderr, "PTX: the last access was %s\n", where);
    }
    if (before[number].sa_flags & SA_SIGINFO)
        before[number].sa_sigaction(number, info, context);
    else
        sigaction(number, &before[number], nullptr);
}

void catch_faults() {
    static bool done;
    if (done) return;
    done = true;
    for (int number : {SIGSEGV, SIGBUS}) {
        sigaction(number, nullptr, &before[number]);
        struct sigaction action = before[number];
        action.sa_sigaction = on_fault;
        action.sa_flags |= SA_SIGINFO;
        sigaction(number, &action, nullptr);
    }
}

/* --- accesses */

static void tell(const Instruction &at, Space space, u64 address, u32 bytes) {
    observer->access({at, at.kind, space, address, bytes});
}

/* Other threads run between accesses now and then, so that an update that is not atomic loses, and
 * so that an order that only a barrier can give does not come by itself. */
static struct {
    emulation::Random random;
    u32 left = 1;
} switches;

void begin_switches() {
    switches.random =
        emulation::Random(emulation::settings().seed + (emulation::settings().scheduled << 32));
    switches.left = 1;
}

static void sometimes_switch() {
    enum { ABOUT_EVERY = 61 };
    if (--switches.left) return;
    switches.left = 1 + switches.random.below(2 * ABOUT_EVERY);
    let_others_run();
}

static inline void begin(const Instruction &at, u64 address, u32 bytes) {
    if (at.kind == Kind::load || at.kind == Kind::store) sometimes_switch();
    current = &at;
    if (address & (at.kind == Kind::other ? 7 : bytes > 16 ? 15 : bytes - 1))
        defect(at, "a misaligned access of %u bytes at %#llx", bytes, (unsigned long long)address);
}

char *global(u64 address, u32 bytes, const Instruction &at) {
    begin(at, address, bytes);
    if (address >> 47) defect(at, "%#llx is no global address", (unsigned long long)address);
    if (__builtin_expect(observer != nullptr, 0)) tell(at, Space::global, address, bytes);
    return reinterpret_cast<char *>(address);
}

char *shared(u32 address, u32 bytes, const Instruction &at) {
    begin(at, address, bytes);
    u32 slot = address >> SLOT_BITS, offset = address & ((1u << SLOT_BITS) - 1);
    if (slot >= SLOTS || offset + bytes > window.bytes[slot])
        defect(at, "shared memory out of bounds: byte %u of an array of %u bytes", offset,
               slot < SLOTS ? window.bytes[slot] : 0);
    if (__builtin_expect(observer != nullptr, 0))
        tell(at, Space::shared, window.packed[slot] + offset, bytes);
    return window.begin[slot] + offset;
}

char *local(const Frame *frame, u64 address, u32 bytes, const Instruction &at) {
    begin(at, address, bytes);
    for (const Frame *f = frame; f; f = f->outer) {
        u64 offset = address - reinterpret_cast<u64>(f->begin);
        if (offset + bytes > f->bytes || offset > f->bytes) continue;
        if (f->constant && at.kind != Kind::load) defect(at, "a write into parameters");
        if (__builtin_expect(observer != nullptr, 0)) tell(at, Space::local, address, bytes);
        return f->begin + offset;
    }
    defect(at, "local memory out of bounds");
}

char *generic(const Frame *frame, u64 address, u32 bytes, const Instruction &at) {
    if (address & SHARED_MARK) {
        u64 offset = address & ~SHARED_MARK;
        if (offset >> 32) defect(at, "%#llx is no address", (unsigned long long)address);
        return shared(u32(offset), bytes, at);
    }
    if (address & LOCAL_MARK) return local(frame, address & ~LOCAL_MARK, bytes, at);
    return global(address, bytes, at);
}

void in_parameters(const Frame *frame, const char *p, const Instruction &at) {
    while (frame->outer) frame = frame->outer;
    if (p < frame->begin || p >= frame->begin + frame->bytes)
        defect(at, "parameters out of bounds");
}

void prefetch(u64 address, u32 bytes, const Instruction &at) {
    if (observer) tell(at, Space::global, address, bytes);
}

void copy(char *to, const char *from, u32 bytes, u32 present) {
    memcpy(to, from, present < bytes ? present : bytes);
    if (present < bytes) memset(to + present, 0, bytes - present);
}

} // namespace ptx
