/* SPDX-License-Identifier: MIT */
#include "emulation/device_heap.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <sys/mman.h>
#include <vector>

#include "emulation/runtime.h"
#include "emulation/sanitizers.h"

namespace emulation {

/* Addresses are reused only when the arena is used up; until then accesses after cudaFree fault. */
static const size_t ARENA = size_t(64) << 30;
enum { PAGE = 4096, ALIGN = 256, POISON = 0xff };

struct Allocation {
    char *pages, *begin, *end, *pages_end; /* [begin, end) is the caller's */
};

static struct {
    char *arena;
    char *next;                    /* where the search for room starts */
    std::vector<Allocation> lives; /* by address */
    size_t used;
    int running;
    char *freed, *freed_end; /* the last one freed, for reports */
} heap;

static size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The first allocation that ends behind p. */
static std::vector<Allocation>::iterator behind(const char *p) {
    return std::upper_bound(heap.lives.begin(), heap.lives.end(), p,
                            [](const char *at, const Allocation &a) { return at < a.pages_end; });
}

static void set_access(const Allocation &a, int access) {
    const size_t bytes = size_t(a.pages_end - a.pages);
    if (mprotect(a.pages, bytes, access))
        fatal("mprotect of %zu bytes: %s", bytes, strerror(errno));
}

/* Finds room for the bytes and a guard page after them, from heap.next on. */
static char *find_room(size_t bytes) {
    for (int round = 0; round < 2; round++) {
        for (auto i = behind(heap.next);; ++i) {
            if (i != heap.lives.end() && i->pages < heap.next + bytes + PAGE) {
                heap.next = i->pages_end + PAGE;
                continue;
            }
            if (heap.next + bytes + PAGE <= heap.arena + ARENA) return heap.next;
            break;
        }
        heap.next = heap.arena;
    }
    return nullptr;
}

void *heap_allocate(size_t bytes) {
    if (bytes > ARENA || heap.used + bytes > settings().capacity) return nullptr;
    if (!heap.arena) {
        void *arena =
            mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) return nullptr;
        heap.arena = heap.next = static_cast<char *>(arena);
        catch_faults();
    }
    char *pages = find_room(up(bytes, PAGE));
    if (!pages) return nullptr;
    Allocation a = {pages, nullptr, nullptr, pages + up(bytes, PAGE)};
    a.begin = a.pages_end - up(bytes, ALIGN);
    a.end = a.begin + bytes;
    heap.next = a.pages_end + PAGE;
    /* MADV_DONTDUMP keeps the mapping from merging with its neighbours and splitting again, which
     * would take most of the time of set_access. */
    madvise(a.pages, size_t(a.pages_end - a.pages), MADV_DONTDUMP);
    set_access(a, PROT_READ | PROT_WRITE);
    unpoison(a.pages, size_t(a.pages_end - a.pages));
    memset(a.pages, POISON, size_t(a.pages_end - a.pages));
    poison(a.pages, size_t(a.begin - a.pages));
    poison(a.end, size_t(a.pages_end - a.end));
    if (!heap.running) set_access(a, PROT_NONE);
    heap.lives.insert(behind(a.pages), a);
    heap.used += bytes;
    return a.begin;
}

static void release(const Allocation &a) {
    unpoison(a.pages, size_t(a.pages_end - a.pages));
    madvise(a.pages, size_t(a.pages_end - a.pages), MADV_DONTNEED);
    madvise(a.pages, size_t(a.pages_end - a.pages), MADV_DODUMP);
    set_access(a, PROT_NONE);
    heap.used -= size_t(a.end - a.begin);
    heap.freed = a.begin;
    heap.freed_end = a.end;
}

bool heap_free(void *p) {
    auto i = behind(static_cast<char *>(p));
    if (i == heap.lives.end() || i->begin != p) return false;
    release(*i);
    heap.lives.erase(i);
    return true;
}

void heap_free_all() {
    for (const Allocation &a : heap.lives) release(a);
    heap.lives.clear();
}

size_t heap_used() {
    return heap.used;
}

bool heap_holds(const void *p, size_t bytes) {
    auto *at = static_cast<const char *>(p);
    auto i = behind(at);
    return i != heap.lives.end() && at >= i->begin && at <= i->end && bytes <= size_t(i->end - at);
}

bool heap_owns(const void *p) {
    auto *at = static_cast<const char *>(p);
    return heap.arena && at >= heap.arena && at < heap.arena + ARENA;
}

void heap_describe(const void *p, char *text, size_t size) {
    auto *at = static_cast<const char *>(p);
    auto i = behind(at);
    const Allocation *after = i == heap.lives.end() ? nullptr : &*i;
    const Allocation *before = i == heap.lives.begin() ? nullptr : &*(i - 1);
    if (after && at >= after->end) before = after; /* in the slack after its end */
    if (after && at >= after->begin && at < after->end)
        snprintf(text, size, "byte %zu of an allocation of %zu bytes", size_t(at - after->begin),
                 size_t(after->end - after->begin));
    else if (at >= heap.freed && at < heap.freed_end)
        snprintf(text, size, "byte %zu of %zu bytes that have been freed", size_t(at - heap.freed),
                 size_t(heap.freed_end - heap.freed));
    else if (before)
        snprintf(text, size, "%zu bytes past the end of an allocation of %zu bytes",
                 size_t(at - before->end), size_t(before->end - before->begin));
    else
        snprintf(text, size, "in no allocation");
}

/* --- running */

static void check_slack(const char *from, const char *to) {
    for (const char *p = from; p < to; p++) {
        if (static_cast<unsigned char>(*p) == POISON) continue;
        char where[128];
        heap_describe(p, where, sizeof where);
        fatal("a write out of bounds: %s", where);
    }
}

DeviceRuns::DeviceRuns() {
    if (heap.running++) return;
    for (const Allocation &a : heap.lives) set_access(a, PROT_READ | PROT_WRITE);
}

DeviceRuns::~DeviceRuns() {
    if (--heap.running) return;
    for (const Allocation &a : heap.lives) {
        if (!with_asan()) { /* AddressSanitizer watches the slack itself */
            check_slack(a.pages, a.begin);
            check_slack(a.end, a.pages_end);
        }
        set_access(a, PROT_NONE);
    }
}

static void set_access_at(const void *p, int access) {
    auto i = behind(static_cast<const char *>(p));
    if (i != heap.lives.end() && p >= i->begin && !heap.running) set_access(*i, access);
}

AllocationOpen::AllocationOpen(const void *p) : inside(p) {
    set_access_at(inside, PROT_READ | PROT_WRITE);
}

AllocationOpen::~AllocationOpen() {
    set_access_at(inside, PROT_NONE);
}

} // namespace emulation
