/* SPDX-License-Identifier: MIT
 *
 * Victims come from a heap of (score, row). Its entries are not renewed when a row is touched, but when they come to the
 * top and are found to be out of date: for lru and lfu, scores only grow, so what is on top and up to date is the least.
 * A batch whose rows are all here does not touch the heap. Scores of belady fall, so it adds an entry at every touch, and
 * drops those that are out of date.
 */
#include "tiers/cache.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

const char *const policy_names[POLICIES] = {[POLICY_LRU] = "lru",
                                            [POLICY_LFU] = "lfu",
                                            [POLICY_CLOCK] = "clock",
                                            [POLICY_STATIC] = "static",
                                            [POLICY_BELADY] = "belady"};

enum { NO_ROW = -1, WINDOW_MOST = 64 /* batches under way */ };

struct entry {
    int64_t score, row;
};

struct slot {
    int64_t row;     /* or NO_ROW */
    int64_t held_by; /* the last batch under way that needs it */
    bool dirty;
    bool touched; /* of clock */
};

struct cache {
    enum policy policy;
    int64_t rows, slots, used;
    int32_t *slot_of;   /* [rows] or -1 */
    struct slot *slot;  /* [slots] */
    uint8_t *seen;      /* [slots] by the look-up under way */
    int64_t *score;     /* of a row that is here: [slots]; of lfu, of any row: [rows] */
    int64_t hand;       /* of clock */
    struct entry *heap; /* [num_entries] */
    int64_t num_entries, most_entries;
    struct entry *aside; /* entries of rows that are held: [num_aside] */
    int64_t num_aside, most_aside;
    int64_t admitted, released; /* batches */
    int64_t *heat;              /* of static: [rows] larger is hotter */
    /* Of belady: the batches that touch a row, one behind the other: use[use_first[row]] ... */
    int64_t *use_first, *use;
    int64_t *use_next; /* [rows] the first of them that is still to come */
};

/* --- the heap: the least entry is on top */

static bool before(const struct entry *a, const struct entry *b) {
    return a->score != b->score ? a->score < b->score : a->row < b->row;
}

static void push(struct entry **list, int64_t *count, int64_t *most, struct entry e) {
    if (*count == *most) {
        *most = 2 * *most + 64;
        *list = must_have(realloc(*list, (size_t)*most * sizeof **list));
    }
    (*list)[(*count)++] = e;
}

static void heap_push(struct cache *c, struct entry e) {
    push(&c->heap, &c->num_entries, &c->most_entries, e);
    int64_t at = c->num_entries - 1;
    for (; at > 0 && before(&e, &c->heap[(at - 1) / 2]); at = (at - 1) / 2)
        c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = e;
}

static struct entry heap_pop(struct cache *c) {
    const struct entry top = c->heap[0], last = c->heap[--c->num_entries];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= c->num_entries) break;
        if (child + 1 < c->num_entries && before(&c->heap[child + 1], &c->heap[child])) child++;
        if (!before(&c->heap[child], &last)) break;
        c->heap[at] = c->heap[child];
        at = child;
    }
    c->heap[at] = last;
    return top;
}

/* --- scores */

static int64_t *score_at(struct cache *c, int64_t row, int32_t slot) {
    return &c->score[c->policy == POLICY_LFU ? row : slot];
}

static bool uses_heap(const struct cache *c) {
    return c->policy != POLICY_CLOCK;
}

/* The row is in this slot, and batch `now` touches it. */
static void touch(struct cache *c, int64_t row, int32_t slot, int64_t now) {
    int64_t *score = score_at(c, row, slot);
    switch (c->policy) {
    case POLICY_LRU: *score = now; break;
    case POLICY_LFU: ++*score; break;
    case POLICY_CLOCK: c->slot[slot].touched = true; break;
    case POLICY_STATIC: *score = c->heat[row]; break;
    case POLICY_BELADY:
        while (c->use_next[row] < c->use_first[row + 1] && c->use[c->use_next[row]] <= now)
            c->use_next[row]++;
        /* Never again: the very first to leave. */
        *score = c->use_next[row] < c->use_first[row + 1] ? -c->use[c->use_next[row]] : INT64_MIN;
        heap_push(c, (struct entry){*score, row});
        break;
    case POLICIES: break;
    }
}

/* --- victims */

static bool is_held(const struct cache *c, int32_t slot) {
    return c->slot[slot].held_by >= c->released;
}

static int32_t victim_of_clock(struct cache *c) {
    for (;; c->hand = (c->hand + 1) % c->slots) {
        if (is_held(c, (int32_t)c->hand)) continue;
        if (!c->slot[c->hand].touched) break;
        c->slot[c->hand].touched = false;
    }
    const int32_t slot = (int32_t)c->hand;
    c->hand = (c->hand + 1) % c->slots;
    return slot;
}

/* There is one: cache_admit() has counted. */
static int32_t victim_of_heap(struct cache *c) {
    for (;;) {
        const struct entry e = heap_pop(c);
        const int32_t slot = c->slot_of[e.row];
        if (slot < 0) continue; /* it has left */
        const int64_t now = *score_at(c, e.row, slot);
        if (now != e.score) {
            if (c->policy != POLICY_BELADY) heap_push(c, (struct entry){now, e.row});
        } else if (is_held(c, slot))
            push(&c->aside, &c->num_aside, &c->most_aside, e);
        else
            return slot;
    }
}

static int32_t empty_or_victim(struct cache *c) {
    if (c->used < c->slots) return (int32_t)c->used++;
    return uses_heap(c) ? victim_of_heap(c) : victim_of_clock(c);
}

/* --- batches */

/* Slots that the batch needs beyond those it can have: earlier batches under way hold some that it does not need. */
static int64_t lacking(const struct cache *c, const struct cache_found *x) {
    int64_t held = 0, both = 0;
    if (c->admitted > c->released) {
        for (int64_t s = 0; s < c->used; s++) held += is_held(c, (int32_t)s);
        for (int64_t i = 0; i < x->num_here; i++) both += is_held(c, x->here[i]);
    }
    return held - both + x->num_here + x->num_missing - c->slots;
}

static struct cache_move load(struct cache *c, int64_t row, bool dirty) {
    const int32_t at = empty_or_victim(c);
    struct slot *slot = &c->slot[at];
    const struct cache_move m = {row, slot->row, at, slot->row != NO_ROW && slot->dirty};
    if (slot->row != NO_ROW) c->slot_of[slot->row] = -1;
    c->slot_of[row] = at;
    *slot = (struct slot){.row = row, .held_by = c->admitted, .dirty = dirty};
    touch(c, row, at, c->admitted);
    /* Belady's has its entry already. */
    if (uses_heap(c) && c->policy != POLICY_BELADY)
        heap_push(c, (struct entry){*score_at(c, row, at), row});
    return m;
}

/* For each type of ids a loop of its own. */
static inline __attribute__((always_inline)) void
look(struct cache *c, const struct batch *in, enum id_type type, int64_t begin, int64_t end,
     int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *found) {
    const int32_t *slot_of = c->slot_of;
    uint8_t *seen = c->seen;
    int64_t num_here = found->num_here, num_missing = found->num_missing;
    for (int64_t i = begin; i < end; i++) {
        const int64_t id =
            type == ID_INT32 ? ((const int32_t *)in->ids)[i] : ((const int64_t *)in->ids)[i];
        if (id == padding) {
            slot[i] = padding_slot;
            continue;
        }
        const int32_t s = slot_of[id];
        slot[i] = s;
        if (s < 0) {
            found->missing[num_missing++] = id;
            continue;
        }
        found->here[num_here] = s; /* one that was seen is overwritten by the next */
        num_here += !seen[s];
        seen[s] = 1;
    }
    found->missing_lookups += num_missing - found->num_missing;
    found->num_here = num_here;
    found->num_missing = num_missing;
}

void cache_look(struct cache *c, const struct batch *in, int64_t begin, int64_t end,
                int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *found) {
    if (in->id_type == ID_INT32)
        look(c, in, ID_INT32, begin, end, padding, padding_slot, slot, found);
    else
        look(c, in, ID_INT64, begin, end, padding, padding_slot, slot, found);
}

static int by_row(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void order_missing(struct cache_found *x) {
    int64_t count = 0;
    qsort(x->missing, (size_t)x->num_missing, sizeof *x->missing, by_row);
    for (int64_t i = 0; i < x->num_missing; i++)
        if (count == 0 || x->missing[count - 1] != x->missing[i])
            x->missing[count++] = x->missing[i];
    x->num_missing = count;
}

int cache_admit(struct cache *c, struct cache_found *x, bool dirty, struct cache_move *moves,
                int64_t *lacks, struct error *err) {
    for (int64_t i = 0; i < x->num_here; i++) c->seen[x->here[i]] = 0;
    order_missing(x);
    const int64_t missing = lacking(c, x);
    if (lacks) *lacks = missing > 0 ? missing : 0;
    if (c->admitted - c->released >= WINDOW_MOST)
        return fail(err, "more than %d batches are under way", WINDOW_MOST);
    if (missing > 0)
        return fail(
            err, "a batch touches %lld rows, and the cache has %lld slots; it needs %lld more",
            (long long)(x->num_here + x->num_missing), (long long)c->slots, (long long)missing);
    /* Those that are here stay, before any other leaves. */
    for (int64_t i = 0; i < x->num_here; i++) {
        struct slot *slot = &c->slot[x->here[i]];
        slot->held_by = c->admitted;
        slot->dirty |= dirty;
        touch(c, slot->row, x->here[i], c->admitted);
    }
    for (int64_t i = 0; i < x->num_missing; i++) moves[i] = load(c, x->missing[i], dirty);
    while (c->num_aside) heap_push(c, c->aside[--c->num_aside]);
    c->admitted++;
    return 0;
}

void cache_release(struct cache *c) {
    if (c->released < c->admitted) c->released++;
}

int32_t cache_slot(const struct cache *c, int64_t row) {
    return c->slot_of[row];
}

void cache_change(struct cache *c, int32_t slot) {
    c->slot[slot].dirty = true;
}

void cache_flush(struct cache *c, void (*each)(void *ctx, int64_t row, int32_t slot), void *ctx) {
    for (int64_t s = 0; s < c->used; s++) {
        if (!c->slot[s].dirty) continue;
        c->slot[s].dirty = false;
        each(ctx, c->slot[s].row, (int32_t)s);
    }
}

/* --- opening */

static void *array(int64_t count, size_t size) {
    return must_have(calloc((size_t)(count ? count : 1), size));
}

/* A counting sort by how often. */
int64_t *cache_hottest(const int64_t *batch_rows, int64_t count, int64_t rows) {
    int64_t *often = array(rows, sizeof *often), *order = array(rows, sizeof *order), most = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = ++often[batch_rows[i]];
        if (n > most) most = n;
    }
    int64_t *place = array(most + 2, sizeof *place); /* of the first row with that count */
    for (int64_t r = 0; r < rows; r++) place[often[r]]++;
    for (int64_t n = most, at = 0; n >= 0; n--) {
        const int64_t own = place[n];
        place[n] = at;
        at += own;
    }
    for (int64_t r = 0; r < rows; r++) order[place[often[r]]++] = r;
    free(often);
    free(place);
    return order;
}

static void open_static(struct cache *c, const struct cache_setup *s) {
    c->heat = array(s->rows, sizeof *c->heat);
    for (int64_t i = 0; i < s->rows; i++) c->heat[s->hottest[i]] = s->rows - i;
}

/* The batches of each row, in order: a counting sort by row. */
static void open_belady(struct cache *c, const struct cache_setup *s) {
    const int64_t uses = s->first[s->num_batches];
    c->use_first = array(s->rows + 1, sizeof *c->use_first);
    c->use_next = array(s->rows, sizeof *c->use_next);
    c->use = array(uses, sizeof *c->use);
    for (int64_t i = 0; i < uses; i++) c->use_first[s->batch_rows[i] + 1]++;
    for (int64_t r = 0; r < s->rows; r++) {
        c->use_first[r + 1] += c->use_first[r];
        c->use_next[r] = c->use_first[r];
    }
    for (int64_t b = 0; b < s->num_batches; b++)
        for (int64_t i = s->first[b]; i < s->first[b + 1]; i++)
            c->use[c->use_next[s->batch_rows[i]]++] = b;
    for (int64_t r = 0; r < s->rows; r++) c->use_next[r] = c->use_first[r];
}

struct cache *cache_open(const struct cache_setup *s, struct error *err) {
    if (s->rows < 1 || s->rows > INT32_MAX || s->slots < 1 || s->slots > s->rows)
        return fail(err,
                    "a cache of %lld slots for %lld rows: 1 to %d rows, and 1 to as many slots",
                    (long long)s->slots, (long long)s->rows, INT32_MAX),
               NULL;
    struct cache *c = array(1, sizeof *c);
    c->policy = s->policy;
    c->rows = s->rows;
    c->slots = s->slots;
    c->slot_of = array(s->rows, sizeof *c->slot_of);
    c->slot = array(s->slots, sizeof *c->slot);
    c->seen = array(s->slots, sizeof *c->seen);
    c->score = array(s->policy == POLICY_LFU ? s->rows : s->slots, sizeof *c->score);
    memset(c->slot_of, -1, (size_t)s->rows * sizeof *c->slot_of);
    for (int64_t i = 0; i < s->slots; i++) c->slot[i] = (struct slot){.row = NO_ROW, .held_by = -1};
    if (s->policy == POLICY_STATIC) open_static(c, s);
    if (s->policy == POLICY_BELADY) open_belady(c, s);
    return c;
}

void cache_close(struct cache *c) {
    if (!c) return;
    free(c->slot_of);
    free(c->slot);
    free(c->seen);
    free(c->score);
    free(c->heap);
    free(c->aside);
    free(c->heat);
    free(c->use_first);
    free(c->use);
    free(c->use_next);
    free(c);
}

int64_t cache_bytes(const struct cache *c) {
    const int64_t scores = c->policy == POLICY_LFU ? c->rows : c->slots;
    return c->rows * (int64_t)(sizeof *c->slot_of + (c->heat ? sizeof *c->heat : 0)) +
           scores * (int64_t)sizeof *c->score +
           c->slots * (int64_t)(sizeof *c->slot + sizeof *c->seen) +
           (c->most_entries + c->most_aside) * (int64_t)sizeof *c->heap;
}
