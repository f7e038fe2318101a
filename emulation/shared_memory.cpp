/* SPDX-License-Identifier: MIT */
#include "emulation/shared_memory.h"

#include <cstdint>
#include <sys/mman.h>

#include "emulation/runtime.h"
#include "emulation/sanitizers.h"

namespace emulation {

enum { MAX_ARRAYS = 64, RED_ZONE = 64, ALIGN = 16, POISON = 0xff };

struct Array {
    const void *token;
    char *begin;
    size_t bytes;
    Site site;
};

static struct {
    char *arena;
    size_t arena_bytes;
    size_t first, next; /* where the block's part starts, and where the free part starts */
    size_t total;       /* bytes of all arrays */
    Array arrays[MAX_ARRAYS];
    int count; /* the dynamic array is the first */
} shared;

/* Not memset: the race detector would take it for an access by the running thread. */
static void fill(char *p, size_t bytes) {
    auto *to = reinterpret_cast<volatile uint64_t *>(p);
    for (size_t i = 0; i < (bytes + 7) / 8; i++) to[i] = ~uint64_t(0);
}

static char *add_array(const void *token, size_t bytes, size_t align, Site site) {
    if (align < ALIGN) align = ALIGN;
    size_t begin = (shared.next + RED_ZONE + align - 1) / align * align;
    char *p = shared.arena + begin;
    size_t end = (begin + bytes + ALIGN - 1) / ALIGN * ALIGN + RED_ZONE;
    unpoison(shared.arena + shared.next, end - shared.next);
    fill(shared.arena + shared.next, end - shared.next);
    poison(shared.arena + shared.next, begin - shared.next);
    poison(p + bytes, end - begin - bytes);
    shared.next = end;
    shared.total += bytes;
    if (shared.count == MAX_ARRAYS) fatal("more than %d shared arrays", MAX_ARRAYS);
    shared.arrays[shared.count++] = {token, p, bytes, site};
    return p;
}

bool shared_begin_block(size_t dynamic_bytes) {
    enum { ROOM = SHARED_LIMIT + MAX_ARRAYS * 4 * RED_ZONE };
    if (!shared.arena) {
        shared.arena_bytes = with_tsan() ? size_t(256) << 20 : size_t(ROOM);
        void *arena = mmap(nullptr, shared.arena_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (arena == MAP_FAILED) fatal("no memory for shared memory");
        shared.arena = static_cast<char *>(arena);
        poison(shared.arena, shared.arena_bytes);
    }
    bool fresh = with_tsan() && shared.arena_bytes - shared.next >= ROOM;
    if (!fresh) shared.next = 0;
    shared.first = shared.next;
    shared.count = 0;
    shared.total = 0;
    add_array(nullptr, dynamic_bytes, ALIGN, {"the launch", 0});
    return fresh || !with_tsan();
}

static void check_zone(const char *from, const char *to, const Array &a) {
    for (const char *p = from; p < to; p++)
        if (static_cast<unsigned char>(*p) != POISON)
            fatal("a write out of bounds of shared memory: %td bytes from the start of the array "
                  "of %zu bytes at %s:%d",
                  p - a.begin, a.bytes, a.site.file, a.site.line);
}

void shared_end_block() {
    char *begin = shared.arena + shared.first;
    char *end = shared.arena + shared.next;
    if (with_asan()) {
        poison(begin, size_t(end - begin));
        return;
    }
    for (int i = 0; i < shared.count; i++) {
        const Array &a = shared.arrays[i];
        const char *next = i + 1 < shared.count ? shared.arrays[i + 1].begin : end;
        check_zone(i == 0 ? begin : a.begin, a.begin, a);
        check_zone(a.begin + a.bytes, next, a);
    }
}

void *shared_array(const void *token, size_t bytes, size_t align, Site site) {
    for (int i = 1; i < shared.count; i++)
        if (shared.arrays[i].token == token) return shared.arrays[i].begin;
    size_t fixed = shared.total - shared.arrays[0].bytes + bytes;
    if (fixed > STATIC_SHARED_LIMIT || shared.total + bytes > SHARED_LIMIT)
        fatal("too much shared memory: %zu bytes of fixed size and %zu dynamic ones (%s:%d)", fixed,
              shared.arrays[0].bytes, site.file, site.line);
    return add_array(token, bytes, align, site);
}

void *dynamic_shared() {
    return shared.arrays[0].begin;
}

} // namespace emulation
