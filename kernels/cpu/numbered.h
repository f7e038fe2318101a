/* SPDX-License-Identifier: MIT
 *
 * Numbered tables: a batch often looks up few rows of a large table, each of them many times. Such a table needs no
 * index either. A walk over its lookups numbers the rows as they come, with a hash table in L2. It adds each gradient
 * to the accumulator of its row's number. Then the rows are sorted and updated in ascending order.
 *
 * Which tables: the number of distinct rows decides. It is estimated by the distinct rows among one of NUMBERED_SAMPLED
 * rows, chosen by a hash. This is unbiased, where a sample of lookups is not. The count ends when it is too large.
 * Deterministic: the gradients of a row are added in the order of the lookups. A unit of work takes the rows of a table
 * in a range of hashes. If they turn out to be too many for its accumulators, it begins again with half of its range.
 */
#pragma once

#include "kernels/host/accumulate.h"
#include "kernels/cpu/bucket.h"
#include "kernels/cpu/small.h"

enum {
    NUMBERED_LOOKUPS = 8192,  /* least lookups of a table */
    NUMBERED_PARTS = 4,       /* a table has at most 1/4 of all lookups, else threads wait for it */
    NUMBERED_DIM = 32,        /* least dim */
    NUMBERED_OFTEN = 8,       /* least mean lookups of a distinct row: see kernels/cpu/tried.md */
    NUMBERED_BYTES = 4 << 20, /* of accumulators */
    NUMBERED_SLOTS_LOG2 = 15, /* of the hash table: 256 KiB */
    NUMBERED_ROWS = 1 << (NUMBERED_SLOTS_LOG2 - 1),
    NUMBERED_SAMPLED = 64, /* one row of 64 is counted */
    NUMBERED_BELOW = (1u << 31) / (NUMBERED_SAMPLED / 2),
    NUMBERED_COUNTED = NUMBERED_ROWS / NUMBERED_SAMPLED, /* most rows that are counted */
};

#define NO_ROW UINT32_MAX

/* The memory in which a thread numbers the rows of a unit. */
struct numbered_own {
    struct numbered_slot {
        uint32_t row, number; /* number + 1; 0: free */
    } slot[1 << NUMBERED_SLOTS_LOG2];
    uint64_t entry[2][NUMBERED_ROWS];  /* rows with their numbers; a sort goes back and forth */
    uint32_t begin[NUMBERED_ROWS + 1]; /* 0, 1, ...: each entry is a run */
    _Alignas(KERNEL_ALIGN) float sum[NUMBERED_BYTES / sizeof(float)];
};

struct numbered {
    uint8_t *table;           /* [num_tables] 1: numbered; NULL: not known yet */
    struct numbered_own *own; /* [threads] */
    int32_t units;
    int threads;
};

/* Accumulators for rows of table t. */
static inline int64_t numbered_most(const struct batch *in, int32_t t) {
    return min64(NUMBERED_ROWS, NUMBERED_BYTES / (int64_t)sizeof(float) / in->tables[t].dim);
}

/* A table is numbered if the sample has at most this many distinct rows. 0: the shape alone decides that it is not. A
 * quarter of the accumulators allows for the error of the count. */
static inline int64_t numbered_limit(const struct batch *in, int32_t t) {
    const int64_t lookups = in->tables[t].lookups;
    if (lookups < NUMBERED_LOOKUPS || lookups > in->lookups / NUMBERED_PARTS ||
        in->tables[t].dim < NUMBERED_DIM || small_table(in, t))
        return 0;
    return min64(numbered_most(in, t) / 4 * 3, lookups / NUMBERED_OFTEN) / NUMBERED_SAMPLED;
}

static inline void numbered_lay_out(struct numbered *x, struct scratch *s, const struct batch *in,
                                    int threads) {
    int32_t candidates = 0;
    for (int32_t t = 0; t < in->num_tables; t++) candidates += numbered_limit(in, t) > 0;
    *x = (struct numbered){.threads = threads};
    if (candidates == 0) return;
    x->table = scratch_take(s, in->num_tables, sizeof *x->table);
    x->own = scratch_take(s, threads, sizeof *x->own);
}

/* A bijection: no two rows have the same hash. */
ALWAYS_INLINE uint32_t numbered_hash(uint32_t row) {
    return row * 0x9e3779b1u;
}

/* A row is in the sample if its draw is below NUMBERED_BELOW. The draws of rows 0 to 84 are not: where rows are ordered
 * by frequency, a sample with the first rows would cost time at each of their lookups. */
ALWAYS_INLINE uint32_t numbered_draw(uint32_t row) {
    return (row + 3201) * 0x85ebca6bu;
}

static inline bool numbered_is_counted(uint32_t row) {
    return numbered_draw(row) < NUMBERED_BELOW;
}

/* The distinct rows that the sample has counted. */
struct numbered_count {
    int64_t rows, most;
    int64_t padding;
    uint32_t slot[2 * NUMBERED_COUNTED]; /* row + 1; 0: free */
};

static inline void numbered_count_row(struct numbered_count *c, int64_t id) {
    enum { SLOTS = 2 * NUMBERED_COUNTED };
    const uint32_t key = (uint32_t)id + 1;
    if (!numbered_is_counted((uint32_t)id) || id == c->padding || c->rows > c->most) return;
    uint32_t k = row_hash(key) % SLOTS;
    while (c->slot[k] && c->slot[k] != key) k = (k + 1) % SLOTS;
    c->rows += c->slot[k] == 0;
    c->slot[k] = key;
}

enum { COUNT_BLOCK = 16, COUNT_AHEAD = 256 /* ids that are prefetched */ };

/* The smallest draw of a block of ids. */
ALWAYS_INLINE uint32_t numbered_least(const struct batch *in, const bool wide, int64_t i) {
    uint32_t least = UINT32_MAX;
    for (int k = 0; k < COUNT_BLOCK; k++) {
        const uint32_t draw = numbered_draw(wide ? (uint32_t)((const int64_t *)in->ids)[i + k]
                                                 : (uint32_t)((const int32_t *)in->ids)[i + k]);
        least = draw < least ? draw : least;
    }
    return least;
}

/* Counts lookups i .. end - 1. Few blocks have a row of the sample. */
ALWAYS_INLINE void numbered_count_ids(struct numbered_count *c, const struct batch *in,
                                      const bool wide, int64_t i, int64_t end) {
    for (; i < end && c->rows <= c->most; i += COUNT_BLOCK) {
        uint32_t least = 0;
        prefetch((const char *)in->ids + (i + COUNT_AHEAD) * (wide ? 8 : 4),
                 COUNT_BLOCK * (wide ? 8 : 4), INTO_L1);
        if (end - i >= COUNT_BLOCK) least = numbered_least(in, wide, i);
        for (int64_t k = i; least < NUMBERED_BELOW && k < min64(i + COUNT_BLOCK, end); k++)
            numbered_count_row(c, batch_id(in, k));
    }
}

/* True if the batch has few distinct rows of table t. The counts after a quarter and after half of the lookups bound
 * the count after all: distinct rows grow as a power of the lookups, so each doubling multiplies them by at most the
 * same factor. */
static inline bool numbered_is_faster(const struct batch *in, int32_t t) {
    struct numbered_count c = {.most = numbered_limit(in, t)};
    int64_t before = 0;
    for (int quarter = 0; quarter < 2 && c.most > 0; quarter++) {
        before = c.rows;
        for (int32_t f = 0; f < in->num_features; f++) {
            const int64_t first = in->features[f].first_lookup, n = in->features[f].lookups,
                          begin = first + part_begin(n, quarter, 4),
                          end = first + part_begin(n, quarter + 1, 4);
            if (in->features[f].table != t) continue;
            c.padding = in->features[f].padding_id;
            if (in->id_type == ID_INT64)
                numbered_count_ids(&c, in, true, begin, end);
            else
                numbered_count_ids(&c, in, false, begin, end);
        }
    }
    return c.most > 0 && c.rows * c.rows <= c.most * before;
}

/* The number of units of table t. A unit takes a range of hashes, and about as many lookups as a thread's share of the
 * batch. */
static inline int32_t numbered_ranges(const struct numbered *x, const struct batch *in, int32_t t) {
    if (!x->table || !x->table[t]) return 0;
    const int64_t lookups = in->tables[t].lookups;
    const int64_t shares = (lookups * x->threads + in->lookups / 2) / in->lookups;
    return (int32_t)max64(1, min64(shares, lookups / NUMBERED_LOOKUPS));
}

/* Chooses the tables. */
static inline void numbered_choose(struct numbered *x, const struct batch *in) {
    if (!x->table) return;
#pragma omp parallel for schedule(dynamic) num_threads(x->threads)
    for (int32_t t = 0; t < in->num_tables; t++) x->table[t] = numbered_is_faster(in, t);
    for (int32_t t = 0; t < in->num_tables; t++) x->units += numbered_ranges(x, in, t);
}

/* Rows of table t whose hashes are first .. last. */
struct numbered_unit {
    int32_t table;
    uint32_t first, last;
};

static inline struct numbered_unit numbered_unit_of(const struct numbered *x,
                                                    const struct batch *in, int32_t k) {
    int32_t t = 0, ranges;
    while ((ranges = numbered_ranges(x, in, t)) <= k) k -= ranges, t++;
    const int64_t hashes = INT64_C(1) << 32;
    return (struct numbered_unit){t, (uint32_t)part_begin(hashes, k, ranges),
                                  (uint32_t)(part_begin(hashes, k + 1, ranges) - 1)};
}

/* The slot where the search for a row begins. */
ALWAYS_INLINE uint32_t numbered_slot(uint32_t row) {
    const uint32_t hash = numbered_hash(row);
    return (hash ^ hash >> NUMBERED_SLOTS_LOG2) % (1u << NUMBERED_SLOTS_LOG2);
}

/* The rows of a unit that have numbers. */
struct numbered_rows {
    struct numbered_own *own;
    int64_t dim;
    uint32_t count, most;
    bool full; /* the unit has more rows */
};

/* Gives a row the next number, and an accumulator of zeros. */
NOINLINE uint32_t numbered_add(struct numbered_rows *x, struct numbered_slot *slot, uint32_t row) {
    if (x->count == x->most) {
        x->full = true;
        return 0;
    }
    memset(x->own->sum + x->count * x->dim, 0, (size_t)x->dim * sizeof *x->own->sum);
    x->own->entry[0][x->count] = entry_pack(row, x->count);
    *slot = (struct numbered_slot){row, ++x->count};
    return x->count - 1;
}

struct numbered_walk {
    uint32_t first, width; /* of the range of hashes */
    bool per_lookup, whole;
    struct numbered_slot *slot;
    struct numbered_rows *rows;
    struct accumulate queue;
};

/* A lookup outside of the unit's range is taken for one of NO_ROW and added to nothing, without a branch. */
ALWAYS_INLINE void numbered_visit(void *ctx, struct lookup l) {
    struct numbered_walk *w = ctx;
    const bool in_range = w->whole || numbered_hash((uint32_t)l.row) - w->first <= w->width;
    const uint32_t row = in_range ? (uint32_t)l.row : NO_ROW;
    struct numbered_slot *slot = &w->slot[numbered_slot(row)];
    while (slot->number && slot->row != row)
        if (++slot == w->slot + (1 << NUMBERED_SLOTS_LOG2)) slot = w->slot;
    const uint32_t number = slot->number ? slot->number - 1 : numbered_add(w->rows, slot, row);
    accumulate_push(&w->queue, number, gather_position(w->per_lookup, l), in_range);
}

/* Updates the numbered rows of a unit, in ascending order. */
static inline void numbered_update(struct numbered_own *own, uint32_t rows,
                                   const struct accumulate *a, const struct updater *u) {
    const struct batch *in = a->gather->in;
    const int32_t t = (int32_t)(a->from - a->gather->table);
    for (uint32_t k = 0; k <= rows; k++) own->begin[k] = k;
    const uint64_t *e = sort_bucket((struct row_prefetch){0}, own->entry[0],
                                    (uint64_t *[]){own->entry[1], own->entry[0]}, rows,
                                    bits_for(in->tables[t].rows));
    merged_update(u, a->sum, e, own->begin, rows);
}

/* Sums and updates the rows of a unit. */
static inline void numbered_step(const struct numbered *x, const struct gather *g,
                                 struct numbered_unit unit, const struct rule_step *steps,
                                 const struct table *io, int thread) {
    const struct batch *in = g->in;
    const int32_t t = unit.table, dim = in->tables[t].dim;
    struct numbered_own *own = &x->own[thread];
    struct numbered_rows rows = {.own = own, .dim = dim, .most = (uint32_t)numbered_most(in, t)};
    struct addend wait[ADDENDS];
    struct numbered_walk w = {.first = unit.first,
                              .width = unit.last - unit.first,
                              .slot = own->slot,
                              .rows = &rows,
                              .queue = {.gather = g,
                                        .from = &g->table[t],
                                        .sum = own->sum,
                                        .stride = dim,
                                        .far = true,
                                        .dim = dim,
                                        .wait = wait}};
    memset(own->slot, 0, sizeof own->slot);
    own->slot[numbered_slot(NO_ROW)] = (struct numbered_slot){NO_ROW, 1};
    for (int32_t f = 0; f < in->num_features; f++) {
        if (in->features[f].table != t) continue;
        const struct stretch lookups = stretch_of_feature(in, f);
        /* Members that are constants make the inlined walk shorter. */
        if (w.width < UINT32_MAX)
            w.whole = false, w.per_lookup = g->table[t].per_lookup,
            walk_stretch(in, lookups, numbered_visit, &w);
        else if (g->table[t].per_lookup)
            w.whole = w.per_lookup = true, walk_stretch(in, lookups, numbered_visit, &w);
        else
            w.whole = true, w.per_lookup = false, walk_stretch(in, lookups, numbered_visit, &w);
    }
    accumulate_flush(&w.queue);
    if (!rows.full) {
        const struct updater u = updater_of(in, t, steps, io);
        numbered_update(own, rows.count, &w.queue, &u);
        return;
    }
    const uint32_t middle = unit.first + (unit.last - unit.first) / 2;
    numbered_step(x, g, (struct numbered_unit){t, unit.first, middle}, steps, io, thread);
    numbered_step(x, g, (struct numbered_unit){t, middle + 1, unit.last}, steps, io, thread);
}
