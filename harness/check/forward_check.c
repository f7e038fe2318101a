/* SPDX-License-Identifier: MIT */
#include "harness/check/forward_check.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/oracle.h"
#include "kernels/forward.h"
#include "kernels/shape.h"

/* One output row: what it must be. All arrays have the largest dim of the batch's tables. */
struct expected {
    float *plain;           /* of the fp32 loop */
    double *exact, *summed; /* the sum, and the sum of the magnitudes of all summands */
    int32_t *winner;        /* of a max */
    struct row_memory row;  /* of a table */
    float *memory;
};

static void expected_open(struct expected *e, int32_t dim) {
    const size_t n = (size_t)dim;
    e->plain = malloc(n * sizeof *e->plain);
    e->exact = malloc(2 * n * sizeof *e->exact);
    e->winner = malloc(n * sizeof *e->winner);
    e->memory = malloc(TABLE_ARRAYS * (n + RULE_ROW_STATES) * sizeof *e->memory);
    if (!e->plain || !e->exact || !e->winner || !e->memory) abort();
    e->summed = e->exact + n;
    for (int a = 0; a < TABLE_ARRAYS; a++) e->row.array[a] = e->memory + a * (n + RULE_ROW_STATES);
}

static void expected_close(struct expected *e) {
    free(e->plain);
    free(e->exact);
    free(e->winner);
    free(e->memory);
}

/* The largest elements of lookups begin .. end-1 of a feature with POOL_MAX, and the winners. */
static void expect_max(const struct forward_check *c, const struct feature *f, int64_t begin,
                       int64_t end, struct expected *e) {
    const int32_t dim = c->in->tables[f->table].dim;
    for (int32_t d = 0; d < dim; d++) {
        e->plain[d] = 0, e->exact[d] = e->summed[d] = 0;
        e->winner[d] = NO_WINNER;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = batch_id(c->in, i);
        if (row == f->padding_id) continue;
        c->before(c->before_ctx, f->table, row, &e->row);
        for (int32_t d = 0; d < dim; d++) {
            const float x = e->row.weight[d];
            if (e->winner[d] != NO_WINNER && !(x > e->plain[d])) continue;
            e->plain[d] = x, e->exact[d] = x;
            e->winner[d] = (int32_t)(i - begin);
        }
    }
}

/* The output of lookups begin .. end-1 of a feature. Returns the number of summands. */
static int64_t expect(const struct forward_check *c, const struct feature *f, int64_t begin,
                      int64_t end, struct expected *e) {
    const struct batch *in = c->in;
    const int32_t dim = in->tables[f->table].dim;
    int64_t summands = 0;
    if (f->pooling == POOL_MAX) return expect_max(c, f, begin, end, e), 0;
    for (int32_t d = 0; d < dim; d++) e->plain[d] = 0, e->exact[d] = e->summed[d] = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = batch_id(in, i);
        if (row == f->padding_id && f->pooling != POOL_NONE) continue;
        const float weight = in->lookup_weights ? in->lookup_weights[i] : 1;
        summands++;
        c->before(c->before_ctx, f->table, row, &e->row);
        for (int32_t d = 0; d < dim; d++) {
            const double term = (double)weight * (double)e->row.weight[d];
            e->plain[d] += weight * e->row.weight[d];
            e->exact[d] += term;
            e->summed[d] += fabs(term);
        }
    }
    if (f->pooling != POOL_MEAN || summands == 0) return summands;
    for (int32_t d = 0; d < dim; d++) {
        e->plain[d] /= (float)summands;
        e->exact[d] /= (double)summands;
        e->summed[d] /= (double)summands;
    }
    return summands;
}

/* Column d of the output `got`; true if right. want: the rounded result of the fp32 loop. */
static bool judge(const struct forward_check *c, const struct expected *e, int64_t summands,
                  int32_t d, float got, float want, struct check_result *r) {
    const double bound = (double)(summands + 2) * (0.5 * FLT_EPSILON) * e->summed[d] +
                         (double)(summands + 2) * ldexp(1, -150) +
                         oracle_rounding(c->in->grad_type, ROUND_NEAREST, fabs(e->exact[d]));
    const bool both_nan = isnan(got) && isnan(want);
    if (memcmp(&got, &want, sizeof got) != 0 && !both_nan && !c->in_parts) return false;
    if (!isfinite(got) || !isfinite(e->exact[d])) return true;
    const double off = fabs((double)got - e->exact[d]) / bound;
    if (off > r->worst) r->worst = off;
    return off <= 1;
}

static void judge_row(const struct forward_check *c, int32_t feature, int64_t row, int64_t begin,
                      int64_t end, struct expected *e, struct check_result *r) {
    const struct feature *f = &c->in->features[feature];
    const enum dtype type = c->in->grad_type;
    const int64_t summands = expect(c, f, begin, end, e);
    int32_t *winners;
    forward_lay_out(c->in, (void *)c->output, &winners);
    for (int32_t d = 0; d < c->in->tables[f->table].dim; d++) {
        const int64_t at = forward_row(f, row) + d;
        const float got = oracle_element(type, c->output, at),
                    want = oracle_narrow(type, ROUND_NEAREST, 0, e->plain[d]);
        const bool wins = f->pooling != POOL_MAX || winners[at] == e->winner[d];
        if (judge(c, e, summands, d, got, want, r) && wins) continue;
        if (r->wrong++ > 0) return;
        snprintf(r->message, sizeof r->message,
                 "feature %" PRId32 " output row %" PRId64 " (%" PRId64 " lookups) [%" PRId32
                 "]: got %.9g, expected %.9g",
                 feature, row, end - begin, d, (double)got, (double)want);
        if (!wins)
            text_add(r->message, sizeof r->message, "; got winner %" PRId32 ", expected %" PRId32,
                     winners[at], e->winner[d]);
        return;
    }
}

/* The first byte from `at` to `end` that lost its bits, or -1. */
static int64_t changed(const struct forward_check *c, size_t at, size_t end) {
    for (; at < end; at++)
        if (((const unsigned char *)c->output)[at] != (unsigned char)c->filled) return (int64_t)at;
    return -1;
}

/* The same for an array of the output, from byte `at` on, without its rows. of_max: only features with
 * POOL_MAX have rows in it. */
static int64_t changed_between(const struct forward_check *c, size_t at, size_t element,
                               bool of_max) {
    const struct batch *in = c->in;
    const size_t elements = (size_t)in->grad_elements;
    bool *of_a_row = calloc(elements + 1, sizeof *of_a_row);
    if (!of_a_row) abort();
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        if (of_max && x->pooling != POOL_MAX) continue;
        const int64_t rows = x->pooling == POOL_NONE ? x->lookups : in->bags;
        for (int64_t r = 0; r < rows; r++)
            memset(of_a_row + forward_row(x, r), true, (size_t)in->tables[x->table].dim);
    }
    int64_t first = -1;
    for (size_t i = 0; i < elements && first < 0; i++)
        if (!of_a_row[i]) first = changed(c, at + i * element, at + (i + 1) * element);
    free(of_a_row);
    return first;
}

/* The first byte that belongs to no row and lost its bits, or -1. */
static int64_t changed_outside(const struct forward_check *c) {
    const size_t type = (size_t)dtype_bytes(c->in->grad_type),
                 elements = (size_t)c->in->grad_elements;
    size_t end = elements * type;
    int32_t *winners;
    forward_lay_out(c->in, (void *)c->output, &winners);
    int64_t at = changed_between(c, 0, type, false);
    if (at < 0 && winners) {
        const size_t first = (size_t)((const char *)winners - (const char *)c->output);
        at = changed(c, end, first);
        end = first + elements * sizeof *winners;
        if (at < 0) at = changed_between(c, first, sizeof *winners, true);
    }
    return at < 0 ? changed(c, end, c->bytes) : at;
}

struct check_result forward_check_run(const struct forward_check *c) {
    const struct batch *in = c->in;
    struct check_result all = {0};
#pragma omp parallel if (in->lookups > 4096)
    {
        struct check_result mine = {0};
        struct expected e;
        expected_open(&e, widest(in));
        for (int32_t f = 0; f < in->num_features; f++) {
            const bool each = in->features[f].pooling == POOL_NONE;
            const int64_t *offsets = in->offsets + f * in->bags;
            const int64_t rows = each ? offsets[in->bags] - offsets[0] : in->bags;
#pragma omp for schedule(dynamic, 64) nowait
            for (int64_t r = 0; r < rows; r++)
                judge_row(c, f, r, each ? offsets[0] + r : offsets[r],
                          each ? offsets[0] + r + 1 : offsets[r + 1], &e, &mine);
        }
        expected_close(&e);
#pragma omp critical(forward_result)
        {
            if (mine.wrong && !all.wrong) memcpy(all.message, mine.message, sizeof all.message);
            all.wrong += mine.wrong;
            if (mine.worst > all.worst) all.worst = mine.worst;
        }
    }
    const int64_t outside = all.wrong ? -1 : changed_outside(c);
    if (outside >= 0)
        snprintf(all.message, sizeof all.message,
                 "wrote byte %" PRId64 " of the output, which belongs to no output row", outside);
    all.ok = all.wrong == 0 && outside < 0;
    return all;
}
