/* SPDX-License-Identifier: MIT */
#include "harness/check/output_check.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/check/num.h"
#include "harness/memory.h"
#include "kernels/adjust.h"
#include "kernels/forward.h"
#include "kernels/gradient.h"

/* An output, and where its parts lie. */
struct judged {
    const struct check *c;
    const struct output *o;
    int32_t *winners;               /* a forward may have them; otherwise NULL */
    struct sparse_gradient *tables; /* [num_tables], a gradient has them */
    struct row_lookup
        *lookups; /* [index->lookups] by table and position, for an unmerged gradient */
};

/* The right output row or element. All arrays have the largest dim of the batch's tables. */
struct expected {
    struct row_memory row;  /* a row of a table */
    float *plain;           /* the result of the fp32 loop */
    double *exact, *summed; /* the sum, and the sum of the magnitudes of all summands */
    int32_t *winner;        /* for a max */
    struct num *sum;        /* the sum of gradients */
    float *memory;
};

static void expected_open(struct expected *e, int32_t dim) {
    const size_t n = (size_t)dim, width = n + RULE_ROW_STATES;
    e->memory = must_have(malloc((TABLE_ARRAYS * width + n) * sizeof *e->memory));
    e->exact = must_have(malloc(2 * n * sizeof *e->exact));
    e->winner = must_have(malloc(n * sizeof *e->winner));
    e->sum = must_have(malloc(n * sizeof *e->sum));
    e->summed = e->exact + n;
    for (int a = 0; a < TABLE_ARRAYS; a++) e->row.array[a] = e->memory + a * width;
    e->plain = e->memory + TABLE_ARRAYS * width;
}

static void expected_close(struct expected *e) {
    free(e->memory);
    free(e->exact);
    free(e->winner);
    free(e->sum);
}

/* True if an element has the bits of the plain loop, and lies within the bound from the exact value where both are
 * finite. With any_bits the bits may differ. */
static bool is_right(float got, float plain, bool any_bits, double exact, double bound,
                     struct check_result *r) {
    const bool both_nan = isnan(got) && isnan(plain);
    if (float_bits(got) != float_bits(plain) && !both_nan && !any_bits) return false;
    if (!isfinite(got) || !isfinite(exact) || !isfinite(bound)) return true;
    const double off = fabs((double)got - exact);
    if (bound > 0 && off / bound > r->worst) r->worst = off / bound;
    return off <= bound;
}

/* --- forward: a part is a feature, an item an output row */

/* Lookups begin .. end-1 of an output row. */
static void lookups_of_row(const struct batch *in, int32_t f, int64_t row, int64_t *begin,
                           int64_t *end) {
    const struct feature *x = &in->features[f];
    const bool each = x->pooling == POOL_NONE;
    *begin = each ? x->first_lookup + row : in->offsets[x->first_bag + row];
    *end = each ? *begin + 1 : in->offsets[x->first_bag + row + 1];
}

/* The output of lookups begin .. end-1 of a feature. Returns the number of summands, 0 for a max. */
static int64_t expect_row(const struct check *c, const struct feature *f, int64_t begin,
                          int64_t end, struct expected *e) {
    const struct batch *in = c->in;
    const int32_t dim = in->tables[f->table].dim;
    const bool max = f->pooling == POOL_MAX;
    int64_t summands = 0;
    for (int32_t d = 0; d < dim; d++) {
        e->plain[d] = 0, e->exact[d] = e->summed[d] = 0;
        e->winner[d] = NO_WINNER;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = batch_id(in, i);
        if (row == f->padding_id && f->pooling != POOL_NONE) continue;
        const float weight = in->lookup_weights ? in->lookup_weights[i] : 1;
        summands += !max;
        c->before(c->before_ctx, f->table, row, &e->row);
        for (int32_t d = 0; d < dim; d++) {
            const float x = e->row.weight[d];
            const double term = (double)weight * (double)x;
            if (!max) {
                e->plain[d] += weight * x;
                e->exact[d] += term;
                e->summed[d] += fabs(term);
            } else if (e->winner[d] == NO_WINNER || x > e->plain[d]) {
                e->plain[d] = x, e->exact[d] = x;
                e->winner[d] = (int32_t)(i - begin);
            }
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

/* The largest error of column d. */
static double bound_of_sum(enum dtype type, const struct expected *e, int64_t summands, int32_t d) {
    return (double)(summands + 2) * (0.5 * FLT_EPSILON) * e->summed[d] +
           (double)(summands + 2) * ldexp(1, -150) +
           oracle_rounding(type, ROUND_NEAREST, fabs(e->exact[d]));
}

static void judge_row(const struct judged *j, int32_t feature, int64_t row, struct expected *e,
                      struct check_result *r) {
    const struct batch *in = j->c->in;
    const struct feature *f = &in->features[feature];
    int64_t begin, end;
    lookups_of_row(in, feature, row, &begin, &end);
    const int64_t summands = expect_row(j->c, f, begin, end, e);
    for (int32_t d = 0; d < in->tables[f->table].dim; d++) {
        const int64_t at = forward_row(f, row) + d;
        const float got = oracle_element(in->grad_type, j->o->data, at),
                    want = oracle_narrow(in->grad_type, ROUND_NEAREST, 0, e->plain[d]);
        const bool wins = f->pooling != POOL_MAX || j->winners[at] == e->winner[d];
        if (is_right(got, want, j->o->in_parts, e->exact[d],
                     bound_of_sum(in->grad_type, e, summands, d), r) &&
            wins)
            continue;
        if (r->wrong++ > 0) return;
        snprintf(r->message, sizeof r->message,
                 "feature %" PRId32 " output row %" PRId64 " (%" PRId64 " lookups) [%" PRId32
                 "]: got %.9g, expected %.9g",
                 feature, row, end - begin, d, (double)got, (double)want);
        if (!wins)
            text_add(r->message, sizeof r->message, "; got winner %" PRId32 ", expected %" PRId32,
                     j->winners[at], e->winner[d]);
        return;
    }
}

/* --- gradient: a part is a table, an item an entry */

static int by_position(const void *a, const void *b) {
    const int64_t x = ((const struct row_lookup *)a)->lookup,
                  y = ((const struct row_lookup *)b)->lookup;
    return (x > y) - (x < y);
}

/* The first run of table t in the index, and the first lookup of it. */
static int64_t first_run(const struct check *c, int32_t t) {
    return row_index_find(c->index, t, 0);
}

static int64_t first_lookup(const struct check *c, int32_t t) {
    return c->index->run[first_run(c, t)].first;
}

/* The entries that table t must have. */
static int64_t entries_of(const struct judged *j, int32_t t) {
    return j->o->merged ? first_run(j->c, t + 1) - first_run(j->c, t)
                        : first_lookup(j->c, t + 1) - first_lookup(j->c, t);
}

/* An unmerged gradient has the lookups of a table in the order of their positions. */
static void sort_lookups(struct judged *j) {
    const struct row_index *x = j->c->index;
    j->lookups = must_have(malloc((size_t)x->lookups * sizeof *j->lookups + 1));
    if (x->lookups) memcpy(j->lookups, x->lookup, (size_t)x->lookups * sizeof *j->lookups);
    for (int32_t t = 0; t < j->c->in->num_tables; t++)
        qsort(j->lookups + first_lookup(j->c, t), (size_t)entries_of(j, t), sizeof *j->lookups,
              by_position);
}

static void judge_entry(const struct judged *j, int32_t t, int64_t k, struct expected *e,
                        struct check_result *r) {
    const struct check *c = j->c;
    const struct sparse_gradient *g = &j->tables[t];
    const struct row_run *run = j->o->merged ? &c->index->run[first_run(c, t) + k] : NULL;
    const struct row_lookup *lookups =
        run ? &c->index->lookup[run->first] : &j->lookups[first_lookup(c, t) + k];
    const int64_t hits = run ? run[1].first - run->first : 1;
    const int32_t dim = c->in->tables[t].dim;
    char text[sizeof r->message] = "";
    bool none = false;
    if (g->rows[k] != lookups->row)
        snprintf(text, sizeof text,
                 "table %" PRId32 " entry %" PRId64 ": got row %" PRId64 ", expected row %" PRId64,
                 t, k, g->rows[k], lookups->row);
    oracle_sum(c->in, lookups, hits, c->exact, dim, e->sum);
    oracle_cancel(c->in, lookups, hits, dim, e->sum);
    for (int32_t d = 0; d < dim && !text[0]; d++) {
        const float got = g->values[k * dim + d], exact = (float)e->sum[d].value;
        const double off = fabs((double)got - e->sum[d].value), bound = e->sum[d].error;
        if (!isfinite(bound)) {
            none = true;
            r->no_value |= !isfinite(got);
            continue;
        }
        if (bound > 0 && off / bound > r->worst && isfinite(off)) r->worst = off / bound;
        if (c->exact ? memcmp(&got, &exact, sizeof got) == 0 : off <= bound) continue;
        snprintf(text, sizeof text,
                 "table %" PRId32 " entry %" PRId64 ", row %" PRId64 " (%" PRId64
                 " lookups) [%" PRId32 "]: got %.9g, expected %.9g, off by %.3g, allowed %.3g",
                 t, k, lookups->row, hits, d, (double)got, e->sum[d].value, off, bound);
    }
    if (text[0] && r->wrong++ == 0) memcpy(r->message, text, sizeof text);
    r->undecided += none && !text[0];
}

/* --- gradient of the per-sample weights: a part is a feature, an item a bag */

/* The dot of lookup i of flat bag q: by the plain loop (*plain), and exact. */
static struct num expect_dot(const struct check *c, int64_t q, int64_t i, struct expected *e,
                             float *plain) {
    const struct batch *in = c->in;
    const int64_t row = batch_id(in, i);
    const struct feature *f = feature_at_bag(in, q);
    const int64_t grad_row = f->pooling == POOL_NONE ? i - f->first_lookup : q - f->first_bag;
    const int32_t dim = in->tables[f->table].dim;
    *plain = 0;
    if (row == f->padding_id && f->pooling != POOL_NONE) return exactly(0);
    float lane[ROW_LANES] = {0};
    struct total total = {0, 0, 0};
    c->before(c->before_ctx, f->table, row, &e->row);
    for (int32_t d = 0; d < dim; d++) {
        const float w = e->row.weight[d],
                    g = oracle_element(in->grad_type, in->grad,
                                       f->grad_offset + grad_row * f->grad_stride + d);
        lane[d % ROW_LANES] += g * w;
        total_add(&total, mul(exactly(g), exactly(w)));
    }
    *plain = lanes_fold(lane);
    const struct num exact = total_of(&total, dim);
    if (f->pooling != POOL_MEAN) return exact;
    int64_t count = 0; /* lookups of the bag that are not padding */
    for (int64_t k = in->offsets[q]; k < in->offsets[q + 1]; k++)
        count += batch_id(in, k) != f->padding_id;
    *plain *= 1.0f / (float)count;
    return mul(exact, rounded(1.0 / (double)count, 0));
}

static void judge_bag(const struct judged *j, int32_t feature, int64_t bag, struct expected *e,
                      struct check_result *r) {
    const struct batch *in = j->c->in;
    const int64_t q = in->features[feature].first_bag + bag;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
        const float got = ((const float *)j->o->data)[i];
        float plain;
        const struct num exact = expect_dot(j->c, q, i, e, &plain);
        if (is_right(got, plain, false, exact.value, exact.error, r)) continue;
        if (r->wrong++ == 0)
            snprintf(r->message, sizeof r->message,
                     "gradient of the weight of lookup %" PRId64 " (feature %" PRId32
                     ", bag %" PRId64 ", row %" PRId64 "): got %.9g, expected %.9g",
                     i, feature, bag, batch_id(in, i), (double)got, (double)plain);
    }
}

/* --- what belongs to nothing */

/* A walk over an output: up to `at` it was looked at. first: the first byte that lost its bits, or -1. */
struct walk {
    const struct output *o;
    size_t at;
    int64_t first;
};

/* Looks at all bytes before `part`, and passes over it. */
static void walk_to(struct walk *w, const void *part, size_t bytes) {
    const unsigned char *data = w->o->data;
    const size_t end = (size_t)((const unsigned char *)part - data);
    for (; w->first < 0 && w->at < end; w->at++)
        if (data[w->at] != (unsigned char)w->o->filled) w->first = (int64_t)w->at;
    w->at = end + bytes;
}

/* Passes over the rows in one array of a forward. of_max: only features with POOL_MAX have rows in it. */
static void walk_rows(struct walk *w, const struct batch *in, const void *array, size_t element,
                      bool of_max) {
    bool *in_row = must_have(calloc((size_t)in->grad_elements + 1, sizeof *in_row));
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &in->features[f];
        for (int64_t r = 0; (!of_max || x->pooling == POOL_MAX) && r < feature_rows(x); r++)
            memset(in_row + forward_row(x, r), true, (size_t)in->tables[x->table].dim);
    }
    for (int64_t i = 0; i < in->grad_elements; i++)
        if (in_row[i]) walk_to(w, (const char *)array + (size_t)i * element, element);
    free(in_row);
}

/* The first byte that belongs to no part of a right output, and lost its bits; or -1. */
static int64_t changed_outside(enum operation operation, const struct judged *j) {
    const struct batch *in = j->c->in;
    const char *data = j->o->data;
    struct walk w = {j->o, 0, -1};
    if (operation == OP_FORWARD) {
        walk_rows(&w, in, data, (size_t)dtype_bytes(in->grad_type), false);
        if (j->winners) walk_rows(&w, in, j->winners, sizeof *j->winners, true);
    } else if (operation == OP_WEIGHT_GRAD) {
        walk_to(&w, data, (size_t)in->lookups * sizeof(float));
    } else {
        walk_to(&w, data, (size_t)in->num_tables * sizeof *j->tables->count);
        for (int32_t t = 0; t < in->num_tables; t++) {
            const struct sparse_gradient *g = &j->tables[t];
            const size_t entries = (size_t)*g->count;
            walk_to(&w, g->rows, entries * sizeof *g->rows);
            walk_to(&w, g->values, entries * (size_t)in->tables[t].dim * sizeof *g->values);
        }
    }
    walk_to(&w, data + j->o->bytes, 0);
    return w.first;
}

/* --- all of them */

/* The items of a part. A table with a wrong number of entries is wrong as a whole. */
static int64_t items_of(enum operation operation, const struct judged *j, int32_t part,
                        struct check_result *r) {
    if (operation == OP_FORWARD) return feature_rows(&j->c->in->features[part]);
    if (operation == OP_WEIGHT_GRAD) return j->c->in->features[part].bags;
    const int64_t got = *j->tables[part].count, want = entries_of(j, part);
    if (got == want) return want;
    if (r->wrong++ == 0)
        snprintf(r->message, sizeof r->message,
                 "table %" PRId32 ": got %" PRId64 " entries, expected %" PRId64, part, got, want);
    return 0;
}

static struct check_result judge_all(enum operation operation, const struct judged *j) {
    static void (*const judge[OPERATIONS])(const struct judged *, int32_t, int64_t,
                                           struct expected *, struct check_result *) = {
        [OP_FORWARD] = judge_row, [OP_GRADIENT] = judge_entry, [OP_WEIGHT_GRAD] = judge_bag};
    const struct batch *in = j->c->in;
    const int32_t parts = operation == OP_GRADIENT ? in->num_tables : in->num_features;
    struct check_result all = {0};
    int64_t *items = must_have(malloc((size_t)parts * sizeof *items));
    for (int32_t p = 0; p < parts; p++) items[p] = items_of(operation, j, p, &all);
#pragma omp parallel if (in->lookups > 4096)
    {
        struct check_result mine = {0};
        struct expected e;
        expected_open(&e, widest(in));
        for (int32_t p = 0; p < parts; p++) {
#pragma omp for schedule(dynamic, 64) nowait
            for (int64_t i = 0; i < items[p]; i++) judge[operation](j, p, i, &e, &mine);
        }
        expected_close(&e);
#pragma omp critical(output_result)
        check_result_add(&all, &mine);
    }
    free(items);
    return all;
}

struct check_result output_check(enum operation operation, const struct check *c,
                                 const struct output *o) {
    static const char *const belong[OPERATIONS] = {
        [OP_FORWARD] = "of the output, which belongs to no output row",
        [OP_GRADIENT] = "of the output, which belongs to no entry",
        [OP_WEIGHT_GRAD] = "of the gradient of the weights, which belongs to no lookup"};
    struct judged j = {.c = c, .o = o};
    if (operation == OP_FORWARD) forward_lay_out(c->in, (void *)o->data, &j.winners);
    if (operation == OP_GRADIENT) {
        j.tables = must_have(malloc((size_t)c->in->num_tables * sizeof *j.tables));
        gradient_lay_out(c->in, o->merged, (void *)o->data, j.tables);
        if (!o->merged) sort_lookups(&j);
    }
    struct check_result all = judge_all(operation, &j);
    const int64_t outside = all.wrong ? -1 : changed_outside(operation, &j);
    if (outside >= 0)
        snprintf(all.message, sizeof all.message, "wrote byte %" PRId64 " %s", outside,
                 belong[operation]);
    else if (all.undecided && !all.wrong)
        snprintf(all.message, sizeof all.message,
                 "%" PRId64 " sums of gradients may overflow single precision%s", all.undecided,
                 all.no_value ? ", and some do: they have no finite value" : "");
    all.ok = all.wrong == 0 && outside < 0 && !all.undecided;
    free(j.lookups);
    free(j.tables);
    return all;
}
