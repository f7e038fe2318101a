/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/replay.h"

#include <stdlib.h>

/* A growing array. */
struct list {
    void *data;
    uint64_t count, room;
};

static void *list_add(struct list *l, uint64_t count, uint64_t size) {
    while (l->count + count > l->room) {
        l->room = l->room ? 2 * l->room : 1024;
        l->data = realloc(l->data, l->room * size);
        if (!l->data) abort();
    }
    l->count += count;
    return (char *)l->data + (l->count - count) * size;
}

struct recorded {
    uint64_t first; /* sector */
    uint16_t count;
    uint8_t kind, keep : 7;
    uint8_t waits : 1; /* the last load of a turn */
};

struct trace {
    struct list sectors, requests;
    struct list warps;  /* the first request of each */
    struct list blocks; /* the first warp of each */
    bool loads;         /* so does the latest request */
};

struct trace *trace_open(void) {
    struct trace *t = calloc(1, sizeof *t);
    if (!t) abort();
    return t;
}

void trace_close(struct trace *t) {
    free(t->sectors.data);
    free(t->requests.data);
    free(t->warps.data);
    free(t->blocks.data);
    free(t);
}

void trace_clear(struct trace *t) {
    t->sectors.count = t->requests.count = t->warps.count = t->blocks.count = 0;
}

static void add_number(struct list *l, uint64_t number) {
    *(uint64_t *)list_add(l, 1, sizeof(uint64_t)) = number;
}

void trace_block(struct trace *t) {
    add_number(&t->blocks, t->warps.count);
}

void trace_warp(struct trace *t) {
    t->loads = false;
    add_number(&t->warps, t->requests.count);
}

void trace_request(struct trace *t, const struct request *r) {
    const bool load = r->kind == REQUEST_LOAD || r->kind == REQUEST_ATOMIC;
    if (t->loads && !load) ((struct recorded *)t->requests.data)[t->requests.count - 1].waits = 1;
    t->loads = load;
    if (r->kind == REQUEST_OTHER) return;
    struct recorded *x = list_add(&t->requests, 1, sizeof *x);
    *x = (struct recorded){.first = t->sectors.count,
                           .count = (uint16_t)r->count,
                           .kind = (uint8_t)r->kind,
                           .keep = (uint8_t)r->keep & 0x7f,
                           .waits = r->kind == REQUEST_BARRIER};
    struct sector *to = list_add(&t->sectors, r->count, sizeof *to);
    for (uint32_t i = 0; i < r->count; i++) to[i] = r->sectors[i];
}

/* --- playing back */

struct playing_block {
    int warps, waiting; /* that have requests left, and of these at the barrier */
    uint64_t barriers;  /* passed */
};

struct playing_warp {
    uint64_t next, end; /* requests */
    uint64_t barriers;  /* arrived at */
    struct playing_block *block;
};

/* Runs of loads that all hit, in one turn: about the latency of memory over that of the caches. */
enum { HITS_OF_TURN = 16 };

struct player {
    const struct trace *t;
    struct l2 *l2;
    struct playing_block *blocks; /* [blocks of the trace] */
    uint64_t next_block;
    struct list warps; /* that have requests left */
    uint64_t random;
};

/* The number of the first item of part i, where parts begin at the numbers in the list. */
static uint64_t begin_of(const struct list *parts, uint64_t i, uint64_t all) {
    return i < parts->count ? ((const uint64_t *)parts->data)[i] : all;
}

static void start_block(struct player *p) {
    const struct trace *t = p->t;
    while (p->next_block < t->blocks.count) {
        const uint64_t b = p->next_block++;
        for (uint64_t w = begin_of(&t->blocks, b, t->warps.count);
             w < begin_of(&t->blocks, b + 1, t->warps.count); w++) {
            const uint64_t from = begin_of(&t->warps, w, t->requests.count),
                           to = begin_of(&t->warps, w + 1, t->requests.count);
            if (from == to) continue;
            p->blocks[b].warps++;
            *(struct playing_warp *)list_add(&p->warps, 1, sizeof(struct playing_warp)) =
                (struct playing_warp){from, to, 0, &p->blocks[b]};
        }
        if (p->blocks[b].warps) return; /* else it had nothing to do */
    }
}

static void pass_barrier(struct playing_block *b) {
    if (b->waiting == 0 || b->waiting < b->warps) return;
    b->waiting = 0;
    b->barriers++;
}

static void issue(struct player *p, struct playing_warp *w, const struct recorded *x) {
    const struct request r = {(enum request_kind)x->kind, (enum request_keep)x->keep, x->count,
                              (const struct sector *)p->t->sectors.data + x->first};
    l2_request(p->l2, &r);
    if (r.kind == REQUEST_BARRIER) {
        w->barriers++;
        w->block->waiting++;
    }
    if (w->next == w->end) {
        w->block->warps--;
        if (r.kind == REQUEST_BARRIER) w->block->waiting--;
    }
    pass_barrier(w->block);
}

/* Whether the warp has requests left after this turn. */
static bool take_turn(struct player *p, struct playing_warp *w) {
    const struct recorded *requests = p->t->requests.data;
    const uint64_t misses = l2_counted(p->l2).misses;
    for (int runs = 0;
         runs < HITS_OF_TURN && w->barriers <= w->block->barriers && w->next < w->end;) {
        const struct recorded *x = &requests[w->next++];
        issue(p, w, x);
        if (!x->waits) continue;
        if (l2_counted(p->l2).misses > misses) break;
        runs++;
    }
    return w->next < w->end;
}

static uint64_t draw(struct player *p, uint64_t below) {
    p->random ^= p->random << 13;
    p->random ^= p->random >> 7;
    p->random ^= p->random << 17;
    return p->random % below;
}

void trace_replay(const struct trace *t, struct l2 *l2, uint64_t resident, uint64_t seed) {
    struct player p = {.t = t, .l2 = l2, .random = seed};
    p.blocks = calloc(t->blocks.count + 1, sizeof *p.blocks);
    if (!p.blocks) abort();
    for (uint64_t i = 0; i < resident; i++) start_block(&p);
    for (uint64_t at = 0; p.warps.count > 0; at++) {
        const uint64_t i = seed ? draw(&p, p.warps.count) : at % p.warps.count;
        struct playing_warp *w = (struct playing_warp *)p.warps.data + i;
        if (!seed) at = i;
        if (take_turn(&p, w)) continue;
        const bool ended = w->block->warps == 0;
        *w = ((struct playing_warp *)p.warps.data)[--p.warps.count];
        if (ended) start_block(&p);
    }
    free(p.warps.data);
    free(p.blocks);
}
