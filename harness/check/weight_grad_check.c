/* SPDX-License-Identifier: MIT */
#include "harness/check/weight_grad_check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/num.h"
#include "kernels/adjust.h"
#include "kernels/shape.h"

/* What an element must be. */
struct expected {
    float plain; /* of the fp32 loop */
    struct num exact;
};

/* Memory for the row of a lookup: all arrays have the largest dim of the batch's tables. */
struct row_copy {
    struct row_memory row;
    float *memory;
};

static void row_copy_open(struct row_copy *x, int32_t dim) {
    const size_t n = (size_t)dim + RULE_ROW_STATES;
    x->memory = malloc(TABLE_ARRAYS * n * sizeof *x->memory);
    if (!x->memory) abort();
    for (int a = 0; a < TABLE_ARRAYS; a++) x->row.array[a] = x->memory + a * n;
}

/* Lookups of a bag that are not padding. */
static int64_t bag_count(const struct batch *in, const struct feature *f, int64_t q) {
    int64_t count = 0;
    for (int64_t j = in->offsets[q]; j < in->offsets[q + 1]; j++)
        count += batch_id(in, j) != f->padding_id;
    return count;
}

/* Lookup i of flat bag q. */
static struct expected expect(const struct weight_grad_check *c, int64_t q, int64_t i,
                              const struct row_copy *x) {
    const struct batch *in = c->in;
    const int64_t first = q / in->bags * in->bags, row = batch_id(in, i);
    const struct feature *f = &in->features[q / in->bags];
    const int64_t grad_row = f->pooling == POOL_NONE ? i - in->offsets[first] : q - first;
    const int32_t dim = in->tables[f->table].dim;
    if (row == f->padding_id && f->pooling != POOL_NONE) return (struct expected){0, exactly(0)};
    float lane[ROW_LANES] = {0};
    struct total total = {0, 0, 0};
    c->before(c->before_ctx, f->table, row, &x->row);
    for (int32_t d = 0; d < dim; d++) {
        const float w = x->row.weight[d],
                    g = oracle_element(in->grad_type, in->grad,
                                       f->grad_offset + grad_row * f->grad_stride + d);
        lane[d % ROW_LANES] += g * w;
        total_add(&total, mul(exactly(g), exactly(w)));
    }
    struct expected e = {lanes_fold(lane), total_of(&total, dim)};
    if (f->pooling != POOL_MEAN) return e;
    const int64_t count = bag_count(in, f, q);
    e.plain *= 1.0f / (float)count;
    e.exact = mul(e.exact, rounded(1.0 / (double)count, 0));
    return e;
}

/* Whether an element is right. */
static bool judge(const struct expected *e, float got, struct check_result *r) {
    const bool both_nan = isnan(got) && isnan(e->plain);
    if (float_bits(got) != float_bits(e->plain) && !both_nan) return false;
    if (!isfinite(got) || !isfinite(e->exact.error)) return true;
    const double off = fabs((double)got - e->exact.value), bound = e->exact.error;
    if (bound > 0 && off / bound > r->worst) r->worst = off / bound;
    return off <= bound;
}

static void judge_bag(const struct weight_grad_check *c, int64_t q, const struct row_copy *x,
                      struct check_result *r) {
    for (int64_t i = c->in->offsets[q]; i < c->in->offsets[q + 1]; i++) {
        const struct expected e = expect(c, q, i, x);
        if (judge(&e, c->output[i], r)) continue;
        if (r->wrong++ == 0)
            snprintf(r->message, sizeof r->message,
                     "gradient of the weight of lookup %" PRId64 " (feature %" PRId64
                     ", bag %" PRId64 ", row %" PRId64 "): got %.9g, expected %.9g",
                     i, q / c->in->bags, q % c->in->bags, batch_id(c->in, i), (double)c->output[i],
                     (double)e.plain);
    }
}

/* The first byte behind the elements that lost its bits, or -1. */
static int64_t changed_behind(const struct weight_grad_check *c) {
    for (size_t b = (size_t)c->in->lookups * sizeof *c->output; b < c->bytes; b++)
        if (((const unsigned char *)c->output)[b] != (unsigned char)c->filled) return (int64_t)b;
    return -1;
}

struct check_result weight_grad_check_run(const struct weight_grad_check *c) {
    const struct batch *in = c->in;
    struct check_result all = {0};
#pragma omp parallel if (in->lookups > 4096)
    {
        struct check_result mine = {0};
        struct row_copy x;
        row_copy_open(&x, widest(in));
#pragma omp for schedule(dynamic, 64)
        for (int64_t q = 0; q < in->num_features * in->bags; q++) judge_bag(c, q, &x, &mine);
        free(x.memory);
#pragma omp critical(weight_grad_result)
        {
            if (mine.wrong && !all.wrong) memcpy(all.message, mine.message, sizeof all.message);
            all.wrong += mine.wrong;
            if (mine.worst > all.worst) all.worst = mine.worst;
        }
    }
    const int64_t behind = all.wrong ? -1 : changed_behind(c);
    if (behind >= 0)
        snprintf(all.message, sizeof all.message,
                 "wrote byte %" PRId64
                 " of the gradient of the weights, which belongs to no lookup",
                 behind);
    all.ok = all.wrong == 0 && behind < 0;
    return all;
}
