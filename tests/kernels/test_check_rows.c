/* SPDX-License-Identifier: MIT
 *
 * What the check looks at: every element of every row of every table, whether it reads the tables in
 * place or fetches them block by block, and whether it has seen the right answer before; and what
 * it says of several wrong rows.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

/* BLOCK rows are looked at together, and fetched. */
enum { TABLES = 4, BLOCK = 4096 };

static const struct {
    int64_t rows;
    int32_t dim;
    enum rule_kind rule;
} tables[TABLES] = {{5, 3, RULE_adam},
                    {2 * BLOCK + 3, 2, RULE_rowwise_adagrad},
                    {BLOCK, 1, RULE_adam},
                    {BLOCK + 1, 3, RULE_momentum}};

/* Rows on both sides of every border; every second one is looked up, three times. */
enum { LAST = 2 * BLOCK + 2 };
static const int64_t seen[] = {0,     1,         2,        3,        4,        77,  BLOCK - 1,
                               BLOCK, BLOCK + 1, LAST - 3, LAST - 2, LAST - 1, LAST};
enum { SEEN = sizeof seen / sizeof *seen };

static bool looked_up(int32_t t, int k) {
    return k % 2 == t % 2 && seen[k] < tables[t].rows;
}

static const struct kernel *any_kernel(void) {
    struct error err;
    return registry_find(OP_STEP, "cpu_sort", &err);
}

static struct right_block *learned; /* of the builder, by checks of its rows in place or fetched */

/* A right answer. */
static void build(struct builder *b, bool exact) {
    builder_begin(b, 41, exact);
    for (int32_t t = 0; t < TABLES; t++) {
        builder_feature(b, builder_table(b, tables[t].rows, tables[t].dim), POOL_SUM, -1);
        for (int k = 0; k < SEEN; k++)
            builder_bag(b, looked_up(t, k) ? 3 : 0, (const int64_t[]){seen[k], seen[k], seen[k]});
    }
    builder_finish(b);
    for (int32_t t = 0; t < TABLES; t++) builder_rule(b, t, tables[t].rule);
    builder_start(b);
    assert_null(builder_run(b, any_kernel(), 2));
    free(learned);
    learned = must_have(calloc((size_t)check_blocks(&b->in), sizeof *learned));
}

/* A row whose accumulator is negative: its step has no value. */
static const struct {
    int32_t table;
    int64_t row;
} negative = {1, BLOCK};

static void before_negative(const void *ctx, int32_t t, int64_t row, const struct row_memory *to) {
    tables_initial_row(ctx, t, row, to);
    if (t == negative.table && row == negative.row) *to->row = -1;
}

static float *weights_of(const struct builder *b, int32_t t, int64_t row) {
    return array_row(&b->tables.tables[t].weight, row);
}

/* --- tables that have to be fetched */

struct source {
    const struct builder *b;
    int32_t broken; /* the table whose last block cannot be fetched; -1: none */
};

static int fetch(const void *ctx, int32_t t, int64_t begin, int64_t end, struct table *rows,
                 struct error *err) {
    const struct source *s = ctx;
    if (t == s->broken && end == tables[t].rows) {
        snprintf(err->text, sizeof err->text, "the cable is loose");
        return -1;
    }
    if (begin >= end || end - begin > BLOCK || end > tables[t].rows) abort();
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const struct array *from = &s->b->tables.tables[t].array[a];
        const int64_t own = table_memory_stride(&s->b->shapes[t], a);
        assert_int_equal(rows->array[a].stride, from->stride);
        if (own) memcpy(rows->array[a].data, array_row(from, begin), (size_t)((end - begin) * own));
    }
    return 0;
}

static struct check_result check(const struct builder *b, const struct source *s, row_before from,
                                 struct right_block *known) {
    return check_run(&(struct check){.in = &b->in,
                                     .index = &b->index,
                                     .rules = b->rules,
                                     .step = b->step,
                                     .before = from,
                                     .before_ctx = &b->tables,
                                     .right = known,
                                     .after = s ? NULL : b->tables.tables,
                                     .fetch = fetch,
                                     .fetch_ctx = s,
                                     .exact = b->sums_exact});
}

static void same(const struct check_result *a, const struct check_result *b) {
    assert_int_equal(a->ok, b->ok);
    assert_int_equal(a->wrong, b->wrong);
    assert_true(a->worst == b->worst);
    assert_false(a->unseen || b->unseen);
    assert_false(a->undecided || b->undecided);
    if (a->wrong == 1) assert_string_equal(a->message, b->message);
}

/* In place, or fetched, and beside blocks that were right: the answer is the same. */
static struct check_result check_both(const struct builder *b) {
    const struct source s = {b, -1};
    const struct check_result in_place = check(b, NULL, tables_initial_row, NULL);
    for (int way = 1; way < 4; way++) {
        const struct check_result other =
            check(b, way & 1 ? &s : NULL, tables_initial_row, way & 2 ? learned : NULL);
        same(&in_place, &other);
    }
    return in_place;
}

/* --- one wrong element */

/* One bit where all bits count; otherwise a value that no bound allows. */
static void edit(float *at, bool one_bit) {
    uint32_t bits;
    memcpy(&bits, at, sizeof bits);
    bits ^= one_bit ? 1u : 1u << 30;
    memcpy(at, &bits, sizeof bits);
}

/* Alone it is wrong, and the message names it; where no bound comes before it, with both values. */
static void check_element(const struct builder *b, int32_t t, int k, int array, int64_t column) {
    static const char *const names[TABLE_ARRAYS] = {"weight", "row state", "state 0", "state 1"};
    float *at = (float *)array_row(&b->tables.tables[t].array[array], seen[k]) + column,
          right = *at;
    char where[160], values[80];
    edit(at, b->sums_exact || !looked_up(t, k));
    struct check_result r = check_both(b);
    snprintf(where, sizeof where, "table %d row %lld (%d lookups) %s[%lld]: got %.9g, expected ", t,
             (long long)seen[k], looked_up(t, k) ? 3 : 0, names[array], (long long)column, *at);
    snprintf(values, sizeof values, ", expected %.9g, off by %.3g, allowed 0", right,
             fabs((double)*at - right));
    if (r.ok || r.wrong != 1 || memcmp(r.message, where, strlen(where)) != 0 ||
        (!looked_up(t, k) && !strstr(r.message, values)))
        fail_msg("%lld wrong: %s\nnot: %s%s", (long long)r.wrong, r.message, where, values);
    *at = right;
}

static void every_element(void **state) {
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct builder b;
        build(&b, exact);
        assert_true(b.sums_exact == exact);
        assert_true(check_both(&b).ok);
        for (int32_t t = 0; t < TABLES; t++)
            for (int k = 0; k < SEEN && seen[k] < tables[t].rows; k++)
                for (int a = 0; a < TABLE_ARRAYS; a++)
                    for (int64_t d = 0, w = table_array_width(&b.in.tables[t], a); d < w; d++)
                        check_element(&b, t, k, a, d);
        assert_true(check_both(&b).ok);
        builder_free(&b);
    }
}

/* --- blocks that were right */

static atomic_long looked_at;

static void before_counted(const void *ctx, int32_t t, int64_t row, const struct row_memory *to) {
    looked_at++;
    tables_initial_row(ctx, t, row, to);
}

static int64_t rows_looked_at(const struct builder *b, bool ok) {
    looked_at = 0;
    assert_int_equal(check(b, NULL, before_counted, learned).ok, ok);
    return looked_at;
}

/* Only a block with other bytes is looked at row by row, again and again as long as it is wrong;
 * and once it was wrong it can be right again. */
static void only_other_blocks(void **state) {
    (void)state;
    struct builder b;
    int64_t all = 0;
    build(&b, true);
    for (int32_t t = 0; t < TABLES; t++) all += tables[t].rows;
    assert_int_equal(rows_looked_at(&b, true), all);
    assert_int_equal(rows_looked_at(&b, true), 0);
    for (int32_t t = 0; t < TABLES; t++)
        for (int64_t row = 0; row < tables[t].rows; row += row % BLOCK ? 1 : BLOCK - 1) {
            const int64_t first = row / BLOCK * BLOCK, rest = tables[t].rows - first;
            float *at = weights_of(&b, t, row);
            edit(at, true);
            for (int again = 0; again < 2; again++)
                assert_int_equal(rows_looked_at(&b, false), rest < BLOCK ? rest : BLOCK);
            edit(at, true);
            assert_int_equal(rows_looked_at(&b, true), 0);
        }
    /* Nothing was done at all, which is right for another step. */
    tables_reset(&b.tables);
    assert_true(rows_looked_at(&b, false) > 0);
    assert_true(rows_looked_at(&b, false) > 0);
    builder_free(&b);
}

/* Where gradients add up to 0 and the rule keeps idle rows, a dense step and another one may have
 * other right answers: such a block is judged every time. */
static void gradients_that_cancel(void **state) {
    (void)state;
    struct builder b;
    build(&b, true);
    for (int32_t t = 0; t < TABLES; t++) /* of the first row that is looked up */
        memset(builder_grad(&b, t, t % 2), 0, (size_t)tables[t].dim * sizeof(float));
    builder_start(&b);
    assert_null(builder_run(&b, any_kernel(), 2));
    assert_true(rows_looked_at(&b, true) > BLOCK);
    assert_int_equal(rows_looked_at(&b, true), BLOCK); /* of the table with row-wise Adagrad */
    builder_free(&b);
}

/* --- several wrong rows: their number, and the largest ratio of an error to its bound */

static void several(void **state) {
    (void)state;
    static const struct {
        int32_t table;
        int64_t row;
    } far[] = {{0, 4}, {1, 1}, {1, BLOCK}, {1, 2 * BLOCK - 1}, {3, BLOCK}};
    enum { FAR = sizeof far / sizeof *far };
    struct builder b;
    build(&b, false);
    const double right = check_both(&b).worst;
    assert_true(right > 0 && right <= 1);
    for (int most = 0; most < FAR; most++) {
        float *at[FAR], kept[FAR];
        for (int i = 0; i < FAR; i++) kept[i] = *(at[i] = weights_of(&b, far[i].table, far[i].row));
        *at[most] += 1000;
        const double alone = check_both(&b).worst;
        assert_true(alone > 1);
        for (int i = 0; i < FAR; i++) *at[i] = kept[i] + (i == most ? 1000 : 0.125f);
        const struct check_result all = check_both(&b);
        assert_true(all.worst == alone && all.wrong == FAR);
        for (int i = 0; i < FAR; i++) *at[i] = kept[i];
    }
    builder_free(&b);
}

/* --- what is told where there is more than one thing: rows that cannot be seen, then those that
 * are wrong, then those that nobody can judge; whichever thread comes upon which first */

static void check_told(const struct builder *b, const struct source *s, const char *what) {
    for (int again = 0; again < 10; again++) {
        struct check_result r = check(b, s, before_negative, NULL);
        assert_false(r.ok);
        if (strncmp(r.message, what, strlen(what)) != 0) fail_msg("%s\nnot: %s", r.message, what);
        assert_int_equal(r.unseen, strstr(what, "loose") != NULL);
    }
}

static void the_worst_is_told(void **state) {
    (void)state;
    static const char no_value[] = "table 1 row 4096 (3 lookups) weight[0]: cannot be decided: ";
    struct builder b;
    build(&b, false);
    check_told(&b, NULL, no_value);
    for (int32_t t = 0; t < TABLES; t++)
        for (int k = 0; k < SEEN && seen[k] < tables[t].rows; k++) {
            if (t == negative.table && seen[k] == negative.row) continue;
            char wrong[100];
            float *at = weights_of(&b, t, seen[k]), right = *at;
            *at = 77;
            snprintf(wrong, sizeof wrong, "table %d row %lld (%d lookups) weight[0]: got 77", t,
                     (long long)seen[k], looked_up(t, k) ? 3 : 0);
            check_told(&b, NULL, wrong);
            const struct source s = {&b, 3};
            if (t != 3 || seen[k] < BLOCK)
                check_told(&b, &s, "table 3 row 4096: the cable is loose");
            *at = right;
        }
    builder_free(&b);
}

TESTS(check_rows) {
    add_test("every element of every row", every_element, NULL, NULL);
    add_test("only blocks with other bytes", only_other_blocks, NULL, NULL);
    add_test("gradients that cancel", gradients_that_cancel, NULL, NULL);
    add_test("several wrong rows", several, NULL, NULL);
    add_test("the worst is told", the_worst_is_told, NULL, NULL);
    return run_listed("check_rows");
}
