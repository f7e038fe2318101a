/* SPDX-License-Identifier: MIT
 *
 * Small tables: their gradient fits in shared memory, so their lookups need no sort. A block takes
 * a slice of a feature's lookups and sums them, in their order, into a histogram of gradients in
 * shared memory. A second kernel adds the histograms of a row in the order of the slices and
 * updates touched rows.
 *
 * Who owns what: in the first kernel a thread owns a column, so gradients need no atomics; in the
 * second kernel a group of lanes owns a row. A block reads gradients in the order of the bags:
 * within a bag only the first read of the gradient row misses L1.
 * Source: the per-table histograms of torchrec's Triton TBE, here exact in fp32.
 */
#pragma once

#include "kernels/device/entries.cuh"
#include "kernels/device/target.cuh"

enum {
    SMALL_FLOATS = 12288 - 1024, /* 48 KiB of shared memory minus a tile of lookups */
    SMALL_REUSE = 4,             /* lookups per row, at least */
    SLICE_LEAST = 512,           /* lookups: each 8 of them wait for memory once */
    SLICES_MOST = 256,           /* per feature */
    SMALL_BLOCK_MOST = 256,
};

/* Floats of a histogram: the gradients, and a bit for each row that is looked up. */
HOST_DEVICE int64_t small_floats(const struct table_shape *t) {
    return t->rows * t->dim + (t->rows + 31) / 32;
}

HOST_DEVICE bool is_small(const struct table_shape *t) {
    return t->dim <= SMALL_BLOCK_MOST && small_floats(t) <= SMALL_FLOATS &&
           t->lookups >= SMALL_REUSE * t->rows;
}

HOST_DEVICE int64_t slice_length(const struct feature *f) {
    int64_t length = (f->lookups + SLICES_MOST - 1) / SLICES_MOST;
    return length < SLICE_LEAST ? (int64_t)SLICE_LEAST : length;
}

HOST_DEVICE int64_t slices_of(const struct feature *f) {
    return (f->lookups + slice_length(f) - 1) / slice_length(f);
}

struct small {
    struct before *before; /* [num_features] device memory, NULL if no table is small */
    float *histogram;      /* [slices][stride] device memory */
    int64_t slices, stride, lookups;
    int32_t widest;  /* largest dim of the small tables */
    int64_t longest; /* their largest number of rows */
};

static inline void small_lay_out(struct small *x, struct scratch *s, const struct batch *in) {
    *x = {};
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct table_shape *t = &in->tables[in->features[f].table];
        if (!is_small(t)) continue;
        x->slices += slices_of(&in->features[f]);
        x->lookups += in->features[f].lookups;
        if (small_floats(t) > x->stride) x->stride = small_floats(t);
        if (t->dim > x->widest) x->widest = t->dim;
        if (t->rows > x->longest) x->longest = t->rows;
    }
    if (x->slices == 0) return;
    x->before = (struct before *)scratch_take(s, in->num_features, sizeof *x->before);
    x->histogram = (float *)scratch_take(s, x->slices * x->stride, sizeof(float));
}

/* Fills s->before. Enqueues on the stream. */
void small_count(const struct small *s, const struct batch *in, cudaStream_t stream);

/* Sums and updates all small tables. scale: as for lookup_at(). Enqueues on the stream. */
cudaError_t small_run(const struct small *s, const struct batch *in, const float *scale,
                      const struct target *to, cudaStream_t stream);
