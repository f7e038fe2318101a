/* SPDX-License-Identifier: MIT */
#include "harness/check/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "harness/check/oracle.h"
#include "harness/workload/tables.h"

/* One row: its content before the step (in exact mode then its expected content), the sum of its
 * gradients, and the oracle's result. */
struct workspace {
    struct row_memory row;
    struct num *grad;
    float *exact_grad;      /* the same in exact mode */
    struct row_memory wide; /* for row_look() */
    struct oracle_row expected;
    float *floats;
    struct num *nums;
};

static void workspace_init(struct workspace *w, int32_t dim) {
    const int64_t width = dim > RULE_ROW_STATES ? dim : RULE_ROW_STATES;
    w->floats = must_have(malloc((size_t)((2 * TABLE_ARRAYS + 1) * width) * sizeof *w->floats));
    w->nums = must_have(malloc((size_t)((TABLE_ARRAYS + 1) * width) * sizeof *w->nums));
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        w->row.array[a] = w->floats + a * width;
        w->wide.array[a] = w->floats + (TABLE_ARRAYS + a) * width;
        w->expected.array[a] = w->nums + a * width;
    }
    w->exact_grad = w->floats + 2 * TABLE_ARRAYS * width;
    w->grad = w->nums + TABLE_ARRAYS * width;
}

static void workspace_free(struct workspace *w) {
    free(w->floats);
    free(w->nums);
}

/* Verdicts, ascending in badness. UNDECIDED: the row has no bound; NO_VALUE: it has no finite value, either; UNSEEN: it
 * could not be fetched. */
enum verdict { RIGHT, UNDECIDED, NO_VALUE, WRONG, UNSEEN };

/* The element that decides the verdict. */
struct finding {
    enum table_array array;
    int64_t column;
    double got, expected, bound;
    enum dtype type; /* of the array */
};

/* A row and its comparison. */
struct judged_row {
    const struct table_shape *shape;
    struct row_memory after;
    struct workspace *w;
    double *worst;
    struct finding *out;
    bool kept; /* a dense step keeps this row, another one need not */
};

/* RIGHT if the row has the bits of w->row. With nan, any NaN equals another. */
static enum verdict compare_bits(const struct judged_row *r, bool nan) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const float *want = r->w->row.array[a], *got = r->after.array[a];
        const int64_t width = table_array_width(r->shape, a);
        if (width == 0 || memcmp(want, got, (size_t)width * sizeof *got) == 0) continue;
        for (int64_t d = 0; d < width; d++) {
            if (memcmp(&want[d], &got[d], sizeof *got) == 0) continue;
            if (nan && isnan(want[d]) && isnan(got[d])) continue;
            *r->out = (struct finding){a, d, got[d], want[d], 0, table_array_type(r->shape, a)};
            return WRONG;
        }
    }
    return RIGHT;
}

/* Compares the row with the bounds of w->expected. A NaN is outside. A row with an element that has no
 * bound is undecided at best. */
static enum verdict compare_bounds(const struct judged_row *r) {
    enum verdict verdict = RIGHT;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        for (int64_t d = 0, width = table_array_width(r->shape, a); d < width; d++) {
            const struct num want = r->w->expected.array[a][d];
            const double got = r->after.array[a][d], off = fabs(got - want.value);
            const enum verdict own = !isfinite(want.error) ? isfinite(got) ? UNDECIDED : NO_VALUE
                                     : off <= want.error   ? RIGHT
                                                           : WRONG;
            if (want.error > 0 && off / want.error > *r->worst && isfinite(off / want.error))
                *r->worst = off / want.error;
            if (own <= verdict) continue;
            *r->out =
                (struct finding){a, d, got, want.value, want.error, table_array_type(r->shape, a)};
            verdict = own;
        }
    return verdict;
}

static bool is_zero(const float *sum, int32_t dim) {
    for (int32_t d = 0; d < dim; d++)
        if (sum[d] != 0) return false;
    return true;
}

/* One row; lookups is NULL for an untouched row. keeps: a dense step keeps rows without gradients.
 */
static enum verdict check_row(const struct check *c, const struct rule_step *step, bool keeps,
                              struct judged_row *r, int32_t t, int64_t row,
                              const struct row_lookup *lookups, int64_t count) {
    struct workspace *w = r->w;
    int32_t dim = r->shape->dim;
    c->before(c->before_ctx, t, row, &w->row);
    if (!lookups && (keeps || !c->dense)) return compare_bits(r, false);

    bool each = c->per_lookup && rule_linear(r->shape->rule), exact = c->exact && !each;
    oracle_sum(c->in, lookups, count, exact, dim, w->grad);
    if (!each) oracle_cancel(c->in, lookups, count, dim, w->grad);
    for (int32_t d = 0; d < dim; d++) w->exact_grad[d] = (float)w->grad[d].value;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        for (int64_t d = 0, width = table_array_width(r->shape, a); d < width; d++)
            w->expected.array[a][d] = (struct num){w->row.array[a][d], 0};
    if (each)
        oracle_update_per_lookup(&step->rule, count, dim, w->grad, &w->expected);
    else
        oracle_update(&step->rule, c->step, dim, w->grad, &w->expected);
    oracle_store(r->shape, &w->expected);
    enum verdict verdict = compare_bounds(r);
    if (verdict == WRONG || !exact) return verdict;
    /* A dense step cannot tell gradients that cancel from no gradients: it keeps both rows. */
    r->kept = keeps && is_zero(w->exact_grad, dim);
    if (!(c->dense && r->kept)) {
        rule_apply(step, &w->row, dim, w->exact_grad);
        oracle_round(r->shape, step->number, row, &w->row);
    }
    return compare_bits(r, verdict != RIGHT) == WRONG ? WRONG : verdict;
}

static const char *type_name(enum dtype type) {
    static const char *const names[DTYPE_COUNT] = {
        [FP32] = "fp32", [BF16] = "bf16", [FP16] = "fp16", [FP8] = "fp8"};
    return names[type];
}

/* Says what is wrong with an element, or why it cannot be decided. */
static void describe_element(const struct finding *f, enum verdict verdict, char *text,
                             size_t size) {
    const char *value = verdict == NO_VALUE ? "no finite value" : "cannot be decided";
    if (verdict == WRONG)
        snprintf(text, size, "got %.9g, expected %.9g, off by %.3g, allowed %.3g", f->got,
                 f->expected, fabs(f->got - f->expected), f->bound);
    else if (isnan(f->bound))
        snprintf(text, size, "%s: %.9g %s too large for %s", value, f->expected,
                 verdict == NO_VALUE ? "is" : "may be", type_name(f->type));
    else
        snprintf(
            text, size,
            "%s: in single precision the step may overflow there, divide by 0 or take the root "
            "of a negative number%s; look at the gradients and the state of the row, and at the "
            "hyper-parameters of its table",
            value, verdict == NO_VALUE ? "" : ", or rounding decides between branches of the rule");
}

/* The verdict that the message of a result describes. */
static enum verdict verdict_of(const struct check_result *r) {
    return r->unseen      ? UNSEEN
           : r->wrong     ? WRONG
           : r->no_value  ? NO_VALUE
           : r->undecided ? UNDECIDED
                          : RIGHT;
}

void check_result_add(struct check_result *all, const struct check_result *part) {
    if (verdict_of(part) > verdict_of(all))
        memcpy(all->message, part->message, sizeof all->message);
    all->wrong += part->wrong;
    all->unseen |= part->unseen;
    all->undecided += part->undecided;
    all->no_value |= part->no_value;
    if (part->worst > all->worst) all->worst = part->worst;
}

/* Counts a row, and describes it if no row before had this verdict or a worse one. */
static void describe(struct check_result *r, enum verdict verdict, int32_t t, int64_t row,
                     int64_t hits, const struct finding *f) {
    const bool news = verdict > verdict_of(r);
    r->wrong += verdict == WRONG;
    r->undecided += verdict != WRONG;
    r->no_value |= verdict == NO_VALUE;
    if (!news) return;
    char state[24], what[320];
    snprintf(state, sizeof state, "state %d", f->array - TABLE_ELEM);
    describe_element(f, verdict, what, sizeof what);
    snprintf(r->message, sizeof r->message,
             "table %" PRId32 " row %" PRId64 " (%" PRId64 " lookups) %s[%" PRId64 "]: %s", t, row,
             hits,
             f->array == TABLE_WEIGHT      ? "weight"
             : f->array == TABLE_ROW_STATE ? "row state"
                                           : state,
             f->column, what);
}

enum { ROWS_AT_ONCE = 4096 };

/* A thread's memory for a block of rows of any table. */
static void staging_open(const struct check *c, void *memory[TABLE_ARRAYS]) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        int64_t widest = 1;
        for (int32_t t = 0; t < c->in->num_tables; t++) {
            const int64_t own = table_memory_stride(&c->in->tables[t], a);
            if (own > widest) widest = own;
        }
        memory[a] = must_have(malloc((size_t)(ROWS_AT_ONCE * widest)));
    }
}

static void staging_close(void *memory[TABLE_ARRAYS]) {
    for (int a = 0; a < TABLE_ARRAYS; a++) free(memory[a]);
}

/* Checks rows begin .. end-1 of table t and adds its findings to *r. `after` starts with row
 * `first` of the table. Returns whether all rows are right, for dense steps and others. */
static bool check_rows(const struct check *c, const struct rule_step *step, int32_t t,
                       int64_t begin, int64_t end, const struct table *after, int64_t first,
                       struct check_result *r) {
    struct workspace w;
    workspace_init(&w, c->in->tables[t].dim);
    const struct row_index *x = c->index;
    const bool keeps = rule_idle_is_identity(step->rule.kind) && oracle_keeps_idle(&step->rule);
    int64_t run = row_index_find(x, t, begin);
    bool right = true;
    for (int64_t row = begin; row < end; row++) {
        const struct row_run *u = &x->run[run];
        bool touched = run < x->rows && u->table == t && u->row == row;
        int64_t hits = touched ? u[1].first - u->first : 0;
        struct finding f;
        struct judged_row judged = {.shape = &c->in->tables[t],
                                    .after =
                                        row_look(after, &c->in->tables[t], row - first, &w.wide),
                                    .w = &w,
                                    .worst = &r->worst,
                                    .out = &f};
        enum verdict verdict =
            check_row(c, step, keeps, &judged, t, row, touched ? &x->lookup[u->first] : NULL, hits);
        if (verdict != RIGHT) describe(r, verdict, t, row, hits, &f);
        right &= verdict == RIGHT && !judged.kept;
        run += touched;
    }
    workspace_free(&w);
    return right;
}

int64_t check_blocks(const struct batch *in) {
    int64_t blocks = 0;
    for (int32_t t = 0; t < in->num_tables; t++)
        blocks += (in->tables[t].rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
    return blocks;
}

/* Digests all memory of `count` rows from `begin` on. */
static void digest_rows(const struct table_shape *shape, const struct table *rows, int64_t begin,
                        int64_t count, uint64_t digest[2]) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const size_t bytes = (size_t)(count * table_memory_stride(shape, a));
        if (bytes == 0) continue;
        const XXH128_hash_t own = XXH3_128bits(array_row(&rows->array[a], begin), bytes);
        const uint64_t both[] = {digest[0], digest[1], own.low64, own.high64};
        const XXH128_hash_t all = XXH3_128bits(both, sizeof both);
        digest[0] = all.low64, digest[1] = all.high64;
    }
}

/* check_rows(), unless block number `block` has the bytes of one that was right. */
static void check_block(const struct check *c, const struct rule_step *step, int32_t t,
                        int64_t begin, int64_t end, int64_t block, const struct table *after,
                        int64_t first, struct check_result *r) {
    struct right_block *known = c->right ? &c->right[block] : NULL, now = {.worst = 0};
    const double worst = r->worst;
    if (known) digest_rows(&c->in->tables[t], after, begin - first, end - begin, now.digest);
    if (known && memcmp(known->digest, now.digest, sizeof now.digest) == 0) {
        now = *known;
    } else {
        r->worst = 0;
        const bool right = check_rows(c, step, t, begin, end, after, first, r);
        now.worst = r->worst;
        if (known && right) *known = now;
    }
    r->worst = fmax(worst, now.worst);
}

/* Fetches the rows, then does the same. */
static void fetch_and_check(const struct check *c, const struct rule_step *step, int32_t t,
                            int64_t begin, int64_t end, int64_t block,
                            void *const memory[TABLE_ARRAYS], struct check_result *r) {
    struct error err;
    int status;
    if (r->unseen) return;
    struct table rows = table_in(&c->in->tables[t], memory);
#pragma omp critical(check_fetch)
    status = c->fetch(c->fetch_ctx, t, begin, end, &rows, &err);
    if (status == 0) {
        check_block(c, step, t, begin, end, block, &rows, begin, r);
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
        void *staging[TABLE_ARRAYS] = {NULL};
        if (!c->after) staging_open(c, staging);
        int64_t blocks = 0; /* of the tables before */
        for (int32_t t = 0; t < c->in->num_tables; t++) {
            struct rule_step step = rule_step(c->rules[t], c->step);
            int64_t end = c->in->tables[t].rows;
#pragma omp for schedule(dynamic) nowait
            for (int64_t row = 0; row < end; row += ROWS_AT_ONCE) {
                const int64_t last = row + ROWS_AT_ONCE < end ? row + ROWS_AT_ONCE : end,
                              block = blocks + row / ROWS_AT_ONCE;
                if (c->after)
                    check_block(c, &step, t, row, last, block, &c->after[t], 0, &mine);
                else
                    fetch_and_check(c, &step, t, row, last, block, staging, &mine);
            }
            blocks += (end + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE;
        }
        staging_close(staging);
#pragma omp critical(check_result)
        check_result_add(&all, &mine);
    }
    all.ok = all.wrong == 0 && !all.unseen && !all.undecided;
    return all;
}
