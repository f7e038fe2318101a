/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/l2.h"

#include <stdlib.h>
#include <string.h>

#define NO_LINE   UINT32_MAX
#define ALL_BYTES UINT32_MAX

struct line {
    uint32_t number;              /* NO_LINE: empty */
    uint32_t have[LINE_SECTORS];  /* bits of the bytes that are here */
    uint8_t dirty, awaited;       /* bits of sectors; awaited: prefetched, and not used yet */
    uint64_t used;                /* clock of the last use; 0: leaves first */
    uint64_t asked[LINE_SECTORS]; /* number of the request that prefetched */
};

struct l2 {
    struct line *lines; /* [sets][ways] */
    uint64_t sets, clock, late;
    int ways;
    struct l2_counts n;
    uint8_t *lost; /* [lost_size] by sector: prefetched, and evicted before its use */
    uint64_t lost_size;
};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

struct l2 *l2_open(uint64_t bytes, int ways, uint64_t late) {
    struct l2 *l2 = must(calloc(1, sizeof *l2));
    l2->ways = ways;
    l2->late = late;
    l2->sets = bytes / ((uint64_t)ways * LINE_SECTORS * SECTOR);
    l2->lines = must(calloc(l2->sets * (uint64_t)ways, sizeof *l2->lines));
    for (uint64_t i = 0; i < l2->sets * (uint64_t)ways; i++) l2->lines[i].number = NO_LINE;
    return l2;
}

void l2_close(struct l2 *l2) {
    free(l2->lines);
    free(l2->lost);
    free(l2);
}

/* --- prefetched sectors that left too early */

static void lose(struct l2 *l2, uint32_t sector) {
    if (sector >= l2->lost_size) {
        const uint64_t size = ((uint64_t)sector + 1) * 2;
        l2->lost = must(realloc(l2->lost, size));
        memset(l2->lost + l2->lost_size, 0, size - l2->lost_size);
        l2->lost_size = size;
    }
    l2->lost[sector] = 1;
}

static void wanted(struct l2 *l2, uint32_t sector) {
    if (sector >= l2->lost_size || !l2->lost[sector]) return;
    l2->lost[sector] = 0;
    l2->n.early++;
}

/* --- lines */

static struct line *set_of(const struct l2 *l2, uint32_t line) {
    uint64_t x = line + UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return l2->lines + (x ^ x >> 31) % l2->sets * (uint64_t)l2->ways;
}

static void evict(struct l2 *l2, struct line *x) {
    for (uint32_t s = 0; s < LINE_SECTORS && x->number != NO_LINE; s++) {
        if (x->awaited >> s & 1) lose(l2, x->number * LINE_SECTORS + s);
        if (!(x->dirty >> s & 1)) continue;
        l2->n.written++;
        if (x->have[s] != ALL_BYTES) l2->n.read++;
    }
}

static struct line *find(const struct l2 *l2, uint32_t line) {
    struct line *set = set_of(l2, line);
    for (int i = 0; i < l2->ways; i++)
        if (set[i].number == line) return &set[i];
    return NULL;
}

/* The line, after it took the place of the least recently used one. */
static struct line *bring(struct l2 *l2, uint32_t line) {
    struct line *set = set_of(l2, line), *oldest = set;
    for (int i = 1; i < l2->ways; i++)
        if (set[i].used < oldest->used) oldest = &set[i];
    evict(l2, oldest);
    *oldest = (struct line){.number = line};
    return oldest;
}

/* --- sectors of a line that is here */

static void used(struct l2 *l2, struct line *x, uint32_t s) {
    if (!(x->awaited >> s & 1)) return;
    x->awaited &= (uint8_t) ~(1u << s);
    if (l2->n.requests - x->asked[s] > l2->late)
        l2->n.timely++;
    else
        l2->n.late++;
}

static void fetch(struct l2 *l2, struct line *x, uint32_t s) {
    l2->n.read++;
    x->have[s] = ALL_BYTES;
}

static void prefetch(struct l2 *l2, struct line *x, uint32_t s) {
    l2->n.prefetched++;
    if (x->have[s] == ALL_BYTES) {
        l2->n.present++;
        return;
    }
    fetch(l2, x, s);
    x->awaited |= (uint8_t)(1u << s);
    x->asked[s] = l2->n.requests;
}

static void access_sector(struct l2 *l2, struct line *x, enum request_kind kind, uint32_t s,
                          uint32_t bytes) {
    used(l2, x, s);
    if (kind != REQUEST_STORE) {
        if ((x->have[s] & bytes) == bytes) {
            l2->n.hits++;
        } else {
            l2->n.misses++;
            fetch(l2, x, s);
        }
    }
    if (kind == REQUEST_LOAD) return;
    x->have[s] |= bytes;
    x->dirty |= (uint8_t)(1u << s);
}

static void sector_request(struct l2 *l2, const struct request *r, const struct sector *at) {
    const uint32_t number = at->number / LINE_SECTORS, s = at->number % LINE_SECTORS;
    struct line *x = find(l2, number);
    wanted(l2, at->number);
    if (!x && r->keep == KEEP_NOTHING && r->kind == REQUEST_LOAD) {
        l2->n.misses++;
        l2->n.read++;
        return;
    }
    const bool is_new = !x;
    if (is_new) x = bring(l2, number);
    if (r->keep == KEEP_NORMAL) x->used = ++l2->clock;
    if (r->kind == REQUEST_PREFETCH)
        prefetch(l2, x, s);
    else
        access_sector(l2, x, r->kind, s, at->bytes);
}

void l2_request(struct l2 *l2, const struct request *r) {
    l2->n.requests++;
    if (r->kind >= MEMORY_KINDS) return;
    for (uint32_t i = 0; i < r->count; i++) sector_request(l2, r, &r->sectors[i]);
}

struct l2_counts l2_counted(const struct l2 *l2) {
    return l2->n;
}

uint64_t l2_dirty(const struct l2 *l2) {
    uint64_t dirty = 0;
    for (uint64_t i = 0; i < l2->sets * (uint64_t)l2->ways; i++)
        dirty += (uint64_t)__builtin_popcount(l2->lines[i].dirty);
    return dirty;
}
