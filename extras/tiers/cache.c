/* SPDX-License-Identifier: MIT
 *
 * Victims come from a heap of (score, row). Its entries are not renewed when a row is touched, but when they come to the
 * top and are found to be out of date: for lru and lfu, scores only grow, so what is on top and up to date is the least.
 * A batch whose rows are all here does not touch the heap. Scores of belady fall, so it adds an entry at every touch, and
 * drops those that are out of date.
 */
#include "extras/tiers/cache.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"

const char *const policy_names[POLICIES] = {
    [POLICY_LRU] = "lru", [POLICY_LFU] = "lfu", [POLICY_BELADY] = "belady"};

enum { NO_ROW = -1, WINDOW_MOST = 64 /* batches under way */ };

struct entry {
    int64_t score, row;
};

/* Where a row is: all that a look-up reads and writes of it. */
struct where {
    int32_t slot; /* or -1 */
    uint32_t
        state; /* twice the last batch that needs it, plus 1 if it has changed; of a row that is here */
};

struct cache {
    enum policy policy;
    int64_t rows, slots, used;
    struct where *where; /* [rows] */
    int64_t *row_in;     /* [slots] or NO_ROW */
    int64_t
        size[WINDOW_MOST]; /* distinct rows of batch b: at b % WINDOW_MOST, of those under way */
    int64_t *count;        /* of lfu: [rows] */
    int64_t *next_use;     /* of belady: [slots] */
    struct entry *heap;    /* [num_entries] */
    int64_t num_entries, most_entries;
    struct entry *aside; /* entries of rows that are held: [num_aside] */
    int64_t num_aside, most_aside;
    int64_t admitted, released; /* batches */
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

/* --- batches are numbers from 1 on */

enum { CHANGED = 1 };

static int64_t last_batch(const struct where *w) {
    return w->state >> 1;
}

static bool is_held(const struct cache *c, int64_t row) {
    return last_batch(&c->where[row]) >= c->released;
}

/* Batch `now` needs the row. Returns whether it is the first time. */
static inline bool need(struct where *w, int64_t now, bool changes) {
    const uint32_t state = w->state;
    w->state = 2 * (uint32_t)now + ((state & CHANGED) | changes);
    return state >> 1 != now;
}

/* --- scores: what has the least leaves first */

static int64_t score_of(const struct cache *c, int64_t row) {
    switch (c->policy) {
    case POLICY_LRU: return last_batch(&c->where[row]);
    case POLICY_LFU: return c->count[row];
    case POLICY_BELADY: return c->next_use[c->where[row].slot];
    default: return 0;
    }
}

/* The row is in this slot, and the batch under way touches it. */
static void touch(struct cache *c, int64_t row, int32_t slot) {
    const int64_t now = c->admitted - 1; /* belady counts batches from 0 */
    if (c->policy == POLICY_LFU) c->count[row]++;
    if (c->policy != POLICY_BELADY) return;
    while (c->use_next[row] < c->use_first[row + 1] && c->use[c->use_next[row]] <= now)
        c->use_next[row]++;
    /* Never again: the very first to leave. */
    c->next_use[slot] =
        c->use_next[row] < c->use_first[row + 1] ? -c->use[c->use_next[row]] : INT64_MIN;
    heap_push(c, (struct entry){c->next_use[slot], row});
}

/* --- victims */

/* There is one: cache_admit() has counted. */
static int32_t victim(struct cache *c) {
    for (;;) {
        const struct entry e = heap_pop(c);
        if (c->where[e.row].slot < 0) continue; /* it has left */
        const int64_t now = score_of(c, e.row);
        if (now != e.score) {
            if (c->policy != POLICY_BELADY) heap_push(c, (struct entry){now, e.row});
        } else if (is_held(c, e.row))
            push(&c->aside, &c->num_aside, &c->most_aside, e);
        else
            return c->where[e.row].slot;
    }
}

static int32_t empty_or_victim(struct cache *c) {
    if (c->used < c->slots) return (int32_t)c->used++;
    return victim(c);
}

/* --- look-ups */

/* Ids are read so many ahead of those whose rows are needed. */
enum { AHEAD = 96 };

static inline __attribute__((always_inline)) int64_t id_of(const struct batch *in,
                                                           enum id_type type, int64_t i) {
    return type == ID_INT32 ? ((const int32_t *)in->ids)[i] : ((const int64_t *)in->ids)[i];
}

/* For each type of ids a loop of its own. */
static inline __attribute__((always_inline)) void
look(struct cache *c, const struct batch *in, enum id_type type, int64_t begin, int64_t end,
     int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *x) {
    struct where *where = c->where;
    const int64_t now = c->admitted;
    const bool changes = x->changes;
    int64_t num_here = x->num_here, num_missing = x->num_missing;
    for (int64_t i = begin; i < end; i++) {
        const int64_t id = id_of(in, type, i);
        if (i + AHEAD < end) __builtin_prefetch(&where[id_of(in, type, i + AHEAD)], 1);
        const int32_t s = id == padding ? padding_slot : where[id].slot;
        slot[i] = s;
        if (id == padding) continue;
        if (s < 0) {
            x->missing[num_missing++] = id;
            continue;
        }
        x->here[num_here] = s; /* one that was seen is overwritten by the next */
        num_here += need(&where[id], now, changes);
    }
    x->missing_lookups += num_missing - x->num_missing;
    x->num_here = num_here;
    x->num_missing = num_missing;
}

void cache_look(struct cache *c, const struct batch *in, int64_t begin, int64_t end,
                int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *x) {
    if (in->id_type == ID_INT32)
        look(c, in, ID_INT32, begin, end, padding, padding_slot, slot, x);
    else
        look(c, in, ID_INT64, begin, end, padding, padding_slot, slot, x);
}

void cache_found_here(struct cache *c, int64_t row, struct cache_found *x) {
    if (need(&c->where[row], c->admitted, x->changes)) x->here[x->num_here++] = c->where[row].slot;
}

/* --- batches */

/* Slots that the batch needs beyond those it can have: earlier batches under way hold some that it does not need. At most
 * as many as they have rows, which mostly is answer enough. */
static int64_t lacking(const struct cache *c, const struct cache_found *x) {
    const int64_t own = x->num_here + x->num_missing - c->slots;
    int64_t most = 0, held = 0;
    for (int64_t b = c->released; b < c->admitted; b++) most += c->size[b % WINDOW_MOST];
    if (most == 0 || most + own <= 0) return most + own;
    for (int64_t s = 0; s < c->used; s++)
        held += is_held(c, c->row_in[s]) && last_batch(&c->where[c->row_in[s]]) < c->admitted;
    return held + own;
}

static struct cache_move load(struct cache *c, int64_t row, bool changes) {
    const int32_t at = empty_or_victim(c);
    struct cache_move m = {.row = row, .victim = c->row_in[at], .slot = at};
    if (m.victim != NO_ROW) {
        m.dirty = c->where[m.victim].state & CHANGED;
        c->where[m.victim].slot = -1;
    }
    c->where[row] = (struct where){at, 2 * (uint32_t)c->admitted + changes};
    c->row_in[at] = row;
    touch(c, row, at);
    /* Belady's has its entry already. */
    if (c->policy != POLICY_BELADY) heap_push(c, (struct entry){score_of(c, row), row});
    return m;
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

int cache_admit(struct cache *c, struct cache_found *x, struct cache_move *moves, int64_t *lacks,
                struct error *err) {
    order_missing(x);
    const int64_t missing = lacking(c, x);
    if (lacks) *lacks = missing > 0 ? missing : 0;
    if (c->admitted == INT32_MAX)
        return fail(err, "%d batches were admitted; open the tables again", INT32_MAX - 1);
    if (c->admitted - c->released >= WINDOW_MOST)
        return fail(err, "more than %d batches are under way", WINDOW_MOST);
    if (missing > 0)
        return fail(
            err, "a batch touches %lld rows, and the cache has %lld slots; it needs %lld more",
            (long long)(x->num_here + x->num_missing), (long long)c->slots, (long long)missing);
    /* Those that are here are needed already: they stay, before any other leaves. */
    for (int64_t i = 0; i < x->num_here && c->policy != POLICY_LRU; i++)
        touch(c, c->row_in[x->here[i]], x->here[i]);
    for (int64_t i = 0; i < x->num_missing; i++) moves[i] = load(c, x->missing[i], x->changes);
    while (c->num_aside) heap_push(c, c->aside[--c->num_aside]);
    c->size[c->admitted++ % WINDOW_MOST] = x->num_here + x->num_missing;
    return 0;
}

void cache_give_up(struct cache *c, struct cache_found *x) {
    for (int64_t i = 0; i < x->num_here; i++) c->where[c->row_in[x->here[i]]].state -= 2;
    c->size[(c->admitted - 1) % WINDOW_MOST] += x->num_here;
    x->num_here = x->num_missing = 0;
}

void cache_release(struct cache *c) {
    if (c->released < c->admitted) c->released++;
}

void cache_release_all(struct cache *c) {
    c->released = c->admitted;
}

int32_t cache_slot(const struct cache *c, int64_t row) {
    return c->where[row].slot;
}

void cache_change(struct cache *c, int32_t slot) {
    c->where[c->row_in[slot]].state |= CHANGED;
}

void cache_flush(struct cache *c, void (*each)(void *ctx, int64_t row, int32_t slot), void *ctx) {
    for (int64_t s = 0; s < c->used; s++) {
        struct where *w = &c->where[c->row_in[s]];
        if (!(w->state & CHANGED)) continue;
        w->state -= CHANGED;
        each(ctx, c->row_in[s], (int32_t)s);
    }
}

/* --- opening */

static void *array(int64_t count, size_t size) {
    return must_have(calloc((size_t)(count ? count : 1), size));
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
    c->admitted = c->released = 1;
    c->where = must_have(array_alloc(s->rows, sizeof *c->where));
    c->row_in = array(s->slots, sizeof *c->row_in);
    if (s->policy == POLICY_LFU) c->count = array(s->rows, sizeof *c->count);
    if (s->policy == POLICY_BELADY) c->next_use = array(s->slots, sizeof *c->next_use);
    memset(c->where, -1, (size_t)s->rows * sizeof *c->where);
    for (int64_t i = 0; i < s->slots; i++) c->row_in[i] = NO_ROW;
    if (s->policy == POLICY_BELADY) open_belady(c, s);
    return c;
}

void cache_close(struct cache *c) {
    if (!c) return;
    free(c->where);
    free(c->row_in);
    free(c->count);
    free(c->next_use);
    free(c->heap);
    free(c->aside);
    free(c->use_first);
    free(c->use);
    free(c->use_next);
    free(c);
}

int64_t cache_bytes(const struct cache *c) {
    const int64_t of_row = sizeof *c->where + (c->count ? sizeof *c->count : 0);
    const int64_t of_slot = sizeof *c->row_in + (c->next_use ? sizeof *c->next_use : 0);
    return c->rows * of_row + c->slots * of_slot +
           (c->most_entries + c->most_aside) * (int64_t)sizeof *c->heap;
}
