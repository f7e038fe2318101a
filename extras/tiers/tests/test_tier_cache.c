/* SPDX-License-Identifier: MIT
 *
 * Caches of rows against a slow model that looks at every slot for every victim: the same slots'
 * rows, the same misses, in the same order, for every policy, number of slots and number of batches
 * under way. test_tiers.py has the laws that misses obey.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "tests/support/kernel_tests.h"
#include "extras/tiers/cache.h"

enum { ROWS = 120, BATCHES = 60, MOST = 24 };

/* --- batches: skewed, some empty, some twice */

struct stream {
    int64_t first[BATCHES + 1], rows[BATCHES * MOST];
};

static int64_t draw(uint64_t seed, uint64_t n, int64_t below) {
    return (int64_t)(rng_key(seed, n) % (uint64_t)below);
}

static void stream_make(struct stream *s, uint64_t seed) {
    int64_t total = 0;
    for (int b = 0; b < BATCHES; b++) {
        bool in[ROWS] = {false};
        s->first[b] = total;
        const int64_t lookups = b % 13 == 5 ? 0 : 1 + draw(seed, 1000000 + (uint64_t)b, MOST);
        for (int64_t i = 0; i < lookups; i++) {
            const uint64_t n = (uint64_t)b * 1000 + (uint64_t)i;
            /* The least of three is skewed; rows are permuted, so that hot ones are not
             * neighbours. */
            int64_t r = draw(seed, 3 * n, ROWS);
            for (uint64_t k = 1; k < 3; k++) {
                const int64_t other = draw(seed, 3 * n + k, ROWS);
                r = other < r ? other : r;
            }
            in[r * 7 % ROWS] = true;
        }
        for (int64_t r = 0; r < ROWS; r++)
            if (in[r]) s->rows[total++] = r;
    }
    s->first[BATCHES] = total;
}

/* --- the model */

struct model {
    const struct stream *s;
    enum policy policy;
    int slots;
    int64_t row[ROWS], last[ROWS], count[ROWS]; /* row: of a slot; last, count: of a row */
    bool dirty[ROWS];
};

static bool batch_has(const struct stream *s, int b, int64_t row) {
    for (int64_t i = s->first[b]; i < s->first[b + 1]; i++)
        if (s->rows[i] == row) return true;
    return false;
}

/* Larger: leaves later. */
static int64_t keep(const struct model *m, int64_t row, int now) {
    if (m->policy == POLICY_LRU) return m->last[row];
    if (m->policy == POLICY_LFU) return m->count[row];
    for (int b = now + 1; b < BATCHES; b++)
        if (batch_has(m->s, b, row)) return -b;
    return -BATCHES;
}

static bool under_way(const struct model *m, int64_t row, int from, int now) {
    for (int b = from; b <= now; b++)
        if (batch_has(m->s, b, row)) return true;
    return false;
}

static int model_victim(struct model *m, int from, int now) {
    int best = -1;
    for (int k = 0; k < m->slots; k++)
        if (m->row[k] < 0) return k;
    for (int k = 0; k < m->slots; k++) {
        if (under_way(m, m->row[k], from, now)) continue;
        const int64_t a = keep(m, m->row[k], now), b = best < 0 ? 0 : keep(m, m->row[best], now);
        if (best < 0 || a < b || (a == b && m->row[k] < m->row[best])) best = k;
    }
    return best;
}

static int model_slot(const struct model *m, int64_t row) {
    for (int k = 0; k < m->slots; k++)
        if (m->row[k] == row) return k;
    return -1;
}

static int64_t model_admit(struct model *m, int from, int now, bool dirty,
                           struct cache_move *moves) {
    const struct stream *s = m->s;
    int64_t misses = 0;
    for (int64_t i = s->first[now]; i < s->first[now + 1]; i++) {
        const int64_t row = s->rows[i];
        const int slot = model_slot(m, row);
        m->last[row] = now;
        m->count[row]++;
        if (slot < 0) continue;
        m->dirty[slot] |= dirty;
    }
    for (int64_t i = s->first[now]; i < s->first[now + 1]; i++) {
        const int64_t row = s->rows[i];
        if (model_slot(m, row) >= 0) continue;
        const int slot = model_victim(m, from, now);
        moves[misses++] =
            (struct cache_move){row, m->row[slot], slot, m->row[slot] >= 0 && m->dirty[slot]};
        m->row[slot] = row;
        m->dirty[slot] = dirty;
    }
    return misses;
}

/* --- both, side by side */

/* A batch's ids: its rows in descending order, then all of them again, and padding between. */
enum { IDS_MOST = 2 * MOST + 1, PADDING = ROWS, PADDING_SLOT = 1234 };

struct looked {
    int64_t ids[IDS_MOST], count, missing[IDS_MOST];
    int32_t slot[IDS_MOST], here[MOST + 1];
    struct cache_found found;
};

static void look(struct cache *c, const int64_t *rows, int64_t count, bool wide, bool changes,
                 struct looked *x) {
    int32_t narrow[IDS_MOST];
    x->count = 0;
    for (int64_t i = count - 1; i >= 0; i--) x->ids[x->count++] = rows[i];
    x->ids[x->count++] = PADDING;
    for (int64_t i = 0; i < count; i++) x->ids[x->count++] = rows[i];
    for (int64_t i = 0; i < x->count; i++) narrow[i] = (int32_t)x->ids[i];
    const struct batch in = {.id_type = wide ? ID_INT64 : ID_INT32,
                             .ids = wide ? (const void *)x->ids : narrow};
    const int64_t half = x->count / 2; /* as of two features */
    x->found = (struct cache_found){.changes = changes, .here = x->here, .missing = x->missing};
    cache_look(c, &in, 0, half, PADDING, PADDING_SLOT, x->slot, &x->found);
    cache_look(c, &in, half, x->count, PADDING, PADDING_SLOT, x->slot, &x->found);
}

/* What was found is what the model has. */
static void expect_found(const struct model *m, const struct looked *x, int64_t count) {
    int64_t here = 0, lookups = 0;
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t id = x->ids[i];
        assert_int_equal(x->slot[i], id == PADDING ? PADDING_SLOT : model_slot(m, id));
        lookups += id != PADDING && x->slot[i] < 0;
    }
    for (int64_t i = 0; i < count; i++) here += model_slot(m, x->ids[i]) >= 0;
    assert_true(x->found.num_here == here && x->found.missing_lookups == lookups);
}

/* Dirty rows are those of the model. */
static void was_dirty(void *ctx, int64_t row, int32_t slot) {
    struct model *m = ctx;
    assert_true(m->row[slot] == row && m->dirty[slot]);
    m->dirty[slot] = false;
}

static void flush_both(struct cache *c, struct model *m) {
    cache_flush(c, was_dirty, m);
    for (int k = 0; k < m->slots; k++) assert_false(m->row[k] >= 0 && m->dirty[k]);
}

/* Up to `window` batches are under way. Did the slots suffice? */
static bool both(const struct stream *s, enum policy policy, int slots, int window) {
    const struct cache_setup setup = {.rows = ROWS,
                                      .slots = slots,
                                      .policy = policy,
                                      .first = s->first,
                                      .batch_rows = s->rows,
                                      .num_batches = BATCHES};
    struct error err;
    struct cache *c = must_have(cache_open(&setup, &err));
    struct model *m = must_have(calloc(1, sizeof *m));
    bool sufficed = true;
    m->s = s, m->policy = policy, m->slots = slots;
    for (int k = 0; k < ROWS; k++) m->row[k] = -1;
    for (int b = 0; b < BATCHES && sufficed; b++) {
        const int64_t count = s->first[b + 1] - s->first[b], *rows = s->rows + s->first[b];
        const int from = b - window + 1 > 0 ? b - window + 1 : 0;
        struct looked x;
        struct cache_move got[MOST], want[MOST];
        int64_t lacks, needed = 0;
        if (b >= window) cache_release(c);
        const bool dirty = b % 3 != 1;
        /* A batch that is given up leaves nothing behind but, for lru, a touch. */
        if (b % 5 == 3 && window == 1 && policy != POLICY_LRU) {
            look(c, s->rows + s->first[b - 3], s->first[b - 2] - s->first[b - 3], true, false, &x);
            cache_give_up(c, &x.found);
        }
        for (int64_t r = 0; r < ROWS; r++) needed += under_way(m, r, from, b);
        look(c, rows, count, b % 2, dirty, &x);
        expect_found(m, &x, count);
        if (cache_admit(c, &x.found, got, &lacks, &err)) {
            assert_int_equal(lacks, needed - slots);
            assert_true(lacks > 0);
            sufficed = false;
            break;
        }
        assert_true(needed <= slots && lacks == 0);
        const int64_t misses = x.found.num_missing;
        assert_int_equal(misses, model_admit(m, from, b, dirty, want));
        for (int64_t i = 0; i < misses; i++)
            if (got[i].row != want[i].row || got[i].victim != want[i].victim ||
                got[i].slot != want[i].slot || got[i].dirty != want[i].dirty)
                fail_msg("%s, %d slots, window %d, batch %d: miss %d differs from the model",
                         policy_names[policy], slots, window, b, (int)i);
        for (int64_t r = 0; r < ROWS; r++) assert_int_equal(cache_slot(c, r), model_slot(m, r));
        if (b % 17 == 16) flush_both(c, m);
    }
    assert_true(cache_bytes(c) > ROWS * 4);
    free(m);
    cache_close(c);
    return sufficed;
}

static const int sizes[] = {MOST, MOST + 1, 40, 70, ROWS - 1, ROWS};

static void as_the_model(void **state) {
    const enum policy policy = *(const enum policy *)((const struct kernel_test *)*state)->param;
    struct stream s;
    int ran = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        stream_make(&s, seed);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            for (int window = 1; window <= 4; window++) ran += both(&s, policy, sizes[k], window);
    }
    assert_true(ran >= 8 * 6 + 8 * 9); /* all of window 1, most of the others */
}

TESTS(tier_cache) {
    static const enum policy all[] = {POLICY_LRU, POLICY_LFU, POLICY_BELADY};
    for (size_t p = 0; p < POLICIES; p++) add_test(policy_names[p], as_the_model, NULL, &all[p]);
    return run_listed("caches of rows");
}
