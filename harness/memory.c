/* SPDX-License-Identifier: MIT */
#include "harness/memory.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/kernel.h"

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

enum { HUGE_PAGE = 2 << 20, GUARD = 4096, GUARD_BYTE = 0xc5 };

size_t read_start(const char *path, char *text, size_t size) {
    FILE *f = fopen(path, "r");
    size_t bytes = f ? fread(text, 1, size - 1, f) : 0;
    if (f) fclose(f);
    text[bytes] = '\0';
    return bytes;
}

int64_t read_number(const char *path, const char *key) {
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    char line[256];
    long long value = -1;
    while (value < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), "%lld", &value);
    fclose(f);
    return value;
}

int64_t memory_available(void) {
    int64_t kib = read_number("/proc/meminfo", "MemAvailable:");
    int64_t bytes = kib < 0 ? INT64_MAX : kib * 1024;
    int64_t limit = read_number("/sys/fs/cgroup/memory.max", "");
    int64_t used = read_number("/sys/fs/cgroup/memory.current", "");
    if (limit >= 0 && used >= 0 && limit - used < bytes) bytes = limit - used;
    return bytes;
}

int memory_require(int64_t bytes, const char *what, struct error *err) {
    int64_t have = memory_available();
    if (bytes <= have) return 0;
    return fail_memory(err,
                       "%s: needs %.1f GiB, %.1f GiB are available; use smaller tables or batches",
                       what, (double)bytes / (1 << 30), (double)have / (1 << 30));
}

/* Arrays of this size or more ask for huge pages. These cause fewer TLB misses, and fewer page faults when the array is
 * filled. */
#define HUGE_FROM ((size_t)4 << 20)

void *array_alloc(int64_t count, size_t size) {
    size_t bytes = ((size_t)count * size + 64) & ~(size_t)63; /* never zero */
    size_t align = bytes >= HUGE_FROM ? HUGE_PAGE : 64;
    bytes = (bytes + align - 1) & ~(align - 1);
    void *p = aligned_alloc(align, bytes);
    if (p && bytes >= HUGE_FROM) madvise(p, bytes, MADV_HUGEPAGE); /* advice: may be declined */
    return p;
}

void memory_fill(void *to, int byte, size_t bytes) {
#pragma omp parallel for schedule(static) if (bytes > HUGE_FROM)
    for (size_t at = 0; at < bytes; at += HUGE_PAGE)
        memset((char *)to + at, byte, bytes - at < HUGE_PAGE ? bytes - at : HUGE_PAGE);
}

void *array_require(int64_t count, size_t size, const char *what, struct error *err) {
    if (memory_require(count * (int64_t)size, what, err)) return NULL;
    void *p = array_alloc(count, size);
    if (!p)
        fail_memory(err, "%s: out of memory for %lld bytes", what,
                    (long long)count * (int64_t)size);
    return p;
}

static char *guard_before(const struct buffer *b) {
    return (char *)b->data - GUARD;
}

static char *guard_after(const struct buffer *b) {
    return (char *)b->data + b->bytes;
}

int buffer_alloc(struct buffer *b, size_t bytes, const char *what, struct error *err) {
    memset(b, 0, sizeof *b);
    if (bytes == 0) return 0;
    if (memory_require((int64_t)bytes, what, err)) return -1;
    bool huge = bytes >= HUGE_PAGE;
    size_t align = huge ? HUGE_PAGE : GUARD;
    size_t mapped = bytes + 2 * GUARD + 2 * align;
    char *m = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED)
        return fail_memory(err, "%s: the system refuses %.1f GiB", what, (double)bytes / (1 << 30));
    b->mapping = m;
    b->mapped = mapped;
    b->bytes = bytes;
    b->data = (char *)(((uintptr_t)m + GUARD + align - 1) / align * align);
    if (huge) madvise(b->data, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    memset(guard_before(b), GUARD_BYTE, GUARD);
    memset(guard_after(b), GUARD_BYTE, GUARD);
    ASAN_POISON_MEMORY_REGION(guard_before(b), GUARD);
    ASAN_POISON_MEMORY_REGION(guard_after(b), GUARD);
    return 0;
}

void buffer_free(struct buffer *b) {
    if (b->mapping) {
        ASAN_UNPOISON_MEMORY_REGION(b->mapping, b->mapped);
        munmap(b->mapping, b->mapped);
    }
    memset(b, 0, sizeof *b);
}

static bool zone_intact(const char *zone) {
    ASAN_UNPOISON_MEMORY_REGION(zone, GUARD);
    /* The first byte is right, and each later byte equals the one before it. */
    const bool intact = (unsigned char)*zone == GUARD_BYTE && !memcmp(zone, zone + 1, GUARD - 1);
    ASAN_POISON_MEMORY_REGION(zone, GUARD);
    return intact;
}

bool buffer_intact(const struct buffer *b) {
    return !b->data || (zone_intact(guard_before(b)) && zone_intact(guard_after(b)));
}

struct memory_watch memory_watch(void) {
    struct memory_watch w = {-1};
    FILE *f = fopen("/proc/self/clear_refs", "w"); /* "5": forget the highest resident size */
    if (!f) return w;
    bool done = fputs("5", f) >= 0;
    if (fclose(f) == 0 && done) w.before = read_number("/proc/self/status", "VmRSS:");
    return w;
}

int64_t memory_watch_peak(struct memory_watch w) {
    int64_t high = read_number("/proc/self/status", "VmHWM:");
    if (w.before < 0 || high < 0) return -1;
    return high > w.before ? (high - w.before) * 1024 : 0;
}
