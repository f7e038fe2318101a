/* SPDX-License-Identifier: MIT */
#include "emulation/shared_memory.h"

#include <cstdint>
#include <sys/mman.h>

#include "emulation/runtime.h"
#include "emulation/sanitizers.h"
#include "emulation/scheduler.h"

namespace emulation {

enum {
    RED_ZONE = 64,
    ALIGN = 16,
    POISON = 0xff,
    ZONES = MAX_ARRAYS * 4 * RED_ZONE,
    ROOM = SHARED_LIMIT + ZONES /* of the largest block */
};

/* Under the race detector each block gets the next part of the arena; otherwise each slot has a part of its own. */
static struct {
    char *begin;
    size_t bytes, next;
} arena;

/* The race detector would take a memset for an access by the running thread. */
static void fill(char *p, size_t bytes) {
    auto *to = reinterpret_cast<volatile uint64_t *>(p);
    for (size_t i = 0; i < (bytes + 7) / 8; i++) to[i] = ~uint64_t(0);
}

static char *up(char *p, size_t align) {
    return p + (align - reinterpret_cast<uintptr_t>(p) % align) % align;
}

static char *add_array(SharedMemory &m, const void *token, size_t bytes, size_t align, Site site) {
    char *from = m.next, *p = up(from + RED_ZONE, align < ALIGN ? size_t(ALIGN) : align);
    char *end = up(p + bytes, ALIGN) + RED_ZONE;
    unpoison(from, size_t(end - from));
    fill(from, size_t(end - from));
    poison(from, size_t(p - from));
    poison(p + bytes, size_t(end - p) - bytes);
    m.next = end;
    m.total += bytes;
    if (m.count == MAX_ARRAYS) fatal("more than %d shared arrays", MAX_ARRAYS);
    m.arrays[m.count++] = {token, p, bytes, site};
    return p;
}

static size_t room(size_t dynamic_bytes) {
    size_t least = dynamic_bytes + STATIC_SHARED_LIMIT + ZONES;
    return least < ROOM ? least : size_t(ROOM);
}

void shared_begin_launch() {
    arena.next = 0;
    if (arena.begin) return;
    arena.bytes = with_tsan() ? size_t(1) << 30 : size_t(MAX_RESIDENT) * ROOM;
    void *mapped = mmap(nullptr, arena.bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) fatal("no memory for shared memory");
    arena.begin = static_cast<char *>(mapped);
    poison(arena.begin, arena.bytes);
}

bool shared_has_room(size_t dynamic_bytes) {
    return !with_tsan() || arena.bytes - arena.next >= room(dynamic_bytes);
}

void shared_begin_block(SharedMemory &m, int slot, size_t dynamic_bytes) {
    m.begin = m.next = up(arena.begin + (with_tsan() ? arena.next : size_t(slot) * ROOM), ALIGN);
    if (with_tsan()) arena.next += room(dynamic_bytes);
    m.count = 0;
    m.total = 0;
    add_array(m, nullptr, dynamic_bytes, ALIGN, {"the launch", 0});
}

static void check_zone(const char *from, const char *to, const SharedArray &a) {
    for (const char *p = from; p < to; p++)
        if (static_cast<unsigned char>(*p) != POISON)
            fatal("a write out of bounds of shared memory: %td bytes from the start of the array "
                  "of %zu bytes at %s:%d",
                  p - a.begin, a.bytes, a.site.file, a.site.line);
}

void shared_end_block(const SharedMemory &m) {
    if (with_asan()) {
        poison(m.begin, size_t(m.next - m.begin));
        return;
    }
    for (int i = 0; i < m.count; i++) {
        const SharedArray &a = m.arrays[i];
        const char *next = i + 1 < m.count ? m.arrays[i + 1].begin : m.next;
        check_zone(i == 0 ? m.begin : a.begin, a.begin, a);
        check_zone(a.begin + a.bytes, next, a);
    }
}

bool shared_owns(const void *p) {
    auto *at = static_cast<const char *>(p);
    return arena.begin && at >= arena.begin && at < arena.begin + arena.bytes;
}

void *shared_array(const void *token, size_t bytes, size_t align, Site site) {
    SharedMemory &m = block().shared;
    for (int i = 1; i < m.count; i++)
        if (m.arrays[i].token == token) return m.arrays[i].begin;
    size_t fixed = m.total - m.arrays[0].bytes + bytes;
    if (fixed > STATIC_SHARED_LIMIT || m.total + bytes > SHARED_LIMIT)
        fatal("too much shared memory: %zu bytes of fixed size and %zu dynamic ones (%s:%d)", fixed,
              m.arrays[0].bytes, site.file, site.line);
    return add_array(m, token, bytes, align, site);
}

void *dynamic_shared() {
    return block().shared.arrays[0].begin;
}

} // namespace emulation
