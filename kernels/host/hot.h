/* SPDX-License-Identifier: MIT
 *
 * Hot rows: in a skewed batch most lookups go to a few rows. A walk over the lookups in order adds
 * the gradients of these rows to accumulators. The bag's gradient row is in L1, the accumulators
 * are in L2, and these lookups need no grouping. The walk leaves all other lookups, in order, as
 * cold entries for the partition.
 *
 * Deterministic: the sample that gives the hot rows and the slices of the batch depend only on the
 * batch. Each slice has its own accumulators, a thread takes whole slices, and the slices of a row
 * are added in order. The price: one accumulator per slice instead of per thread, and at most as
 * many threads as slices work in this pass.
 * Source: skew-aware joins and aggregations, which handle heavy hitters separately.
 * Measured on Granite Rapids, two threads, 15 interleaved samples, cold: without hot rows a step takes
 * 1.14, 1.12, 1.19 and 1.47 times as long on zipf 1.05, zipf 1.2, wide and cached, and 1.02 and 0.98
 * times on single-hot and dlrm-2022, which hardly have any.
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
    HOT_LINES_AHEAD = 8,   /* prefetched */
    HOT_SLOTS_LOG2 = 12,   /* hash table of the hot rows, one probe: 16 KiB of keys, in L1 */
    HOT_BYTES = 256 << 10, /* of accumulators: in L2 */
    HOT_SLICES = 64,
    HOT_SLICE_OF = 64, /* lookups for each accumulator of a slice, at least */
    /* Hot rows must have HOT_SHARE_POOLED percent of the sample for a pooling factor of POOLED or
     * more, otherwise HOT_SHARE: then any order reads a gradient row about once. Measured: pooled,
     * shares of 42 to 51 lose or break even, 56 or more gain; not pooled, 60 loses. */
    POOLED = 4,
    HOT_SHARE_POOLED = 50,
    HOT_SHARE = 80,
};

#define HOT_FREE UINT32_MAX

struct hot {
    const struct partition *partition; /* the sample is from its lookups */
    int32_t rows;                      /* chosen; 0: not worth it */
    int32_t most;                      /* limit of rows, from the size of accumulators */
    int32_t slices; /* of the batch: a power of two, even for 2, 4, 8 ... threads */
    int32_t stride; /* floats of an accumulator */
    int64_t sample_most;
    int32_t counts_log2;
    /* Here and below, row numbers run over all tables. */
    struct hot_count *sample; /* [1 << counts_log2] hash table, half full at most */
    uint32_t *key;            /* [1 << HOT_SLOTS_LOG2] hot row, or HOT_FREE */
    uint16_t *number;         /* [1 << HOT_SLOTS_LOG2] its number */
    struct hot_count *row;    /* [most] by number, with its count in the sample */
    float *sum;               /* [slices][rows][stride] */
    uint32_t *cold_end;       /* [HOT_SLICES + num_features] by slice + feature: cold entries of
                                 the thread so far */
    struct addend *list;      /* [partitioned lookups] of a plan: the hot lookups of each slice */
    uint32_t *list_end;       /* as cold_end */
};

static inline void hot_lay_out(struct hot *h, struct scratch *s, const struct batch *in,
                               const struct partition *p, int32_t stride, bool ahead) {
    *h = (struct hot){.partition = p, .stride = stride};
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
    h->cold_end = scratch_take(s, HOT_SLICES + in->num_features, sizeof *h->cold_end);
    if (!ahead) return;
    h->list = scratch_take(s, p->lookups, sizeof *h->list);
    h->list_end = scratch_take(s, HOT_SLICES + in->num_features, sizeof *h->list_end);
}

/* A hash without collisions between neighbouring rows, and so within a small table. */
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
    const bool pooled = in->lookups >= POOLED * in->num_features * in->bags;
    if (rows == 0 || share * 100 < size * (pooled ? HOT_SHARE_POOLED : HOT_SHARE)) return;
    h->rows = rows;
    h->slices = 1;
    while (h->slices < HOT_SLICES &&
           2 * h->slices * (int64_t)rows * HOT_SLICE_OF * size <= h->partition->lookups * share)
        h->slices *= 2;
}

struct hot_walk {
    uint32_t first_row;
    const uint32_t *key;
    const uint16_t *number;
    struct partition_walk partition;
    uint64_t *cold;
    struct accumulate queue;
    bool ahead;
    struct addend *list;
};

/* No branch on whether a row is hot: the CPU would mispredict it about every other time. */
ALWAYS_INLINE void hot_visit(void *ctx, struct lookup l) {
    struct hot_walk *w = ctx;
    uint32_t row = w->first_row + (uint32_t)l.row, slot = hot_slot(row);
    uint32_t hot = w->key[slot] == row, position = gather_position(w->partition.per_lookup, l);
    *w->cold = entry_pack(l.row, position);
    w->cold += 1 - hot;
    *partition_cursor(&w->partition, l.row) += 1 - hot;
    if (w->ahead) {
        *w->list = (struct addend){w->number[slot], position};
        w->list += hot;
    } else {
        accumulate_push(&w->queue, w->number[slot], position, hot);
    }
}

/* Adds to the accumulators of a slice, for lookups of table t. */
ALWAYS_INLINE struct accumulate hot_queue(const struct hot *h, const struct gather *g,
                                          int32_t slice, int32_t t, struct addend *wait) {
    return (struct accumulate){.gather = g,
                               .from = &g->table[t],
                               .sum = h->sum + (int64_t)slice * h->rows * h->stride,
                               .stride = h->stride,
                               .dim = g->in->tables[t].dim,
                               .wait = wait,
                               .row = h->row};
}

static inline void hot_clear(const struct hot *h, int32_t slice) {
    memset(h->sum + (int64_t)slice * h->rows * h->stride, 0,
           (size_t)h->rows * (size_t)h->stride * sizeof *h->sum);
}

/* Replaces partition_build() if there are hot rows: sums these, or lists their lookups if ahead, and
 * partitions the other lookups, with cold[lookups] as a buffer. Every thread of the team calls this; it
 * ends with a barrier. */
ALWAYS_INLINE void hot_partition(const struct hot *h, const struct partition *p,
                                 const struct gather *g, uint64_t *cold, const bool ahead,
                                 int thread, int threads) {
    const struct batch *in = g->in;
    const int32_t first = (int32_t)part_begin(h->slices, thread, threads);
    const int32_t last = (int32_t)part_begin(h->slices, thread + 1, threads);
    uint32_t *next = partition_clear(p, thread);
    struct addend wait[ADDENDS];
    cold += part_begin(p->lookups, first, h->slices);
    uint64_t *to = cold;
    for (int32_t slice = first; slice < last; slice++) {
        struct addend *list = ahead ? h->list + part_begin(p->lookups, slice, h->slices) : NULL;
        struct addend *listed = list;
        if (!ahead) hot_clear(h, slice);
        int64_t lo = partition_begin(p, in, slice, h->slices);
        int64_t hi = partition_begin(p, in, slice + 1, h->slices);
        for (PARTITION_STRETCHES(s, p, in, lo, hi)) {
            struct hot_walk w = {
                .first_row = (uint32_t)in->tables[s.table].first_row,
                .key = h->key,
                .number = h->number,
                .partition = partition_walk_of(p, g, s.table, BUCKET_BY_RANGE, next),
                .cold = to,
                .queue = hot_queue(h, g, slice, s.table, wait),
                .ahead = ahead,
                .list = listed,
            };
            walk_stretch(in, s, hot_visit, &w);
            if (!ahead) accumulate_flush(&w.queue);
            to = w.cold;
            h->cold_end[slice + s.feature] = (uint32_t)(to - cold);
            if (!ahead) continue;
            listed = w.list;
            h->list_end[slice + s.feature] = (uint32_t)(listed - list);
        }
    }
    team_cursors(p->next, p->buckets, p->begin, threads);
    uint32_t k = 0;
    for (int32_t slice = first; slice < last; slice++) {
        int64_t lo = partition_begin(p, in, slice, h->slices);
        int64_t hi = partition_begin(p, in, slice + 1, h->slices);
        for (PARTITION_STRETCHES(s, p, in, lo, hi)) {
            const struct partition_walk w = partition_walk_of(p, g, s.table, BUCKET_BY_RANGE, next);
            for (uint32_t to_here = h->cold_end[slice + s.feature]; k < to_here; k++)
                w.entry[(*partition_cursor(&w, entry_row(cold[k])))++] = cold[k];
        }
    }
#pragma omp barrier
}

/* Sums the hot lookups that a plan has listed, with the same additions in the same order. Every thread
 * of the team calls this, before a barrier. */
static inline void hot_sum_listed(const struct hot *h, const struct gather *g, int thread,
                                  int threads) {
    const struct partition *p = h->partition;
    const struct batch *in = g->in;
    const int32_t last = (int32_t)part_begin(h->slices, thread + 1, threads);
    struct addend wait[ADDENDS];
    for (int32_t slice = (int32_t)part_begin(h->slices, thread, threads); slice < last; slice++) {
        const struct addend *list = h->list + part_begin(p->lookups, slice, h->slices);
        const int64_t lo = partition_begin(p, in, slice, h->slices);
        const int64_t hi = partition_begin(p, in, slice + 1, h->slices);
        uint32_t k = 0;
        hot_clear(h, slice);
        for (PARTITION_STRETCHES(s, p, in, lo, hi)) {
            struct accumulate queue = hot_queue(h, g, slice, s.table, wait);
            for (const uint32_t end = h->list_end[slice + s.feature]; k < end; k++)
                accumulate_push(&queue, list[k].number, list[k].position, 1);
            accumulate_flush(&queue);
        }
    }
}

/* Adds up the slices of each hot row and updates the row. Every thread of the team calls this. */
static inline void hot_update(const struct hot *h, const struct batch *in,
                              const struct rule_step *steps, const struct table *io) {
#pragma omp for schedule(static)
    for (int32_t k = 0; k < h->rows; k++) {
        int32_t t = table_of_row(in->tables, in->num_tables, h->row[k].row),
                dim = in->tables[t].dim;
        float *sum = h->sum + (int64_t)k * h->stride;
        for (int32_t s = 1; s < h->slices; s++)
            row_add(FP32, sum, sum + (int64_t)s * h->rows * h->stride, 1, dim);
        const struct updater u = updater_of(in, t, steps, io);
        updater_row(&u, h->row[k].row - in->tables[t].first_row, sum);
    }
}
