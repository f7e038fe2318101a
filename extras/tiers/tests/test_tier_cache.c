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
    struct row_index index[BATCHES]; /* the same, as the rows of table 1 */
    struct row_run runs[BATCHES][MOST + 1];
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
        s->index[b] = (struct row_index){.rows = total - s->first[b], .run = s->runs[b]};
        for (int64_t i = 0; i < s->index[b].rows; i++)
            s->runs[b][i] = (struct row_run){.row = s->rows[s->first[b] + i], .table = 1};
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

/* Rows of batch b that have slots are touched. */
static void model_touch(struct model *m, int b, int64_t number) {
    const struct stream *s = m->s;
    for (int64_t i = s->first[b]; i < s->first[b + 1]; i++) {
        if (model_slot(m, s->rows[i]) < 0) continue;
        m->last[s->rows[i]] = number;
        m->count[s->rows[i]]++;
    }
}

static int64_t model_admit(struct model *m, int from, int now, int64_t number, bool dirty,
                           struct cache_move *moves) {
    const struct stream *s = m->s;
    int64_t misses = 0;
    model_touch(m, now, number);
    for (int64_t i = s->first[now]; i < s->first[now + 1]; i++) {
        const int slot = model_slot(m, s->rows[i]);
        if (slot >= 0) m->dirty[slot] |= dirty;
    }
    for (int64_t i = s->first[now]; i < s->first[now + 1]; i++) {
        const int64_t row = s->rows[i];
        if (model_slot(m, row) >= 0) continue;
        const int slot = model_victim(m, from, now);
        moves[misses++] =
            (struct cache_move){row, m->row[slot], slot, m->row[slot] >= 0 && m->dirty[slot]};
        m->row[slot] = row;
        m->last[row] = number;
        m->count[row]++;
        m->dirty[slot] = dirty;
    }
    return misses;
}

/* --- both, side by side */

/* A batch's ids: its rows in descending order, then all of them again, and padding between. */
enum { IDS_MOST = 2 * MOST + 1, PADDING = ROWS, PADDING_SLOT = 1234 };

struct looked {
    int64_t ids[IDS_MOST], count, missing[IDS_MOST];
    int32_t slot[IDS_MOST];
    struct cache_found found;
};

static void look(struct cache *c, const struct stream *s, int b, int64_t number, bool changes,
                 struct looked *x) {
    const int64_t *rows = s->rows + s->first[b], count = s->first[b + 1] - s->first[b];
    const bool wide = b % 2;
    int32_t narrow[IDS_MOST];
    x->count = 0;
    for (int64_t i = count - 1; i >= 0; i--) x->ids[x->count++] = rows[i];
    x->ids[x->count++] = PADDING;
    for (int64_t i = 0; i < count; i++) x->ids[x->count++] = rows[i];
    for (int64_t i = 0; i < x->count; i++) narrow[i] = (int32_t)x->ids[i];
    const struct batch in = {.id_type = wide ? ID_INT64 : ID_INT32,
                             .ids = wide ? (const void *)x->ids : narrow};
    const int64_t half = x->count / 2; /* as of two features */
    x->found = (struct cache_found){.batch = number, .changes = changes, .missing = x->missing};
    cache_look(c, &in, 0, half, PADDING, PADDING_SLOT, x->slot, &x->found);
    cache_look(c, &in, half, x->count, PADDING, PADDING_SLOT, x->slot, &x->found);
}

/* What was found is what the model has. */
static void expect_found(const struct model *m, const struct looked *x) {
    int64_t here = 0, lookups = 0;
    for (int64_t i = 0; i < x->count; i++) {
        const int64_t id = x->ids[i];
        assert_int_equal(x->slot[i], id == PADDING ? PADDING_SLOT : model_slot(m, id));
        lookups += id != PADDING && x->slot[i] < 0;
        here += i < x->count / 2 && x->slot[i] >= 0; /* before the padding each row is once */
    }
    assert_true(x->found.num_here == here && x->found.num_missing == lookups);
}

/* The cache has the dirty rows of the model, and they are clean afterwards. */
static void expect_changed(struct cache *c, struct model *m) {
    int64_t rows[ROWS], count = 0;
    int32_t slot[ROWS];
    const int64_t got = cache_changed(c, rows, slot);
    for (int k = 0; k < m->slots; k++) {
        if (m->row[k] < 0 || !m->dirty[k]) continue;
        assert_true(count < got && rows[count] == m->row[k] && slot[count] == k);
        m->dirty[k] = false;
        count++;
    }
    assert_int_equal(got, count);
}

static void empty(struct cache *c, struct model *m) {
    expect_changed(c, m);
    cache_empty(c);
    for (int k = 0; k < m->slots; k++) m->row[k] = -1;
}

/* Batches that are refused, or come out of order, have numbers of their own. */
static int64_t refuse(struct cache *c, struct model *m, int b, int64_t number) {
    struct looked x;
    look(c, m->s, b, number, false, &x);
    model_touch(m, b, number);
    return number + 1;
}

static int64_t run_batch(struct cache *c, struct model *m, int from, int b, int64_t oldest,
                         int64_t number) {
    const bool dirty = b % 3 != 1;
    struct looked x;
    struct cache_move got[MOST], want[MOST];
    int64_t needed = 0;
    for (int64_t r = 0; r < ROWS; r++) needed += under_way(m, r, from, b);
    look(c, m->s, b, number, dirty, &x);
    expect_found(m, &x);
    const int64_t missing = cache_missing_slots(c, &x.found, oldest);
    if (missing > 0) {
        assert_int_equal(missing, needed - m->slots);
        return -1;
    }
    assert_true(needed <= m->slots);
    cache_admit(c, &x.found, oldest, got);
    assert_int_equal(x.found.num_missing, model_admit(m, from, b, number, dirty, want));
    for (int64_t i = 0; i < x.found.num_missing; i++)
        if (got[i].row != want[i].row || got[i].victim != want[i].victim ||
            got[i].slot != want[i].slot || got[i].dirty != want[i].dirty)
            fail_msg("%s, %d slots, batch %d of those from %d: miss %d differs from the model",
                     policy_names[m->policy], m->slots, b, from, (int)i);
    for (int64_t r = 0; r < ROWS; r++) assert_int_equal(cache_slot(c, r), model_slot(m, r));
    return number + 1;
}

/* Up to `window` batches are under way. Did the slots suffice? */
static bool both(const struct stream *s, enum policy policy, int slots, int window) {
    const struct cache_setup setup = {.rows = ROWS,
                                      .slots = slots,
                                      .policy = policy,
                                      .index = s->index,
                                      .table = 1,
                                      .num_batches = BATCHES};
    struct error err;
    struct cache *c = must_have(cache_open(&setup, &err));
    struct model *m = must_have(calloc(1, sizeof *m));
    int64_t number = 0, numbers[BATCHES];
    m->s = s, m->policy = policy, m->slots = slots;
    for (int k = 0; k < ROWS; k++) m->row[k] = -1;
    for (int b = 0; b < BATCHES && number >= 0; b++) {
        const int from = b - window + 1 > 0 ? b - window + 1 : 0;
        /* Belady knows batches by their numbers. */
        if (b % 5 == 3 && window == 1 && policy != POLICY_BELADY)
            number = refuse(c, m, b - 3, number);
        numbers[b] = number;
        number = run_batch(c, m, from, b, numbers[from], number);
        if (b % 17 == 16) expect_changed(c, m);
        if (b == 40 && window == 1) empty(c, m);
    }
    assert_true(cache_bytes(c) > ROWS * 4);
    free(m);
    cache_close(c);
    return number >= 0;
}

static const int sizes[] = {MOST, MOST + 1, 40, 70, ROWS - 1, ROWS};

static void as_the_model(void **state) {
    const enum policy policy = *(const enum policy *)((const struct kernel_test *)*state)->param;
    static struct stream s;
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
