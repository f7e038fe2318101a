/* SPDX-License-Identifier: MIT
 *
 * What must hold between two runs of a kernel, independent of the right numbers: order of lookups,
 * split pairs, merged duplicates, shared tables, tables apart or together, threads and repetition.
 * No oracle is used. The first five have exact sums, so their results must be equal bit for bit.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

static const struct kernel *kernel_of(void **state) {
    return ((const struct kernel_test *)*state)->kernel;
}

static void run(struct builder *b, const struct kernel *k, int way) {
    builder_start(b);
    const char *wrong = builder_run(b, k, way);
    if (wrong) fail_msg("%s", wrong);
}

static void assert_same_tables(const struct builder *a, const struct builder *b) {
    size_t bytes, other;
    void *x = builder_snapshot(a, &bytes), *y = builder_snapshot(b, &other);
    assert_int_equal(bytes, other);
    bool same = memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    assert_true(same);
}

/* A step per lookup rounds the weight at each lookup, so that its bits depend on their order. */
static void skip_if_per_lookup(const struct kernel *k) {
    if (k->traits & STEP_PER_LOOKUP) skip();
}

/* Where rules take turns, it is every eighth one. */
static int rules_apart(const struct kernel *k) {
    return builder_rules_take_turns(k) ? 8 : 1;
}

/* Both with every rule, in one way; their tables start with the same values. */
static void assert_same_results(struct builder *a, struct builder *b, const struct kernel *k) {
    assert_true(a->sums_exact && b->sums_exact);
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(a, k, (enum rule_kind)rule);
        builder_rules(b, k, (enum rule_kind)rule);
        run(a, k, 2);
        run(b, k, 2);
        assert_same_tables(a, b);
    }
    builder_free(a);
    builder_free(b);
}

static void copy_grad(struct builder *to, int32_t feature, int64_t r, const struct builder *from,
                      int32_t other, int64_t s, float factor) {
    int32_t dim = to->in.tables[to->in.features[feature].table].dim;
    const float *source = builder_grad(from, other, s);
    for (int32_t d = 0; d < dim; d++) builder_grad(to, feature, r)[d] = factor * source[d];
}

static void add_grad(struct builder *to, int32_t feature, int64_t r, const struct builder *from,
                     int32_t other, int64_t s) {
    int32_t dim = to->in.tables[to->in.features[feature].table].dim;
    const float *source = builder_grad(from, other, s);
    for (int32_t d = 0; d < dim; d++) builder_grad(to, feature, r)[d] += source[d];
}

enum { BAGS = 60, LENGTH = 5, ROWS = 90, DIM = 21 };

/* Lookup k of bag q; rows repeat often, also within a bag. */
static int64_t row_at(int64_t q, int64_t k) {
    double u = rng_unit((uint64_t)q, (uint64_t)k);
    return (int64_t)(u * u * u * ROWS);
}

static void permute_lookups(void **state) {
    skip_if_per_lookup(kernel_of(state));
    struct builder a, b;
    struct builder *both[] = {&a, &b};
    for (int order = 0; order < 2; order++) {
        builder_begin(both[order], 5, true);
        builder_feature(both[order], builder_table(both[order], ROWS, DIM), POOL_SUM, -1);
        for (int64_t q = 0; q < BAGS; q++) {
            int64_t ids[LENGTH];
            for (int64_t k = 0; k < LENGTH; k++)
                ids[k] = row_at(q, order ? (k * 3 + q) % LENGTH : k);
            builder_bag(both[order], LENGTH, ids);
        }
        builder_finish(both[order]);
    }
    assert_same_results(&a, &b, kernel_of(state));
}

/* (id, g) equals (id, g/2) twice. */
static void split_pairs(void **state) {
    skip_if_per_lookup(kernel_of(state));
    struct builder a, b;
    struct builder *both[] = {&a, &b};
    for (int halves = 1; halves <= 2; halves++) {
        struct builder *x = both[halves - 1];
        builder_begin(x, 6, true);
        builder_feature(x, builder_table(x, ROWS, DIM), POOL_SUM, -1);
        for (int64_t q = 0; q < BAGS; q++)
            for (int h = 0; h < halves; h++) builder_bag(x, 1, (const int64_t[]){row_at(q, 0)});
        builder_finish(x);
    }
    for (int64_t q = 0; q < BAGS; q++)
        for (int h = 0; h < 2; h++) copy_grad(&b, 0, 2 * q + h, &a, 0, q, 0.5f);
    builder_recount(&b);
    assert_same_results(&a, &b, kernel_of(state));
}

/* k lookups of one row equal one lookup with the sum of their gradients. */
static void merge_duplicates(void **state) {
    skip_if_per_lookup(kernel_of(state));
    enum { TIMES = 9 };
    struct builder a, b;
    builder_begin(&a, 7, true);
    builder_feature(&a, builder_table(&a, ROWS, DIM), POOL_SUM, -1);
    for (int64_t q = 0; q < BAGS; q++) builder_bag(&a, 1, (const int64_t[]){q % (BAGS / TIMES)});
    builder_finish(&a);
    builder_begin(&b, 7, true);
    builder_feature(&b, builder_table(&b, ROWS, DIM), POOL_SUM, -1);
    for (int64_t q = 0; q < BAGS / TIMES; q++) builder_bag(&b, 1, &q);
    builder_finish(&b);
    for (int64_t q = 0; q < BAGS; q++) {
        if (q < BAGS / TIMES)
            copy_grad(&b, 0, q, &a, 0, q, 1);
        else
            add_grad(&b, 0, q % (BAGS / TIMES), &a, 0, q);
    }
    builder_recount(&b);
    assert_same_results(&a, &b, kernel_of(state));
}

/* Three features of one table equal one feature with all their bags. */
static void concatenate_features(void **state) {
    skip_if_per_lookup(kernel_of(state));
    struct builder a, b;
    builder_begin(&a, 8, true);
    builder_table(&a, ROWS, DIM);
    builder_begin(&b, 8, true);
    builder_feature(&b, builder_table(&b, ROWS, DIM), POOL_SUM, -1);
    for (int f = 0; f < 3; f++) {
        builder_feature(&a, 0, POOL_SUM, -1);
        for (int64_t q = 0; q < BAGS; q++) {
            int64_t ids[LENGTH];
            for (int64_t k = 0; k < LENGTH; k++) ids[k] = row_at(f * BAGS + q, k);
            builder_bag(&a, LENGTH, ids);
            builder_bag(&b, LENGTH, ids);
        }
    }
    builder_finish(&a);
    builder_finish(&b);
    for (int f = 0; f < 3; f++)
        for (int64_t q = 0; q < BAGS; q++) copy_grad(&b, 0, f * BAGS + q, &a, f, q, 1);
    builder_recount(&b);
    assert_same_results(&a, &b, kernel_of(state));
}

/* --- two tables in one call, or in two calls */

/* Tables `which` to `which + count - 1` of the two, with the features that read them. */
static void build_tables(struct builder *b, int which, int count) {
    builder_begin(b, 9, true);
    for (int t = which; t < which + count; t++) {
        builder_feature(b, builder_table(b, ROWS - 20 * t, DIM + 3 * t), POOL_SUM, -1);
        for (int64_t q = 0; q < BAGS; q++) {
            int64_t ids[LENGTH];
            for (int64_t k = 0; k < LENGTH; k++) ids[k] = row_at(t * BAGS + q, k) / (1 + t);
            builder_bag(b, LENGTH, ids);
        }
    }
    builder_finish(b);
}

static void copy_table(const struct table *to, const struct table *from,
                       const struct table_shape *shape) {
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table_memory_bytes(shape, a))
            memcpy(to->array[a].data, from->array[a].data, table_memory_bytes(shape, a));
}

static bool same_table(const struct table *x, const struct table *y,
                       const struct table_shape *shape) {
    bool same = true;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table_memory_bytes(shape, a))
            same &= memcmp(x->array[a].data, y->array[a].data, table_memory_bytes(shape, a)) == 0;
    return same;
}

static void separate_calls(void **state) {
    const struct kernel *k = kernel_of(state);
    struct builder both, alone[2];
    skip_if_per_lookup(k);
    build_tables(&both, 0, 2);
    for (int t = 0; t < 2; t++) {
        build_tables(&alone[t], t, 1);
        for (int64_t q = 0; q < BAGS; q++) copy_grad(&alone[t], 0, q, &both, t, q, 1);
    }
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(&both, k, (enum rule_kind)rule);
        builder_start(&both);
        for (int t = 0; t < 2; t++) {
            builder_rule(&alone[t], 0, both.rules[t].kind);
            alone[t].rules[0] = both.rules[t];
            builder_start(&alone[t]);
            copy_table(alone[t].tables.tables, &both.tables.tables[t], &both.in.tables[t]);
            assert_null(builder_run(&alone[t], k, 3));
        }
        assert_null(builder_run(&both, k, 3));
        for (int t = 0; t < 2; t++)
            assert_true(
                same_table(&both.tables.tables[t], alone[t].tables.tables, &both.in.tables[t]));
    }
    builder_free(&both);
    builder_free(&alone[0]);
    builder_free(&alone[1]);
}

/* --- more threads than work, and more than the padding of an array has room for */

static void many_threads(void **state) {
    static const int threads[] = {5, 32, 64};
    const struct kernel *k = kernel_of(state);
    struct builder b;
    builder_begin(&b, 13, true);
    b.weighted = true;
    builder_feature(&b, builder_table(&b, ROWS, DIM), POOL_MEAN, -1);
    for (int64_t q = 0; q < 8; q++)
        builder_bag(&b, 2, (const int64_t[]){row_at(q, 0), row_at(q, 1)});
    builder_feature(&b, builder_table(&b, 3 * ROWS, 8), POOL_SUM, 3);
    for (int64_t q = 0; q < BAGS; q++) builder_bag(&b, 4, (const int64_t[]){3, q, 2 * q, q / 9});
    builder_finish(&b);
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(&b, k, (enum rule_kind)rule);
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            const char *wrong = builder_check(&b, k, threads[i]);
            if (wrong) fail_msg("%s", wrong);
        }
    }
    builder_free(&b);
}

/* --- as many tables as a CUDA grid has blocks in its second dimension */

static void most_tables(void **state) {
    enum { TABLES = 65535 };
    struct table_shape *tables = calloc(TABLES, sizeof *tables);
    struct feature *features = calloc(TABLES, sizeof *features);
    assert_non_null(tables);
    assert_non_null(features);
    for (int32_t t = 0; t < TABLES; t++) {
        tables[t] = (struct table_shape){
            .rows = 1, .dim = 1, .rule = RULE_sgd, .features = 1, .lookups = 1, .first_row = t};
        features[t] = (struct feature){.table = t, .padding_id = -1, .lookups = 1};
    }
    const struct batch in = {.num_tables = TABLES,
                             .num_features = TABLES,
                             .bags = 1,
                             .lookups = TABLES,
                             .tables = tables,
                             .features = features,
                             .grad_elements = TABLES};
    assert_null(kernel_refuses(kernel_of(state), &in));
    free(tables);
    free(features);
}

/* --- untouched rows */

/* Every third row is untouched, with values that arithmetic would change: a step with a zero
 * gradient quiets a signalling NaN, flushing to zero loses a subnormal. */
static void untouched_rows(void **state) {
    const struct kernel *k = kernel_of(state);
    static const uint32_t odd[] = {0x7fa00001, 0x00000001, 0x80000000, 0xff800000, 0x80000123};
    if (k->traits & DENSE_STEP) skip(); /* it computes with all rows: none is untouched */
    struct builder b;
    builder_begin(&b, 10, false);
    builder_feature(&b, builder_table(&b, ROWS, DIM), POOL_SUM, -1);
    for (int64_t q = 0; q < ROWS; q++)
        if (q % 3) builder_bag(&b, 2, (const int64_t[]){q, q / 3 * 3 + 1});
    builder_finish(&b);
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(&b, k, (enum rule_kind)rule);
        builder_start(&b);
        for (int64_t row = 0; row < ROWS; row += 3) {
            struct row_memory m = row_memory(b.tables.tables, b.in.tables, row);
            for (int d = 0; d < DIM; d++) {
                memcpy(&m.weight[d], &odd[d % 5], sizeof *odd);
                if (m.elem[0]) memcpy(&m.elem[0][d], &odd[(d + 1) % 5], sizeof *odd);
            }
            if (m.row) memcpy(m.row, &odd[row % 5], sizeof *odd);
        }
        const char *wrong = builder_run(&b, k, 2);
        if (!wrong) wrong = builder_judge(&b, k);
        if (wrong) fail_msg("%s", wrong);
    }
    builder_free(&b);
}

/* --- sums begin at 0 */

static int64_t hot_row_at(int64_t i) {
    return i % 3 == 0 ? 200 + i % 700 : i % 97 == 1 ? 4 : 3;
}

static void zero_grad(const struct builder *b) {
    for (int32_t f = 0; f < b->in.num_features; f++)
        for (int64_t q = 0; q < b->in.bags; q++)
            memset(builder_grad(b, f, q), 0,
                   (size_t)b->shapes[b->features[f].table].dim * sizeof(float));
}

static void zero_tables(const struct builder *b) {
    for (int32_t t = 0; t < b->in.num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (b->tables.tables[t].array[a].data)
                memset(b->tables.tables[t].array[a].data, 0, table_memory_bytes(&b->shapes[t], a));
}

/* Few rows of two features, few of one, hot ones, others. */
static void build_few_and_hot(struct builder *b, const struct kernel *k) {
    enum { PER_BAG = 30 };
    builder_begin(b, 14, true);
    int32_t few = builder_table(b, 9, 20);
    for (int f = 0; f < 2; f++) {
        builder_feature(b, few, POOL_SUM, -1);
        builder_random_bags(b, 20, 5);
    }
    builder_feature(b, builder_table(b, 7, 33), POOL_SUM, -1);
    builder_random_bags(b, 20, 5);
    builder_feature(b, builder_table(b, 30000, 5), POOL_SUM, -1);
    for (int64_t q = 0; q < 150 / builder_smaller(k); q++) {
        int64_t ids[PER_BAG];
        for (int64_t i = 0; i < PER_BAG; i++) ids[i] = hot_row_at(q * PER_BAG + i);
        builder_bag(b, PER_BAG, ids);
    }
    builder_finish(b);
}

/* Gradients of 0 leave weights and states of 0 as they are, bit for bit: this test notices a float
 * that elsewhere is as good as 0. */
static void sums_begin_at_zero(void **state) {
    const struct kernel *k = kernel_of(state);
    struct builder b;
    build_few_and_hot(&b, k);
    zero_grad(&b);
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(&b, k, (enum rule_kind)rule);
        for (int32_t t = 0; t < b.in.num_tables; t++)
            if (builder_moves(b.rules[t], 0)) builder_rule(&b, t, RULE_sgd); /* it counts steps */
        builder_start(&b);
        zero_tables(&b);
        const char *wrong = builder_run(&b, k, 2);
        if (wrong) fail_msg("%s", wrong);
        size_t bytes, zeros = 0;
        unsigned char *now = builder_snapshot(&b, &bytes);
        while (zeros < bytes && now[zeros] == 0) zeros++;
        free(now);
        assert_int_equal(zeros, bytes);
    }
    builder_free(&b);
}

/* --- NaN and infinity */

/* Whether a bag of the feature looks up the row. */
static bool bag_has(const struct builder *b, int32_t feature, int64_t bag, int64_t row) {
    const int64_t *at = b->in.offsets + feature * b->in.bags + bag;
    for (int64_t i = at[0]; i < at[1]; i++)
        if (batch_id(&b->in, i) == row) return true;
    return false;
}

/* Bag 3 of every feature has a NaN or an infinity in its gradient. */
static bool row_gets_odd(const struct builder *b, int32_t table, int64_t row) {
    for (int32_t f = 0; f < b->in.num_features; f++)
        if (b->features[f].table == table && bag_has(b, f, 3, row)) return true;
    return false;
}

/* Compares a row of a run with odd gradients with the same row of a run without. repeats: two runs give the same
 * bits; on a real device the order of atomics does not repeat, and a step per lookup rounds after each. */
static void assert_odd_stays(const struct builder *b, const struct table *clean, bool repeats,
                             int32_t t, int64_t row, int counts[2]) {
    bool differs = false, odd = false;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(&b->shapes[t], a);
        if (!width) continue;
        const float *now = array_row(&b->tables.tables[t].array[a], row);
        differs |= memcmp(now, array_row(&clean[t].array[a], row), (size_t)width * 4) != 0;
        for (int64_t d = 0; d < width; d++) odd |= !isfinite(now[d]);
    }
    const bool gets = row_gets_odd(b, t, row);
    if (gets ? !odd : odd || (repeats && differs))
        fail_msg("table %d row %d: %s", (int)t, (int)row, gets ? "lost it" : "got it");
    counts[gets]++;
}

/* Such a gradient reaches the rows that are looked up with it, and no others. The three tables have
 * three rules at a time. What values do, sanitizers do not see: they get fewer rules. */
static void odd_gradients_stay(void **state) {
    const struct kernel *k = kernel_of(state);
    const bool per_lookup = k->traits & STEP_PER_LOOKUP,
               repeats = !per_lookup || builder_emulates(k);
    for (int rule = 0; rule < (per_lookup ? 1 : RULE_COUNT);
         rule += builder_rules_take_turns(k) ? 12 : 3) {
        const enum rule_kind first = per_lookup ? RULE_sgd : (enum rule_kind)rule;
        struct builder b, clean;
        build_few_and_hot(&clean, k);
        build_few_and_hot(&b, k);
        builder_rules(&clean, k, first);
        builder_rules(&b, k, first);
        for (int32_t f = 0; f < b.in.num_features; f++)
            builder_grad(&b, f, 3)[f] = (rule + f) % 2 ? NAN : -INFINITY;
        int counts[2] = {0, 0};
        run(&clean, k, 2);
        run(&b, k, 2);
        for (int32_t t = 0; t < b.in.num_tables; t++)
            for (int64_t row = 0; row < b.shapes[t].rows; row++)
                assert_odd_stays(&b, clean.tables.tables, repeats, t, row, counts);
        assert_true(counts[0] > 0 && counts[1] > 0);
        builder_free(&b);
        builder_free(&clean);
    }
}

/* --- determinism */

/* Real gradients, so that sums depend on the order; segments of up to 40,000 lookups, longer than
 * any that a kernel leaves whole; several tables with many or few rows, poolings and weights. */
static void build_for_determinism(struct builder *b, const struct kernel *kernel) {
    enum { LOOKUPS = 63000, PER_BAG = 30 };
    builder_begin(b, 12, false);
    b->smaller = builder_smaller(kernel);
    b->weighted = true;
    int32_t t = builder_table(b, 30000, 19);
    builder_feature(b, t, POOL_SUM, -1);
    for (int64_t q = 0; q < LOOKUPS / PER_BAG / b->smaller; q++) {
        int64_t ids[PER_BAG];
        for (int64_t k = 0; k < PER_BAG; k++) ids[k] = hot_row_at(q * PER_BAG + k);
        builder_bag(b, PER_BAG, ids);
    }
    builder_feature(b, t, POOL_NONE, 3);
    builder_random_bags(b, 50, 20);
    builder_feature(b, t, POOL_MEAN, -1);
    builder_random_bags(b, 50, 20);
    builder_feature(b, builder_table(b, 300, 33), POOL_SUM, -1);
    builder_random_bags(b, 2000 / b->smaller, 30);
    builder_finish(b);
}

static int64_t longest_run(const struct row_index *x) {
    int64_t longest = 0;
    for (int64_t u = 0; u < x->rows; u++)
        if (x->run[u + 1].first - x->run[u].first > longest)
            longest = x->run[u + 1].first - x->run[u].first;
    return longest;
}

/* 5 runs in each way; all results equal the first one bit for bit. */
static void deterministic(void **state) {
    const struct kernel *k = kernel_of(state);
    if (!(k->traits & DETERMINISTIC)) skip();
    struct builder b;
    build_for_determinism(&b, k);
    assert_true(longest_run(&b.index) > 32768 / b.smaller);
    for (int rule = 0; rule < RULE_COUNT; rule += rules_apart(k)) {
        if (!builder_distinct(k, rule)) continue;
        void *first = NULL;
        builder_rules(&b, k, (enum rule_kind)rule);
        for (int i = 0; i < 5 * builder_ways(k); i++) {
            size_t bytes;
            run(&b, k, builder_way[i / 5]);
            void *now = builder_snapshot(&b, &bytes);
            if (first && memcmp(first, now, bytes) != 0)
                fail_msg("%s, %s, run %d differs from the very first",
                         rule_info((enum rule_kind)rule).name,
                         builder_name_way(k, builder_way[i / 5]), i % 5 + 1);
            if (first)
                free(now);
            else
                first = now;
        }
        free(first);
    }
    builder_free(&b);
}

/* The gradients above reveal the order: with bags in another order, some sums have other bits. */
static void order_matters_in_floats(void **state) {
    (void)state;
    struct builder b;
    build_for_determinism(&b, NULL);
    const struct row_run *u = b.index.run;
    while (u[1].first - u->first <= 32768) u++;
    int differ = 0;
    for (int32_t d = 0; d < 19; d++) {
        float forwards = 0, backwards = 0;
        int64_t n = u[1].first - u->first;
        for (int64_t k = 0; k < n; k++) {
            int64_t up = b.index.lookup[u->first + k].bag;
            int64_t down = b.index.lookup[u[1].first - 1 - k].bag;
            if (up < b.in.bags) forwards += builder_grad(&b, 0, up)[d];
            if (down < b.in.bags) backwards += builder_grad(&b, 0, down)[d];
        }
        differ += forwards != backwards;
    }
    assert_true(differ > 15);
    builder_free(&b);
}

TESTS(properties) {
    add_kernel_tests("permuted lookups", permute_lookups, NULL);
    add_kernel_tests("split pairs", split_pairs, NULL);
    add_kernel_tests("merged duplicates", merge_duplicates, NULL);
    add_kernel_tests("concatenated features", concatenate_features, NULL);
    add_kernel_tests("tables in calls of their own", separate_calls, NULL);
    add_kernel_tests_on(ON_HOST, "many threads", many_threads, NULL);
    add_kernel_tests("65535 tables", most_tables, NULL);
    add_kernel_tests("untouched rows", untouched_rows, NULL);
    add_kernel_tests("sums begin at 0", sums_begin_at_zero, NULL);
    add_kernel_tests("NaN and infinity", odd_gradients_stay, NULL);
    add_test("order matters in floats", order_matters_in_floats, NULL, NULL);
    add_kernel_tests("same bits on every run", deterministic, NULL);
    return run_listed("properties");
}
