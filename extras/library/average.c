/* SPDX-License-Identifier: MIT
 *
 * Both kinds of average move towards the weight: average += c * (weight - average). k snapshots of one
 * weight after n others give c = k/(n + k) for SWA, and c = 1 - decay^k for EMA. It is computed in double
 * and rounded once.
 *
 * A lazy row belongs to the thread that raises its counter, so a row that a batch looks up repeatedly is
 * read once, and the number of threads does not change the result.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/workload/batch_fill.h"
#include "harness/workload/tables.h"
#include "kernels/rules.h"
#include "extras/library/model.h"

/* --- one row */

struct rows {
    const struct embfuse_average *average;
    const struct array *weight;
    enum dtype type;
    int32_t dim;
    int64_t stride;
};

static struct rows rows_of(const struct embfuse_model *m, const struct embfuse_average *a) {
    const struct table_shape *t = &m->shapes[a->table];
    return (struct rows){a, &m->tables[a->table].weight, t->weight_type, t->dim,
                         a->stride ? a->stride : t->dim * (int64_t)sizeof(float)};
}

HOST_DEVICE void move_as(enum dtype type, float *average, const void *weight, int32_t dim,
                         double c) {
    for (int32_t d = 0; d < dim; d++) {
        const double old = (double)average[d];
        average[d] = (float)(old + c * ((double)dtype_get(type, weight, d) - old));
    }
}

/* The average of a row that has `have` snapshots gets its weight as all others up to `want`. */
static void row_enter(const struct rows *x, int64_t row, int64_t have, int64_t want) {
    float *average = (float *)((char *)x->average->data + row * x->stride);
    const void *weight = array_row(x->weight, row);
    const double k = (double)(want - have);
    const double c =
        x->average->kind == EMBFUSE_SWA ? k / (double)want : 1 - pow(x->average->decay, k);
    if (have <= 0) {
        for (int32_t d = 0; d < x->dim; d++) average[d] = dtype_get(x->type, weight, d);
        return;
    }
    switch (x->type) { /* a constant type, so that the loop is vectorized */
    case FP32: move_as(FP32, average, weight, x->dim, c); break;
    case BF16: move_as(BF16, average, weight, x->dim, c); break;
    case FP16: move_as(FP16, average, weight, x->dim, c); break;
    default: move_as(FP8, average, weight, x->dim, c); break;
    }
}

static void row_catch_up(const struct rows *x, int64_t row) {
    int64_t *has = &x->average->row_updates[row];
    const int64_t want = x->average->updates;
    if (__atomic_load_n(has, __ATOMIC_RELAXED) >= want) return;
    const int64_t have = __atomic_exchange_n(has, want, __ATOMIC_RELAXED);
    if (have < want) row_enter(x, row, have, want);
}

/* --- is a call right? */

static int check_one(const struct embfuse_model *m, const struct embfuse_average *a, int32_t i,
                     struct embfuse_error *why) {
    const char *bad = NULL;
    if (a->size != sizeof *a)
        bad = "size is not sizeof(struct embfuse_average)";
    else if (a->table < 0 || a->table >= m->num_tables)
        bad = "the model has no such table";
    else if (a->kind != EMBFUSE_SWA && a->kind != EMBFUSE_EMA)
        bad = "kind is EMBFUSE_SWA or EMBFUSE_EMA";
    else if (a->kind == EMBFUSE_EMA && !(a->decay >= 0 && a->decay < 1))
        bad = "decay is at least 0 and less than 1";
    else if (!a->data || (uintptr_t)a->data % sizeof(float) || a->stride % (int64_t)sizeof(float))
        bad = "data and stride are multiples of 4 bytes, and data is not NULL";
    else if (a->stride && a->stride < m->shapes[a->table].dim * (int64_t)sizeof(float))
        bad = "rows overlap: the stride is less than a row";
    else if ((uintptr_t)a->row_updates % sizeof *a->row_updates)
        bad = "row_updates is a multiple of 8 bytes";
    else if (a->updates < 0 || a->updates == INT64_MAX)
        bad = "updates is below 0, or too large";
    else if (!m->tables[a->table].weight.data)
        bad = "the weights of its table are not bound";
    else if (a->row_updates && a->updates && m->steps[a->table].number > a->covered)
        bad = "a step was taken without embfuse_average_before_step(); begin anew with updates and "
              "all row_updates of 0";
    return bad ? said(why, EMBFUSE_INVALID, "average %d: %s", i, bad) : 0;
}

/* Rows in memory. Between those of one array others may lie that are as far apart. */
struct memory {
    uintptr_t at;
    uint64_t stride, bytes; /* of a row */
    uint64_t span;          /* of all rows */
    int32_t average;        /* whose number it is; -1: an array of the model */
};

static struct memory memory_of(int32_t average, const void *at, int64_t rows, int64_t stride,
                               int64_t bytes) {
    const uint64_t span = (uint64_t)(rows - 1) * (uint64_t)stride + (uint64_t)bytes;
    return (struct memory){(uintptr_t)at, (uint64_t)stride, (uint64_t)bytes, span, average};
}

static int by_address(const void *a, const void *b) {
    const struct memory *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* y begins within the span of x, or behind it. */
static bool overlap(const struct memory *x, const struct memory *y) {
    const uint64_t ahead = y->at - x->at, between = ahead % x->stride;
    if (ahead >= x->span) return false;
    return x->stride != y->stride || between < x->bytes || between + y->bytes > x->stride;
}

/* All memory of the averages and of the model. Returns the number of entries. */
static size_t list_memory(const struct embfuse_model *m, const struct embfuse_average *averages,
                          int32_t count, struct memory *out) {
    const struct memory *begin = out;
    for (int32_t i = 0; i < count; i++) {
        const struct rows x = rows_of(m, &averages[i]);
        const int64_t rows = m->shapes[averages[i].table].rows;
        *out++ = memory_of(i, averages[i].data, rows, x.stride, x.dim * (int64_t)sizeof(float));
        if (averages[i].row_updates) *out++ = memory_of(i, averages[i].row_updates, rows, 8, 8);
    }
    for (int32_t t = 0; t < m->num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const struct table_shape *shape = &m->shapes[t];
            const struct array *x = &m->tables[t].array[a];
            const int64_t bytes =
                table_array_width(shape, a) * dtype_bytes(table_array_type(shape, a));
            if (x->data) *out++ = memory_of(-1, x->data, shape->rows, x->stride, bytes);
        }
    return (size_t)(out - begin);
}

static int check_memory(const struct embfuse_model *m, const struct embfuse_average *averages,
                        int32_t count, struct embfuse_error *why) {
    struct memory *all =
        malloc(((size_t)count * 2 + (size_t)m->num_tables * TABLE_ARRAYS) * sizeof *all);
    if (!all) return said(why, EMBFUSE_NO_MEMORY, "out of memory");
    const size_t entries = list_memory(m, averages, count, all);
    int status = 0;
    qsort(all, entries, sizeof *all, by_address);
    for (size_t i = 0; i < entries; i++)
        for (size_t k = i + 1; k < entries && all[k].at - all[i].at < all[i].span; k++) {
            const int32_t x = all[i].average, y = all[k].average;
            const int32_t low = x < y ? x : y, high = x < y ? y : x;
            if (status || high < 0 || !overlap(&all[i], &all[k])) continue;
            char other[40] = "an array of the model";
            if (low >= 0) snprintf(other, sizeof other, "those of average %d", low);
            status = said(why, EMBFUSE_INVALID, "average %d: data or row_updates overlap %s", high,
                          other);
        }
    free(all);
    return status;
}

static int check_all(const struct embfuse_model *m, const struct embfuse_average *averages,
                     int32_t count, struct embfuse_error *why) {
    int status = 0;
    if (!averages || count < 0)
        return said(why, EMBFUSE_INVALID, "averages are NULL, or count is below 0");
    if (m->place == ON_DEVICE)
        return said(why, EMBFUSE_INVALID, "averages are of weights on the host");
    for (int32_t i = 0; status == 0 && i < count; i++) status = check_one(m, &averages[i], i, why);
    if (status == 0) status = check_memory(m, averages, count, why);
    return status ? status : has_threads(m->threads, why);
}

/* A lazy average needs a step that changes only rows of the batch. */
static int check_kernel(const struct embfuse_model *m, const struct embfuse_average *averages,
                        int32_t count, struct embfuse_error *why) {
    for (int32_t i = 0; m->step && i < count; i++)
        if (averages[i].row_updates && m->step->traits & DENSE_STEP &&
            !rule_keeps_idle(&m->rules[averages[i].table]))
            return said(why, EMBFUSE_REFUSED,
                        "average %d: %s changes all rows of table %d; take row_updates of NULL", i,
                        m->step->name, averages[i].table);
    return 0;
}

/* --- calls */

/* Rows that the batch looks up in the average's table. */
static void catch_up_batch(const struct embfuse_model *m, const struct embfuse_average *a,
                           const struct batch *in) {
    const struct rows x = rows_of(m, a);
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *feature = &in->features[f];
        const int64_t begin = feature->first_lookup, end = begin + feature->lookups;
        if (feature->table != a->table) continue;
#pragma omp parallel for num_threads(m->threads) if ((end - begin) * x.dim > PARALLEL_FROM)
        for (int64_t i = begin; i < end; i++) row_catch_up(&x, batch_id(in, i));
    }
}

int embfuse_average_before_step(struct embfuse_model *m, struct embfuse_average *averages,
                                int32_t count, const struct embfuse_batch *batch,
                                struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    int status = check_all(m, averages, count, why);
    if (status == 0) status = check_kernel(m, averages, count, why);
    if (status == 0) status = batch_of(m, batch, &in, why);
    for (int32_t i = 0; status == 0 && i < count; i++) {
        struct embfuse_average *a = &averages[i];
        if (a->row_updates && a->updates) catch_up_batch(m, a, &in);
        a->covered = m->steps[a->table].number + 1;
    }
    return status;
}

int embfuse_average_update(struct embfuse_model *m, struct embfuse_average *averages, int32_t count,
                           struct embfuse_error *why) {
    IN_CALL(m, why);
    const int status = check_all(m, averages, count, why);
    for (int32_t i = 0; status == 0 && i < count; i++) {
        struct embfuse_average *a = &averages[i];
        const struct rows x = rows_of(m, a);
        const int64_t rows = a->row_updates ? 0 : m->shapes[a->table].rows;
        a->covered = m->steps[a->table].number;
        a->updates++;
#pragma omp parallel for num_threads(m->threads) if (rows * x.dim > PARALLEL_FROM)
        for (int64_t row = 0; row < rows; row++) row_enter(&x, row, a->updates - 1, a->updates);
    }
    return status;
}

int embfuse_average_finish(struct embfuse_model *m, const struct embfuse_average *averages,
                           int32_t count, struct embfuse_error *why) {
    IN_CALL(m, why);
    const int status = check_all(m, averages, count, why);
    for (int32_t i = 0; status == 0 && i < count; i++) {
        const struct rows x = rows_of(m, &averages[i]);
        const int64_t rows = averages[i].row_updates ? m->shapes[averages[i].table].rows : 0;
#pragma omp parallel for num_threads(m->threads) if (rows * x.dim > PARALLEL_FROM)
        for (int64_t row = 0; row < rows; row++) row_catch_up(&x, row);
    }
    return status;
}
