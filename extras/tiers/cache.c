/* SPDX-License-Identifier: MIT
 *
 * Victims come from a heap of (score, row). Its entries are not renewed when a row is touched, but when they come to
 * the top and are found to be out of date: scores of lru and lfu only grow, so what is on top and up to date is the
 * least. A batch whose rows all have slots does not touch the heap. Scores of belady fall, so it adds an entry at
 * every touch, and drops those that are out of date.
 */
#include "extras/tiers/cache.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

const char *const policy_names[POLICIES] = {
    [POLICY_LRU] = "lru", [POLICY_LFU] = "lfu", [POLICY_BELADY] = "belady"};

enum { NO_ROW = -1, CHANGED = 1, AHEAD = 96 /* ids between a prefetch and its use */ };

struct entry {
    int64_t score, row;
};

struct entries {
    struct entry *at;
    int64_t count, most;
};

/* All that a look-up reads and writes of a row. */
struct where {
    int32_t slot;   /* or -1 */
    uint32_t state; /* of a row with a slot: twice the last batch that needs it, plus CHANGED */
};

struct cache {
    enum policy policy;
    int64_t rows, slots, used;
    struct where *where; /* [rows] */
    int64_t *row_in;     /* [slots] or NO_ROW */
    int64_t *score;      /* [rows] of lfu and belady */
    struct entries heap; /* the least is on top */
    struct entries held; /* taken from the heap, of rows that a batch under way needs */
    int64_t largest;     /* rows of the largest batch */
    /* For belady: the batches that touch a row are use[use_first[row]] .. use[use_first[row+1]-1], and
     * use[use_next[row]] is the first of them that is still to come. */
    int64_t *use_first, *use, *use_next;
};

/* --- the heap */

static bool before(const struct entry *a, const struct entry *b) {
    return a->score != b->score ? a->score < b->score : a->row < b->row;
}

static void append(struct entries *list, struct entry e) {
    if (list->count == list->most) {
        list->most = 2 * list->most + 64;
        list->at = must_have(realloc(list->at, (size_t)list->most * sizeof *list->at));
    }
    list->at[list->count++] = e;
}

static void heap_push(struct entries *heap, struct entry e) {
    append(heap, e);
    int64_t at = heap->count - 1;
    for (; at > 0 && before(&e, &heap->at[(at - 1) / 2]); at = (at - 1) / 2)
        heap->at[at] = heap->at[(at - 1) / 2];
    heap->at[at] = e;
}

static struct entry heap_pop(struct entries *heap) {
    const struct entry top = heap->at[0], last = heap->at[--heap->count];
    int64_t at = 0;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= heap->count) break;
        if (child + 1 < heap->count && before(&heap->at[child + 1], &heap->at[child])) child++;
        if (!before(&heap->at[child], &last)) break;
        heap->at[at] = heap->at[child];
        at = child;
    }
    heap->at[at] = last;
    return top;
}

/* --- scores */

static int64_t last_batch(const struct cache *c, int64_t row) {
    return c->where[row].state >> 1;
}

static int64_t score_of(const struct cache *c, int64_t row) {
    return c->policy == POLICY_LRU ? last_batch(c, row) : c->score[row];
}

/* A row with a slot is touched by a batch. */
static void touch(struct cache *c, int64_t row, int64_t batch) {
    if (c->policy == POLICY_LFU) c->score[row]++;
    if (c->policy != POLICY_BELADY) return;
    const int64_t end = c->use_first[row + 1];
    int64_t *next = &c->use_next[row];
    while (*next < end && c->use[*next] <= batch) ++*next;
    c->score[row] = *next < end ? -c->use[*next] : INT64_MIN; /* never again: the first to leave */
    heap_push(&c->heap, (struct entry){c->score[row], row});
}

/* The slot of the row to leave. There is one: see cache_missing_slots(). */
static int32_t victim(struct cache *c, int64_t oldest) {
    for (;;) {
        const struct entry e = heap_pop(&c->heap);
        if (c->where[e.row].slot < 0) continue; /* it has left */
        const int64_t now = score_of(c, e.row);
        if (now != e.score) {
            if (c->policy != POLICY_BELADY) heap_push(&c->heap, (struct entry){now, e.row});
        } else if (last_batch(c, e.row) >= oldest)
            append(&c->held, e);
        else
            return c->where[e.row].slot;
    }
}

/* --- batches */

void cache_look(struct cache *c, const struct batch *in, int64_t begin, int64_t end,
                int64_t padding, int32_t padding_slot, int32_t *slot, struct cache_found *x) {
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = batch_id(in, i);
        struct where *w = &c->where[row];
        if (i + AHEAD < end) __builtin_prefetch(&c->where[batch_id(in, i + AHEAD)], 1);
        slot[i] = row == padding ? padding_slot : w->slot;
        if (row == padding) continue;
        if (w->slot < 0) {
            x->missing[x->num_missing++] = row;
            continue;
        }
        const bool is_first = last_batch(c, row) != x->batch;
        w->state = 2 * (uint32_t)x->batch + ((w->state & CHANGED) | x->changes);
        x->num_here += is_first;
        if (is_first) touch(c, row, x->batch);
    }
}

static int by_row(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int64_t cache_missing_slots(const struct cache *c, struct cache_found *x, int64_t oldest) {
    int64_t count = 0, held = 0;
    qsort(x->missing, (size_t)x->num_missing, sizeof *x->missing, by_row);
    for (int64_t i = 0; i < x->num_missing; i++)
        if (count == 0 || x->missing[count - 1] != x->missing[i])
            x->missing[count++] = x->missing[i];
    x->num_missing = count;
    /* Earlier batches under way hold at most as many slots as they have rows, which mostly is answer enough. */
    const int64_t own = x->num_here + x->num_missing - c->slots;
    const int64_t most = own + (x->batch - oldest) * c->largest;
    if (most <= 0 || x->batch == oldest) return most;
    for (int64_t s = 0; s < c->used; s++) {
        const int64_t last = last_batch(c, c->row_in[s]);
        held += last >= oldest && last < x->batch;
    }
    return own + held;
}

void cache_admit(struct cache *c, const struct cache_found *x, int64_t oldest,
                 struct cache_move *moves) {
    for (int64_t i = 0; i < x->num_missing; i++) {
        const int64_t row = x->missing[i];
        const int32_t at = c->used < c->slots ? (int32_t)c->used++ : victim(c, oldest);
        struct cache_move m = {.row = row, .victim = c->row_in[at], .slot = at};
        if (m.victim != NO_ROW) {
            m.dirty = c->where[m.victim].state & CHANGED;
            c->where[m.victim].slot = -1;
        }
        c->where[row] = (struct where){at, 2 * (uint32_t)x->batch + x->changes};
        c->row_in[at] = row;
        touch(c, row, x->batch);
        if (c->policy != POLICY_BELADY) heap_push(&c->heap, (struct entry){score_of(c, row), row});
        moves[i] = m;
    }
    while (c->held.count) heap_push(&c->heap, c->held.at[--c->held.count]);
    c->largest = max64(c->largest, x->num_here + x->num_missing);
}

int32_t cache_slot(const struct cache *c, int64_t row) {
    return c->where[row].slot;
}

int64_t cache_changed(struct cache *c, int64_t *rows, int32_t *slot) {
    int64_t count = 0;
    for (int64_t s = 0; s < c->used; s++) {
        struct where *w = &c->where[c->row_in[s]];
        if (!(w->state & CHANGED)) continue;
        w->state -= CHANGED;
        rows[count] = c->row_in[s];
        slot[count++] = (int32_t)s;
    }
    return count;
}

void cache_empty(struct cache *c) {
    for (int64_t s = 0; s < c->used; s++) {
        c->where[c->row_in[s]].slot = -1;
        c->row_in[s] = NO_ROW;
    }
    c->used = c->heap.count = 0;
}

/* --- opening */

static void *array(int64_t count, size_t size) {
    return must_have(calloc((size_t)count + 1, size));
}

/* The batches of each row, in order. */
static void open_belady(struct cache *c, const struct cache_setup *s) {
    c->use_first = array(s->rows + 1, sizeof *c->use_first);
    c->use_next = array(s->rows, sizeof *c->use_next);
    for (int pass = 0; pass < 2; pass++) { /* counts, then lists */
        for (int64_t b = 0; b < s->num_batches; b++) {
            const int64_t end = row_index_find(&s->index[b], s->table + 1, 0);
            for (int64_t i = row_index_find(&s->index[b], s->table, 0); i < end; i++) {
                const int64_t row = s->index[b].run[i].row;
                if (pass)
                    c->use[c->use_next[row]++] = b;
                else
                    c->use_first[row + 1]++;
            }
        }
        for (int64_t r = 0; pass == 0 && r < s->rows; r++) c->use_first[r + 1] += c->use_first[r];
        if (pass == 0) c->use = array(c->use_first[s->rows], sizeof *c->use);
        memcpy(c->use_next, c->use_first, (size_t)s->rows * sizeof *c->use_next);
    }
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
    c->where = must_have(array_alloc(s->rows, sizeof *c->where));
    c->row_in = array(s->slots, sizeof *c->row_in);
    memset(c->where, -1, (size_t)s->rows * sizeof *c->where);
    for (int64_t i = 0; i < s->slots; i++) c->row_in[i] = NO_ROW;
    if (s->policy != POLICY_LRU) c->score = array(s->rows, sizeof *c->score);
    if (s->policy == POLICY_BELADY) open_belady(c, s);
    return c;
}

void cache_close(struct cache *c) {
    if (!c) return;
    free(c->where);
    free(c->row_in);
    free(c->score);
    free(c->heap.at);
    free(c->held.at);
    free(c->use_first);
    free(c->use);
    free(c->use_next);
    free(c);
}

int64_t cache_bytes(const struct cache *c) {
    return c->rows * (int64_t)(sizeof *c->where + (c->score ? sizeof *c->score : 0)) +
           c->slots * (int64_t)sizeof *c->row_in +
           (c->heap.most + c->held.most) * (int64_t)sizeof(struct entry);
}
