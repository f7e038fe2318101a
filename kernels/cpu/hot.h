/* SPDX-License-Identifier: MIT
 *
 * Hot rows: in a skewed batch most lookups go to a few rows. A walk over the lookups in order adds
 * the gradients of these rows to accumulators. The bag's gradient row is in L1, the accumulators
 * are in L2, and these lookups need no grouping. The walk leaves all other lookups, in order, as
 * cold entries for the partition.
 *
 * Deterministic: the sample that gives the hot rows and the slices of the batch depend only on the
 * batch. Each slice has its own accumulators, and the slices of a row are added in order. A thread
 * takes whole slices. With more threads than slices, a thread walks a part of a slice and lists the part's hot
 * lookups, and then adds the lookups of a range of the rows. The price is one accumulator per slice instead
 * of per thread.
 * Source: skew-aware joins and aggregations, which handle heavy hitters separately.
 */
#pragma once

#include "kernels/host/accumulate.h"
#include "kernels/host/partition.h"
#include "kernels/host/update.h"

enum {
    HOT_LOOKUPS = 4096,    /* of a batch, at least */
    HOT_SAMPLE = 16384,    /* ids, at most */
    HOT_SAMPLE_OF = 64,    /* lookups for each id of the sample, at least */
    HOT_LINE = 8,          /* ids side by side that are sampled together: a cache line */
    HOT_LINES_AHEAD = 8,   /* distance of the prefetch */
    HOT_SLOTS_LOG2 = 12,   /* hash table of the hot rows, one probe: 16 KiB of keys, in L1 */
    HOT_BYTES = 256 << 10, /* of accumulators: in L2 */
    HOT_SLICES = 64,
    HOT_SLICE_OF = 64, /* lookups for each accumulator of a slice, at least */
    HOT_SHARE = 50,    /* percent of the sample, at least: see kernels/cpu/tried.md */
};

#define HOT_FREE UINT32_MAX

/* A row of all tables, and its count in the sample. */
struct hot_count {
    uint32_t row, count;
};

/* Numbers of entries of a part, from its first lookup to the end of a stretch. */
struct hot_end {
    uint32_t hot, cold;
};

struct hot {
    const struct partition *partition; /* whose lookups are sampled */
    int32_t rows;                      /* hot rows; 0: they would not be worth it */
    int32_t most;                      /* limit of rows, from the size of accumulators */
    int32_t slices; /* of the batch: a power of two, so that 2, 4, 8 ... threads get equal work */
    int32_t parts;  /* of each slice in the walk, and ranges of its accumulators */
    int32_t threads;
    int32_t stride; /* floats of an accumulator */
    int64_t sample_most;
    int32_t counts_log2;
    /* Here and below, row numbers run over all tables. */
    struct hot_count *sample; /* [1 << counts_log2] hash table, half full at most */
    uint32_t *key;            /* [1 << HOT_SLOTS_LOG2] hot row, or HOT_FREE */
    uint16_t *number;         /* [1 << HOT_SLOTS_LOG2] its number */
    struct hot_count *row;    /* [most] by number, with its count in the sample */
    float *sum;               /* [slices][rows][stride] */
    /* [partitioned lookups] entries, by part. Cold lookups fill a part from its last entry backwards. Hot lookups, if
     * they are listed, fill it from its first entry; they have the number of the row in place of the row. */
    uint64_t *list;
    struct hot_end *end; /* [most parts + num_features] by part + feature: entries so far */
};

/* list[partitioned lookups] is free memory until the hot rows are summed. */
static inline void hot_lay_out(struct hot *h, struct scratch *s, const struct batch *in,
                               const struct partition *p, int32_t stride, int threads,
                               uint64_t *list) {
    *h = (struct hot){.partition = p, .stride = stride, .threads = threads, .list = list};
    h->most =
        (int32_t)min64(HOT_BYTES / (int64_t)sizeof(float) / stride, 1 << (HOT_SLOTS_LOG2 - 2));
    h->most = (int32_t)min64(h->most, p->lookups / HOT_SLICE_OF);
    h->sample_most = min64(p->lookups / HOT_SAMPLE_OF, HOT_SAMPLE);
    h->counts_log2 = 1 + bits_for(h->sample_most);
    h->sample = scratch_take(s, INT64_C(1) << h->counts_log2, sizeof *h->sample);
    h->key = scratch_take(s, 1 << HOT_SLOTS_LOG2, sizeof *h->key);
    h->number = scratch_take(s, 1 << HOT_SLOTS_LOG2, sizeof *h->number);
    h->row = scratch_take(s, h->most, sizeof *h->row);
    h->sum = scratch_take(s, p->lookups / HOT_SLICE_OF * stride, sizeof *h->sum);
    h->end = scratch_take(s, HOT_SLICES + threads + in->num_features, sizeof *h->end);
}

/* Neighbouring rows, and so the rows of a small table, do not collide. */
ALWAYS_INLINE uint32_t hot_slot(uint32_t row) {
    return (row ^ row >> HOT_SLOTS_LOG2 ^ row >> 2 * HOT_SLOTS_LOG2) % (1 << HOT_SLOTS_LOG2);
}

static inline void hot_count(const struct hot *h, uint32_t row) {
    uint32_t k = row * 0x9e3779b1u >> (32 - h->counts_log2);
    while (h->sample[k].count && h->sample[k].row != row) k = (k + 1) % (1u << h->counts_log2);
    h->sample[k] = (struct hot_count){row, h->sample[k].count + 1};
}

/* Counts the rows of a sample of the lookups: cache lines of ids at even distances. Returns the
 * number of ids in the sample. */
static inline int64_t hot_sample(const struct hot *h, const struct batch *in) {
    const int64_t width = in->id_type == ID_INT64 ? 8 : 4;
    const int64_t step = HOT_LINE * (h->partition->lookups / h->sample_most);
    int64_t size = 0;
    memset(h->sample, 0, sizeof *h->sample << h->counts_log2);
    for (PARTITION_STRETCHES(s, h->partition, in, 0, in->lookups)) {
        const int64_t padding = in->features[s.feature].padding_id;
        const int64_t first_row = in->tables[s.table].first_row;
        for (int64_t line = (s.i + step - 1) / step * step;
             line < s.end && size + HOT_LINE <= h->sample_most; line += step) {
            int64_t ahead = line + HOT_LINES_AHEAD * step, last = min64(line + HOT_LINE, s.end);
            if (ahead < s.end) __builtin_prefetch((const char *)in->ids + ahead * width);
            for (int64_t i = line; i < last; i++) {
                int64_t id = batch_id(in, i);
                if (id == padding) continue;
                hot_count(h, (uint32_t)(first_row + id));
                size++;
            }
        }
    }
    return size;
}

/* Serial: chooses the most frequent rows of the sample, each with at least two ids and up to the
 * limit, and decides whether their share of the batch is large enough. */
static inline void hot_choose(struct hot *h, const struct batch *in) {
    enum { MANY = 64 };
    int32_t rows_of[MANY + 1] = {0}; /* by count */
    h->rows = 0;
    if (h->partition->lookups < HOT_LOOKUPS) return;
    const int64_t size = hot_sample(h, in);
    for (int32_t k = 0; k < 1 << h->counts_log2; k++)
        rows_of[h->sample[k].count < MANY ? h->sample[k].count : MANY]++;
    uint32_t least = MANY;
    for (int32_t rows = rows_of[MANY]; least > 2; rows += rows_of[--least])
        if (rows + rows_of[least - 1] > h->most) break;

    int64_t share = 0;
    int32_t rows = 0;
    memset(h->key, 0xff, (1 << HOT_SLOTS_LOG2) * sizeof *h->key);
    for (int32_t k = 0; k < 1 << h->counts_log2; k++) {
        struct hot_count x = h->sample[k];
        if (x.count < least) continue;
        uint32_t slot = hot_slot(x.row);
        if (h->key[slot] == HOT_FREE) { /* otherwise the hotter row gets the slot */
            if (rows == h->most) continue;
            h->number[slot] = (uint16_t)rows++;
        } else {
            uint32_t other = h->row[h->number[slot]].count;
            if (other >= x.count) continue;
            share -= other;
        }
        h->key[slot] = x.row;
        h->row[h->number[slot]] = x;
        share += x.count;
    }
    if (rows == 0 || share * 100 < size * HOT_SHARE) return;
    h->rows = rows;
    h->slices = 1;
    while (h->slices < HOT_SLICES &&
           2 * h->slices * (int64_t)rows * HOT_SLICE_OF * size <= h->partition->lookups * share)
        h->slices *= 2;
    h->parts = (h->threads + h->slices - 1) / h->slices;
}

/* The accumulator of a row in a slice. */
static inline float *hot_accumulator(const struct hot *h, int32_t slice, uint32_t number) {
    return h->sum + ((int64_t)slice * h->rows + number) * h->stride;
}

/* The queue that adds lookups of table t to the accumulators of the slice of a part. */
ALWAYS_INLINE struct accumulate hot_queue(const struct hot *h, const struct gather *g, int32_t part,
                                          int32_t t, struct addend *wait) {
    return (struct accumulate){.gather = g,
                               .from = &g->table[t],
                               .sum = hot_accumulator(h, part / h->parts, 0),
                               .stride = h->stride,
                               .dim = g->in->tables[t].dim,
                               .wait = wait};
}

/* The first entry of a part. Part numbers run over all slices. */
static inline int64_t hot_part(const struct hot *h, int32_t part) {
    return part_begin(h->partition->lookups, part, h->slices * h->parts);
}

static inline int64_t hot_part_begin(const struct hot *h, const struct batch *in, int32_t part) {
    return partition_begin(h->partition, in, part, h->slices * h->parts);
}

/* PARTITION_STRETCHES over the lookups of a part. */
#define HOT_STRETCHES(s, h, in, part)                                                              \
    PARTITION_STRETCHES(s, (h)->partition, in, hot_part_begin(h, in, part),                        \
                        hot_part_begin(h, in, (part) + 1))

struct hot_walk {
    uint32_t first_row;
    const uint32_t *key;
    const uint16_t *number;
    struct partition_walk partition;
    uint64_t *hot, *cold; /* the next entries */
    bool lists;
    struct accumulate queue;
};

/* Appends a lookup to the hot entries or to the cold ones. There is no branch on whether the row is hot, as the CPU would
 * mispredict it about every other time: `select` has all bits set if a hot lookup is listed, and chooses by masks. */
ALWAYS_INLINE void hot_visit(void *ctx, struct lookup l) {
    struct hot_walk *w = ctx;
    const uint32_t row = w->first_row + (uint32_t)l.row, slot = hot_slot(row);
    const uint32_t hot = w->key[slot] == row, number = w->number[slot];
    const uint32_t position = gather_position(w->partition.per_lookup, l);
    const int64_t select = w->lists ? -(int64_t)hot : 0;
    uint64_t *to = w->cold + (select & (w->hot - w->cold));
    *to = entry_pack(l.row ^ (select & (l.row ^ number)), position);
    w->cold -= 1 - hot;
    *partition_cursor(&w->partition, l.row) += 1 - hot;
    if (w->lists)
        w->hot += hot;
    else
        accumulate_push(&w->queue, number, position, hot);
}

/* Walks a part: leaves its cold lookups as entries, and counts them by bucket. If `lists` is set, it lists hot lookups
 * and reads no gradient. Otherwise it adds their gradients, which needs slices of one part. */
ALWAYS_INLINE void hot_walk_part(const struct hot *h, const struct gather *g, int32_t part,
                                 uint32_t *next, const bool lists) {
    const struct batch *in = g->in;
    uint64_t *const first = h->list + hot_part(h, part);
    uint64_t *const last = h->list + hot_part(h, part + 1) - 1;
    struct addend wait[ADDENDS];
    struct hot_walk w = {
        .key = h->key, .number = h->number, .hot = first, .cold = last, .lists = lists};
    for (HOT_STRETCHES(s, h, in, part)) {
        w.first_row = (uint32_t)in->tables[s.table].first_row;
        w.partition = partition_walk_of(h->partition, g, s.table, BUCKET_BY_RANGE, next);
        if (!lists) w.queue = hot_queue(h, g, part, s.table, wait);
        walk_stretch(in, s, hot_visit, &w);
        if (!lists) accumulate_flush(&w.queue);
        h->end[part + s.feature] =
            (struct hot_end){(uint32_t)(w.hot - first), (uint32_t)(last - w.cold)};
    }
}

/* Puts the cold entries of a part into their buckets. */
static inline void hot_put_cold(const struct hot *h, const struct gather *g, int32_t part,
                                uint32_t *next) {
    const struct batch *in = g->in;
    const uint64_t *const last = h->list + hot_part(h, part + 1) - 1;
    uint32_t k = 0;
    for (HOT_STRETCHES(s, h, in, part)) {
        const struct partition_walk w =
            partition_walk_of(h->partition, g, s.table, BUCKET_BY_RANGE, next);
        for (const uint32_t end = h->end[part + s.feature].cold; k < end; k++) {
            const uint64_t entry = last[-(int64_t)k];
            entry_put(w.entry + (*partition_cursor(&w, entry_row(entry)))++, entry);
        }
    }
}

/* Adds the listed lookups of a part that go to hot rows first .. first + rows - 1. */
static inline void hot_add(const struct hot *h, const struct gather *g, int32_t part,
                           uint32_t first, uint32_t rows) {
    const struct batch *in = g->in;
    const uint64_t *const list = h->list + hot_part(h, part);
    struct addend wait[ADDENDS];
    uint32_t k = 0;
    for (HOT_STRETCHES(s, h, in, part)) {
        struct accumulate queue = hot_queue(h, g, part, s.table, wait);
        for (const uint32_t end = h->end[part + s.feature].hot; k < end; k++) {
            const uint32_t number = (uint32_t)entry_row(list[k]);
            accumulate_push(&queue, number, (uint32_t)list[k], number - first < rows);
        }
        accumulate_flush(&queue);
    }
}

static inline void hot_clear(const struct hot *h, int32_t slice, uint32_t first, uint32_t rows) {
    memset(hot_accumulator(h, slice, first), 0, (size_t)rows * (size_t)h->stride * sizeof *h->sum);
}

/* A share of the sums: some rows of a slice. */
struct hot_share {
    int32_t slice;
    uint32_t first, rows;
};

static inline struct hot_share hot_share(const struct hot *h, int32_t share) {
    const int32_t range = share % h->parts;
    const uint32_t first = (uint32_t)part_begin(h->rows, range, h->parts);
    const uint32_t end = (uint32_t)part_begin(h->rows, range + 1, h->parts);
    return (struct hot_share){share / h->parts, first, end - first};
}

/* Sums the hot rows after all threads have listed their lookups. Every thread of the team calls this,
 * before a barrier. */
static inline void hot_sum(const struct hot *h, const struct gather *g, int thread, int threads) {
    const int32_t shares = h->slices * h->parts;
    const int32_t last = (int32_t)part_begin(shares, thread + 1, threads);
    for (int32_t k = (int32_t)part_begin(shares, thread, threads); k < last; k++) {
        const struct hot_share share = hot_share(h, k);
        hot_clear(h, share.slice, share.first, share.rows);
        for (int32_t part = share.slice * h->parts; part < (share.slice + 1) * h->parts; part++)
            hot_add(h, g, part, share.first, share.rows);
    }
}

/* Replaces partition_build() if there are hot rows: partitions the other lookups. If for_plan is set, it
 * reads no gradient, and lists the hot lookups for hot_sum(). Otherwise it sums them. Every thread of the team calls
 * this; it ends with a barrier. */
static inline void hot_partition(const struct hot *h, const struct gather *g, bool for_plan,
                                 int thread, int threads) {
    const struct partition *p = h->partition;
    const int32_t parts = h->slices * h->parts;
    const int32_t first = (int32_t)part_begin(parts, thread, threads);
    const int32_t last = (int32_t)part_begin(parts, thread + 1, threads);
    uint32_t *next = partition_clear(p, thread);
    for (int32_t part = first; part < last; part++) {
        if (for_plan || h->parts > 1) {
            hot_walk_part(h, g, part, next, true);
        } else {
            hot_clear(h, part, 0, (uint32_t)h->rows);
            hot_walk_part(h, g, part, next, false);
        }
    }
    team_cursors(p->next, p->buckets, p->begin, threads);
    if (!for_plan && h->parts > 1) hot_sum(h, g, thread, threads);
    for (int32_t part = first; part < last; part++) hot_put_cold(h, g, part, next);
#pragma omp barrier
}

/* Adds up the slices of each hot row and updates the row. Every thread of the team calls this. */
static inline void hot_update(const struct hot *h, const struct batch *in,
                              const struct rule_step *steps, const struct table *io) {
#pragma omp for schedule(static)
    for (int32_t k = 0; k < h->rows; k++) {
        int32_t t = table_of_row(in->tables, in->num_tables, h->row[k].row),
                dim = in->tables[t].dim;
        float *sum = hot_accumulator(h, 0, (uint32_t)k);
        for (int32_t s = 1; s < h->slices; s++)
            row_add(FP32, sum, hot_accumulator(h, s, (uint32_t)k), 1, dim);
        const struct updater u = updater_of(in, t, steps, io);
        updater_row(&u, h->row[k].row - in->tables[t].first_row, sum);
    }
}
