/* SPDX-License-Identifier: MIT */
#include "harness/workload/batch_fill.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/row_index.h"
#include "harness/workload/winners.h"
#include "kernels/shape.h"

int workload_begin(struct workload *w, enum id_type id_type, struct error *err) {
    w->tables = calloc((size_t)w->ring * (size_t)w->num_tables, sizeof *w->tables);
    w->features = calloc((size_t)w->ring * (size_t)w->num_features, sizeof *w->features);
    w->batches = calloc((size_t)w->ring, sizeof *w->batches);
    if (!w->tables || !w->features || !w->batches) return fail(err, "%s: out of memory", w->name);
    for (int k = 0; k < w->ring; k++)
        w->batches[k] = (struct batch){
            .num_tables = w->num_tables,
            .num_features = w->num_features,
            .tables = w->tables + (int64_t)k * w->num_tables,
            .features = w->features + (int64_t)k * w->num_features,
            .id_type = id_type,
            .grad_type = w->grad_type,
        };
    return 0;
}

/* Batch k has the tables and features of batch 0, and gradient rows as batch_lay_out() says. */
static void lay_out_features(struct workload *w, int k) {
    struct batch *batch = &w->batches[k];
    struct table_shape *tables = w->tables + (int64_t)k * w->num_tables;
    struct feature *features = w->features + (int64_t)k * w->num_features;
    memmove(tables, w->tables, (size_t)w->num_tables * sizeof *tables);
    memmove(features, w->features, (size_t)w->num_features * sizeof *features);
    batch_count(batch, features);
    batch_lay_out_rows(tables, features, w->num_features);
    batch_derive_counted(batch, tables, features);
}

void *batch_lay_out(struct workload *w, int k, int64_t *offsets, struct error *err) {
    struct batch *batch = &w->batches[k];
    batch->offsets = offsets;
    lay_out_features(w, k);
    bool narrow = batch->id_type == ID_INT32;
    if (narrow && batch->lookups > INT32_MAX) {
        fail(err, "%s: %lld lookups with int32 ids; take int64 or a smaller batch", w->name,
             (long long)batch->lookups);
        return NULL;
    }
    void *ids = array_alloc(batch->lookups, narrow ? sizeof(int32_t) : sizeof(int64_t));
    if (!ids) fail(err, "%s: out of memory for %lld ids", w->name, (long long)batch->lookups);
    batch->ids = ids;
    return ids;
}

/* Whole numbers -4 .. 4 times 2^-6. */
static float exact_grad(uint32_t z) {
    return (float)((int32_t)((z >> 16) * 9 >> 16) - 4) * 0x1p-6f;
}

/* Uniform in [-1, 1), a multiple of 2^-23. */
static float real_grad(uint32_t z) {
    return (float)(z >> 8) * 0x1p-23f - 1.0f;
}

static void fill_grad(enum dtype type, void *grad, int64_t rows, int64_t columns, uint64_t key,
                      enum grad_mode mode) {
#pragma omp parallel for if (rows * columns >= PARALLEL_FROM)
    for (int64_t r = 0; r < rows; r++) {
        uint32_t row_key = (uint32_t)rng_u64(key, (uint64_t)r);
        void *row = (char *)grad + r * columns * dtype_bytes(type);
        for (int64_t c = 0; c < columns; c++) {
            uint32_t z = rng_u32(row_key, (uint32_t)c);
            dtype_set(type, row, c, mode == GRAD_EXACT ? exact_grad(z) : real_grad(z));
        }
    }
}

/* 0.5, 1 or 2 beside exact gradients, uniform in [0.25, 1.25) beside real ones. */
static float lookup_weight(uint32_t z, enum grad_mode mode) {
    if (mode == GRAD_REAL) return 0.25f + (float)(z >> 9) * 0x1p-23f;
    return 0.5f * (float)(1u << (z >> 16) * 3 / 65536);
}

/* A random weight for each lookup, or 1. */
static void fill_weights(const struct workload *w, int k, enum grad_mode mode, float *weights) {
    const struct batch *batch = &w->batches[k];
    for (int f = 0; f < batch->num_features; f++) {
        uint32_t key = (uint32_t)stream_key(w->seed, STREAM_WEIGHT, workload_origin(w, f), k);
        float *at = weights + batch->features[f].first_lookup;
        int64_t lookups = batch->features[f].lookups;
#pragma omp parallel for if (lookups >= PARALLEL_FROM)
        for (int64_t i = 0; i < lookups; i++)
            at[i] = w->weighted ? lookup_weight(rng_u32(key, (uint32_t)i), mode) : 1;
    }
}

/* Divides each weight by the lookups of its row: the row's sum of gradients becomes their mean. */
static void divide_by_duplicates(const struct batch *in, float *weights) {
    struct row_index x = row_index_build(in);
    for (int64_t u = 0; u < x.rows; u++) {
        const float count = (float)(x.run[u + 1].first - x.run[u].first);
        for (int64_t k = x.run[u].first; k < x.run[u + 1].first; k++)
            weights[x.lookup[k].lookup] /= count;
    }
    row_index_free(&x);
}

int batch_fill(struct workload *w, int k, enum grad_mode mode, struct error *err) {
    struct batch *batch = &w->batches[k];
    if (batch->lookups == 0)
        return fail(err,
                    "%s: batch %d has no lookups, so there is nothing to measure; take longer bags "
                    "or more of them",
                    w->name, k);
    const enum dtype type = batch->grad_type;
    char *grad = array_alloc(batch->grad_elements, (size_t)dtype_bytes(type));
    const bool weighted = w->weighted || w->mean_of_duplicates;
    float *weights = weighted ? array_alloc(batch->lookups, sizeof *weights) : NULL;
    batch->grad = grad;
    batch->lookup_weights = weights;
    if (!grad || (weighted && !weights))
        return fail(err, "%s: out of memory for %lld elements of gradient", w->name,
                    (long long)batch->grad_elements);

    const struct feature *first = &batch->features[0];
    if (first->grad_stride > batch->tables[first->table].dim) /* columns of one matrix */
        fill_grad(type, grad, first->bags, first->grad_stride,
                  stream_key(w->seed, STREAM_GRAD, 0, k), mode);
    else
        for (int f = 0; f < batch->num_features; f++) {
            const struct feature *x = &batch->features[f];
            fill_grad(type, grad + x->grad_offset * dtype_bytes(type), feature_rows(x),
                      x->grad_stride, stream_key(w->seed, STREAM_GRAD, f, k), mode);
        }
    if (weighted) fill_weights(w, k, mode, weights);
    if (w->mean_of_duplicates) divide_by_duplicates(batch, weights);
    return first->pooling == POOL_MAX ? winners_draw(w, k, err) : 0;
}
