/* SPDX-License-Identifier: MIT */
#include "ranks/columns.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/tables.h"

void columns_open(struct columns *c, const struct sharding *s, struct transport *t,
                  const struct table_shape *shapes, int threads) {
    *c = (struct columns){.sharding = s,
                          .transport = t,
                          .shapes = shapes,
                          .threads = threads,
                          .parts = parts_make(t->ranks)};
}

void columns_close(struct columns *c) {
    parts_free(&c->parts);
    free(c->sums.data);
    free(c->send.data);
    free(c->receive.data);
    *c = (struct columns){0};
}

/* A shard in a step. */
struct columns_of {
    const struct shard *shard;
    const struct table_shape *shape; /* of the shard */
    const struct rule_step *step;
    const struct table *table;
    struct sparse_gradient gradient;
    int32_t dim;                    /* of a whole row */
    int lanes;                      /* of this rank */
    struct pair *sum[COLUMNS_SUMS]; /* [rows] this rank's numbers, then those of whole rows */
};

static int64_t rows_of(const struct columns_of *x) {
    return *x->gradient.count;
}

/* --- a row */

/* Code that all rules share stays outside of their functions. */
#define SHARED_CODE __attribute__((noinline)) static

static struct row_memory open_copy(const struct table_shape *shape) {
    struct row_memory copy;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const size_t width = (size_t)table_array_width(shape, a);
        copy.array[a] = width ? must_have(malloc(width * sizeof(float))) : NULL;
    }
    return copy;
}

static void free_copy(struct row_memory *copy) {
    for (int a = 0; a < TABLE_ARRAYS; a++) free(copy->array[a]);
}

SHARED_CODE void load(const struct columns_of *x, int64_t row, const struct row_memory *to) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(x->shape, a);
        const enum dtype type = table_array_type(x->shape, a);
        if (width == 0) continue;
        const void *from = array_row(&x->table->array[a], row);
        if (type == FP32)
            memcpy(to->array[a], from, (size_t)width * sizeof(float));
        else
            for (int64_t d = 0; d < width; d++) to->array[a][d] = dtype_get(type, from, d);
    }
}

SHARED_CODE void store(const struct columns_of *x, int64_t row, const struct row_memory *from) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(x->shape, a);
        const struct row_format f = row_format(x->shape, x->step->number, a, row);
        if (width == 0) continue;
        void *to = array_row(&x->table->array[a], row);
        if (f.type == FP32) {
            memcpy(to, from->array[a], (size_t)width * sizeof(float));
            continue;
        }
        for (int64_t d = 0; d < width; d++) {
            const int64_t column = x->shard->column + d * (1 + x->shard->column_skip);
            dtype_put(f.type, to, d, row_format_bits(&f, column, from->array[a][d]));
        }
    }
}

/* Returns this rank's part of the sum of squares. */
SHARED_CODE float clip_values(const struct columns_of *x, float *g) {
    const struct adjustment *a = &x->step->adjust;
    return a->gradient ? adjust_values(a, x->lanes, x->shape->dim, g) : 0;
}

SHARED_CODE void adjust(const struct columns_of *x, float squares, const float *w, float *g) {
    const struct adjustment *a = &x->step->adjust;
    if (a->gradient) adjust_whole(a, squares, FP32, w, x->shape->dim, g);
}

/* Row u in a phase. Returns this rank's part of the phase's sums. kind: a constant, so that only its rule's code is
 * there. */
static inline struct pair step_row(const enum rule_kind kind, const struct columns_of *x,
                                   enum columns_phase phase, int64_t u,
                                   const struct row_memory *copy) {
    struct rule_step own = *x->step;
    const struct rule_step *r = &own;
    own.rule.kind = kind;
    const int32_t dim = x->shape->dim;
    const int64_t row = x->gradient.rows[u];
    float *g = x->gradient.values + u * dim;
    struct pair rate = {0, 0};
    if (phase == COLUMNS_CLIP) return (struct pair){clip_values(x, g), 0};
    load(x, row, copy);
    if (phase == COLUMNS_BEFORE) {
        adjust(x, x->sum[COLUMNS_CLIP][u].a, copy->weight, g);
        return row_memory_sums(r, false, rate, copy, x->lanes, dim, g);
    }
    rate = rule_row(kind, r, x->sum[COLUMNS_BEFORE][u], x->dim, copy->row);
    row_memory_step(r, rate, copy, dim, g);
    if (phase == COLUMNS_AFTER) return row_memory_sums(r, true, rate, copy, x->lanes, dim, g);
    if (rule_sums_after(kind)) {
        const float scale = rule_scale(kind, r, rate, x->sum[COLUMNS_AFTER][u], x->dim);
        row_memory_weights(r, rate, scale, copy, dim, g);
    }
    store(x, row, copy);
    return rate;
}

/* The same for one rule each. */
typedef struct pair row_function(const struct columns_of *x, enum columns_phase phase, int64_t u,
                                 const struct row_memory *copy);

#define X(rule, ...)                                                                               \
    __attribute__((flatten)) static struct pair step_##rule(const struct columns_of *x,            \
                                                            enum columns_phase phase, int64_t u,   \
                                                            const struct row_memory *copy) {       \
        return step_row(RULE_##rule, x, phase, u, copy);                                           \
    }
RULES(X)
#undef X

static row_function *const row_functions[] = {
#define X(rule, ...) step_##rule,
    RULES(X)
#undef X
};

/* --- all rows of a shard */

static bool has_phase(const struct columns_of *x, enum columns_phase phase) {
    return phase == COLUMNS_STORE || columns_numbers(x->shape, phase) ||
           (phase == COLUMNS_BEFORE && x->shape->adjusts);
}

static void step_rows(const struct columns *c, const struct columns_of *x,
                      enum columns_phase phase) {
    row_function *step = row_functions[x->shape->rule];
    if (!has_phase(x, phase)) return;
#pragma omp parallel num_threads(c->threads)
    {
        struct row_memory copy = open_copy(x->shape);
#pragma omp for schedule(static)
        for (int64_t u = 0; u < rows_of(x); u++) {
            const struct pair part = step(x, phase, u, &copy);
            if (phase < COLUMNS_SUMS) x->sum[phase][u] = part;
        }
        free_copy(&copy);
    }
}

/* --- sums of whole rows */

static bool has_columns(const struct columns *c, const struct columns_of *x, int rank) {
    return c->sharding->part[(int64_t)x->shard->table * c->sharding->ranks + rank] >= 0;
}

/* The numbers of a phase for a rank, or as they come from it: those of the tables that both have, in their order. Not
 * all ranks have tables of few columns. */
static float *pack(const struct columns *c, const struct columns_of *all, int32_t count,
                   enum columns_phase phase, int rank, float *to) {
    for (const struct columns_of *x = all; x < all + count; x++) {
        const int numbers = columns_numbers(x->shape, phase);
        if (!has_columns(c, x, rank)) continue;
        for (int64_t u = 0; numbers && u < rows_of(x); u++) {
            *to++ = x->sum[phase][u].a;
            if (numbers > 1) *to++ = x->sum[phase][u].b;
        }
    }
    return to;
}

/* Folds the numbers of ranks: from[rank], or NULL if it has no column. */
static void fold(const struct columns *c, const struct columns_of *x, int numbers,
                 const float *const *from, struct pair *to) {
    const int lanes = sharding_column_ranks(c->sharding->ranks);
#pragma omp parallel for num_threads(c->threads) schedule(static)
    for (int64_t u = 0; u < rows_of(x); u++) {
        float sum[2] = {0, 0}, lane[ROW_LANES] = {0};
        for (int k = 0; k < numbers; k++) {
            for (int r = 0; r < lanes; r++) lane[r] = from[r] ? from[r][u * numbers + k] : 0;
            sum[k] = lanes_fold(lane, lanes);
        }
        to[u] = (struct pair){sum[0], sum[1]};
    }
}

static int add_ranks(struct columns *c, const struct columns_of *all, int32_t count,
                     enum columns_phase phase, struct error *err) {
    const int ranks = c->sharding->ranks;
    for (int r = 0; r < ranks; r++) {
        c->parts.bytes[r] = 0;
        for (const struct columns_of *x = all; x < all + count; x++)
            if (has_columns(c, x, r))
                c->parts.bytes[r] += (size_t)(rows_of(x) * columns_numbers(x->shape, phase)) * 4;
    }
    const size_t bytes = parts_lay_out(&c->parts, ranks, 1);
    float *send = room_for(&c->send, bytes + 1);
    const float *receive = room_for(&c->receive, bytes + 1), *from[ROW_LANES] = {NULL};
    for (int r = 0; r < ranks; r++) send = pack(c, all, count, phase, r, send);
    transport_phase(c->transport, "exchange of sums over rows");
    c->transport->channel = CHANNEL_SUMS;
    if (transport_exchange(c->transport, c->send.data, &c->parts, c->receive.data, &c->parts, err))
        return -1;
    int64_t taken[ROW_LANES] = {0}; /* numbers */
    for (const struct columns_of *x = all; x < all + count; x++) {
        const int numbers = columns_numbers(x->shape, phase);
        if (!numbers) continue;
        for (int r = 0; r < sharding_column_ranks(ranks); r++) {
            from[r] = has_columns(c, x, r) ? receive + c->parts.at[r] / 4 + taken[r] : NULL;
            if (from[r]) taken[r] += rows_of(x) * numbers;
        }
        fold(c, x, numbers, from, x->sum[phase]);
    }
    return 0;
}

int columns_step(struct columns *c, const struct batch *local, void *gradient,
                 const struct rule_step *steps, const struct table *tables, struct error *err) {
    const struct sharding *s = c->sharding;
    const int32_t count = local->num_tables;
    struct columns_of *all = must_have(calloc((size_t)count + 1, sizeof *all));
    struct sparse_gradient *of = must_have(calloc((size_t)count + 1, sizeof *of));
    gradient_lay_out(local, true, gradient, of);
    size_t rows = 0;
    for (int32_t i = 0; i < count; i++) rows += (size_t)*of[i].count;
    const size_t bytes = COLUMNS_SUMS * rows * sizeof(struct pair);
    struct pair *sum = memset(room_for(&c->sums, bytes + 1), 0, bytes);
    for (int32_t i = 0; i < count; i++) {
        const struct shard *shard = &s->shards[s->first[c->transport->rank] + i];
        all[i] = (struct columns_of){.shard = shard,
                                     .shape = &local->tables[i],
                                     .step = &steps[i],
                                     .table = &tables[i],
                                     .gradient = of[i],
                                     .dim = c->shapes[shard->table].dim,
                                     .lanes = ROW_LANES / sharding_column_ranks(s->ranks)};
        for (int p = 0; p < COLUMNS_SUMS; p++, sum += rows_of(&all[i])) all[i].sum[p] = sum;
    }
    int status = 0;
    for (int p = 0; p <= COLUMNS_STORE && status == 0; p++) {
        for (int32_t i = 0; i < count; i++) step_rows(c, &all[i], (enum columns_phase)p);
        if (p < COLUMNS_SUMS) status = add_ranks(c, all, count, (enum columns_phase)p, err);
    }
    free(all);
    free(of);
    return status;
}
