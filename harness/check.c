/* SPDX-License-Identifier: MIT */
#include "harness/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/oracle.h"
#include "harness/tables.h"

/* A row before the step, what the oracle and the rule make of it, and the sum between. */
struct workspace {
    float *weight, *elem[RULE_ELEM_STATES], row; /* before; then, in exact mode, after */
    struct num *grad;
    struct oracle_row expected;
    float *floats;
    struct num *nums;
};

static void workspace_init(struct workspace *w, int32_t dim) {
    w->floats = malloc((size_t)dim * (1 + RULE_ELEM_STATES) * sizeof *w->floats);
    w->nums = malloc((size_t)dim * (2 + RULE_ELEM_STATES) * sizeof *w->nums);
    if (!w->floats || !w->nums) abort();
    w->weight = w->floats;
    w->grad = w->nums;
    w->expected.weight = w->nums + dim;
    for (int k = 0; k < RULE_ELEM_STATES; k++) {
        w->elem[k] = w->floats + (1 + k) * dim;
        w->expected.elem[k] = w->nums + (2 + k) * dim;
    }
    w->row = 0;
}

static void workspace_free(struct workspace *w) {
    free(w->floats);
    free(w->nums);
}

/* What a correct kernel leaves in exact mode: the shared rule on the exact sum, element by element.
 */
static void rule_in_float(const struct rule_step *step, int32_t dim, struct workspace *w) {
    struct rule_info info = rule_info(step->rule.kind);
    double acc = 0;
    for (int phase = 0; phase < 2; phase++) {
        float rate = phase ? rule_row(step, acc, dim, info.row_states ? &w->row : NULL) : 0;
        for (int32_t d = 0; d < dim; d++) {
            struct rule_elem x = {w->weight[d], {w->elem[0][d], w->elem[1][d]}};
            float g = (float)w->grad[d].value;
            if (phase == 0) {
                acc += rule_reduce(step, x, g);
                continue;
            }
            x = rule_elem(step, rate, x, g);
            w->weight[d] = x.w;
            for (int k = 0; k < info.elem_states; k++) w->elem[k][d] = x.s[k];
        }
    }
}

/* Where two rows differ: which array and column, or NULL. */
struct difference {
    const char *array;
    int32_t column;
    double got, expected, bound;
};

static bool compare_bits(const struct workspace *w, struct row_memory after, struct rule_info info,
                         int32_t dim, struct difference *out) {
    static const char *const names[] = {"state 0", "state 1"};
    for (int k = -1; k < info.elem_states; k++) {
        const float *want = k < 0 ? w->weight : w->elem[k];
        const float *got = k < 0 ? after.weight : after.elem[k];
        if (memcmp(want, got, (size_t)dim * sizeof *got) == 0) continue;
        for (int32_t d = 0; d < dim; d++)
            if (memcmp(&want[d], &got[d], sizeof *got) != 0) {
                *out = (struct difference){k < 0 ? "weight" : names[k], d, got[d], want[d], 0};
                return false;
            }
    }
    if (info.row_states && memcmp(&w->row, after.row, sizeof w->row) != 0) {
        *out = (struct difference){"row state", 0, *after.row, w->row, 0};
        return false;
    }
    return true;
}

/* Within the bound? A NaN is not. */
static bool within(struct num want, float got, const char *array, int32_t column, double *worst,
                   struct difference *out) {
    double off = fabs(got - want.value), ratio = want.error > 0 ? off / want.error
                                                 : off > 0      ? INFINITY
                                                                : 0;
    if (isfinite(ratio) && ratio > *worst) *worst = ratio;
    if (off <= want.error) return true;
    *out = (struct difference){array, column, got, want.value, want.error};
    return false;
}

static bool compare_bounds(const struct workspace *w, struct row_memory after,
                           struct rule_info info, int32_t dim, double *worst,
                           struct difference *out) {
    for (int32_t d = 0; d < dim; d++) {
        if (!within(w->expected.weight[d], after.weight[d], "weight", d, worst, out)) return false;
        for (int k = 0; k < info.elem_states; k++)
            if (!within(w->expected.elem[k][d], after.elem[k][d], "state", d, worst, out))
                return false;
    }
    return !info.row_states ||
           within(w->expected.row_state, *after.row, "row state", 0, worst, out);
}

/* One row; lookups is NULL for a row that nobody looked up. */
static bool check_row(const struct check *c, const struct rule_step *step, int32_t t, int64_t row,
                      struct row_memory after, const struct row_lookup *lookups, int64_t count,
                      struct workspace *w, double *worst, struct difference *out) {
    const struct table_shape *shape = &c->in->tables[t];
    struct rule_info info = rule_info(shape->rule);
    int32_t dim = shape->dim;
    c->before(c->before_ctx, t, row, w->weight, w->elem, &w->row);
    if (!lookups && (info.idle_is_identity || !c->dense))
        return compare_bits(w, after, info, dim, out);

    bool exact = c->exact && !(c->per_lookup && shape->rule == RULE_SGD);
    oracle_sum(c->in, lookups, count, exact, dim, w->grad);
    for (int32_t d = 0; d < dim; d++) {
        w->expected.weight[d] = (struct num){w->weight[d], 0};
        for (int k = 0; k < info.elem_states; k++)
            w->expected.elem[k][d] = (struct num){w->elem[k][d], 0};
    }
    w->expected.row_state = (struct num){w->row, 0};
    if (c->per_lookup && shape->rule == RULE_SGD)
        oracle_sgd_per_lookup(&step->rule, count, dim, w->grad, &w->expected);
    else
        oracle_update(&step->rule, c->step, dim, w->grad, &w->expected);
    if (!compare_bounds(w, after, info, dim, worst, out)) return false;
    if (!exact) return true;
    rule_in_float(step, dim, w);
    return compare_bits(w, after, info, dim, out);
}

static void describe(struct check_result *r, int32_t t, int64_t row, int64_t hits,
                     const struct difference *d) {
    if (r->message[0]) return;
    snprintf(r->message, sizeof r->message,
             "table %" PRId32 " row %" PRId64 " (%" PRId64 " lookups) %s[%" PRId32
             "]: got %.9g, expected %.9g, off by %.3g, allowed %.3g",
             t, row, hits, d->array, d->column, d->got, d->expected, fabs(d->got - d->expected),
             d->bound);
}

/* First run of the index at or after (table, row). */
static int64_t first_run(const struct row_index *x, int32_t table, int64_t row) {
    int64_t lo = 0, hi = x->rows;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct row_run *r = &x->run[mid];
        if (r->table < table || (r->table == table && r->row < row))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

enum { ROWS_AT_ONCE = 4096 };

/* What a thread fetches a block of rows of any table into. */
static struct table staging_open(const struct check *c) {
    struct table rows = {0};
    int64_t width[TABLE_ARRAYS] = {0};
    for (int32_t t = 0; t < c->in->num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            int64_t own = table_array_width(&c->in->tables[t], a);
            if (own > width[a]) width[a] = own;
        }
    float **const at[TABLE_ARRAYS] = {&rows.weight, &rows.row, &rows.elem[0], &rows.elem[1]};
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        if (width[a] == 0) continue;
        *at[a] = malloc((size_t)(ROWS_AT_ONCE * width[a]) * sizeof(float));
        if (!*at[a]) abort();
    }
    return rows;
}

static void staging_close(struct table *rows) {
    free(rows->weight);
    free(rows->row);
    for (int k = 0; k < RULE_ELEM_STATES; k++) free(rows->elem[k]);
}

/* Rows begin .. end-1 of table t, in `after`, whose first row is row `first` of the table; adds
 * what it finds to *r. */
static void check_rows(const struct check *c, const struct rule_step *step, int32_t t,
                       int64_t begin, int64_t end, const struct table *after, int64_t first,
                       struct check_result *r) {
    struct workspace w;
    workspace_init(&w, c->in->tables[t].dim);
    const struct row_index *x = c->index;
    int64_t run = first_run(x, t, begin);
    for (int64_t row = begin; row < end; row++) {
        const struct row_run *u = &x->run[run];
        bool touched = run < x->rows && u->table == t && u->row == row;
        int64_t hits = touched ? u[1].first - u->first : 0;
        struct row_memory memory = row_memory(after, &c->in->tables[t], row - first);
        struct difference d;
        if (!check_row(c, step, t, row, memory, touched ? &x->lookup[u->first] : NULL, hits, &w,
                       &r->worst, &d)) {
            r->wrong++;
            describe(r, t, row, hits, &d);
        }
        run += touched;
    }
    workspace_free(&w);
}

/* The same where they have to be fetched first. */
static void fetch_and_check(const struct check *c, const struct rule_step *step, int32_t t,
                            int64_t begin, int64_t end, struct table *staging,
                            struct check_result *r) {
    struct error err;
    int status;
    if (r->unseen) return;
#pragma omp critical(check_fetch)
    status = c->fetch(c->fetch_ctx, t, begin, end, staging, &err);
    if (status == 0) {
        check_rows(c, step, t, begin, end, staging, begin, r);
    } else {
        r->unseen = true;
        snprintf(r->message, sizeof r->message, "table %" PRId32 " row %" PRId64 ": %.320s", t,
                 begin, err.text);
    }
}

struct check_result check_run(const struct check *c) {
    struct check_result all = {0};
    int64_t rows = 0;
    for (int32_t t = 0; t < c->in->num_tables; t++) rows += c->in->tables[t].rows;
#pragma omp parallel if (rows > ROWS_AT_ONCE)
    {
        struct check_result mine = {0};
        struct table staging = {0};
        if (!c->after) staging = staging_open(c);
        for (int32_t t = 0; t < c->in->num_tables; t++) {
            struct rule_step step = rule_step(c->rules[t], c->step);
            int64_t end = c->in->tables[t].rows;
#pragma omp for schedule(dynamic) nowait
            for (int64_t row = 0; row < end; row += ROWS_AT_ONCE) {
                int64_t last = row + ROWS_AT_ONCE < end ? row + ROWS_AT_ONCE : end;
                if (c->after)
                    check_rows(c, &step, t, row, last, &c->after[t], 0, &mine);
                else
                    fetch_and_check(c, &step, t, row, last, &staging, &mine);
            }
        }
        staging_close(&staging);
#pragma omp critical(check_result)
        {
            all.wrong += mine.wrong;
            all.unseen |= mine.unseen;
            if (mine.worst > all.worst) all.worst = mine.worst;
            if (mine.message[0] && !all.message[0])
                memcpy(all.message, mine.message, sizeof all.message);
        }
    }
    all.ok = all.wrong == 0 && !all.unseen;
    return all;
}
