/* SPDX-License-Identifier: MIT
 *
 * Defects of published implementations of this step, or of the tests that should have found them:
 * one test each, named after its project, for every kernel of the registry.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

static const struct kernel *kernel_of(void **state) {
    return ((const struct kernel_test *)*state)->kernel;
}

static void check_rule(struct builder *b, const struct kernel *k) {
    for (int i = 0; i < builder_ways(k); i++) {
        const char *wrong = builder_check(b, k, builder_way[i]);
        if (wrong) fail_msg("%s", wrong);
    }
}

/* One rule after the other, each in another way. */
static void check_all_rules(struct builder *b, const struct kernel *k) {
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        if (!builder_distinct(k, rule)) continue;
        builder_rules(b, k, (enum rule_kind)rule);
        const char *wrong = builder_check(b, k, builder_way[rule % builder_ways(k)]);
        if (wrong) fail_msg("%s", wrong);
    }
}

/* One table with one pooled feature. */
static void begin(struct builder *b, int64_t rows, int32_t dim, enum pooling pooling) {
    builder_begin(b, 21, true);
    builder_feature(b, builder_table(b, rows, dim), pooling, -1);
}

/* Intel Extension for PyTorch, MergedEmbeddingBagBackwardKrnl.cpp: all vectors of a row got the
 * first vector's gradient. Its test backpropagates a sum, so all gradients were 1. Here no two
 * columns have the same gradient. */
static void ipex_gradient_of_first_vector(void **state) {
    enum { DIM = 128 };
    struct builder b;
    begin(&b, 10, DIM, POOL_SUM);
    for (int64_t q = 0; q < 8; q++) builder_bag(&b, 3, (const int64_t[]){q, q, (q + 3) % 10});
    builder_finish(&b);
    for (int64_t q = 0; q < 8; q++)
        for (int d = 0; d < DIM; d++) builder_grad(&b, 0, q)[d] = (float)(d - 40 * q) * 0x1p-6f;
    builder_recount(&b);
    assert_true(b.sums_exact);
    check_all_rules(&b, kernel_of(state));
    builder_free(&b);
}

static float state_between(const struct rule_state *s, float part) {
    return s->low + part * (s->high - s->low);
}

/* The same file: sqrt(h) + eps in the vector body, sqrt(h + eps) in the scalar tail. Monolith,
 * avx_utils.h: weight decay in the tail only. With one gradient, weight and state in all columns,
 * body and tail must give the same result; epsilon is large. */
static void ipex_monolith_tail_is_another_formula(void **state) {
    const struct kernel *k = kernel_of(state);
    for (int32_t dim = 2; dim <= 70; dim += builder_emulates(k) && dim > 8 ? 5 : 1) {
        struct builder b;
        begin(&b, 3, dim, POOL_SUM);
        builder_bag(&b, 2, (const int64_t[]){1, 2});
        builder_bag(&b, 1, (const int64_t[]){1});
        builder_finish(&b);
        for (int d = 0; d < dim; d++) builder_grad(&b, 0, 0)[d] = 3, builder_grad(&b, 0, 1)[d] = -5;
        for (int rule = 0; rule < RULE_COUNT; rule++) {
            if (!builder_distinct(k, rule)) continue;
            builder_rules(&b, k, (enum rule_kind)rule);
            const struct rule_info info = rule_info((enum rule_kind)rule);
            builder_set(&b.rules[0], "eps", 4);
            builder_start(&b);
            for (int64_t row = 0; row < 3; row++) {
                struct row_memory m = row_memory(b.tables.tables, b.in.tables, row);
                for (int d = 0; d < dim; d++) {
                    m.weight[d] = 0.7f;
                    for (int s = 0; s < info.elem_states; s++)
                        m.elem[s][d] = state_between(&info.elem[s], 0.7f);
                }
            }
            const char *wrong = builder_run(&b, k, 1);
            if (!wrong) wrong = builder_judge(&b, k);
            if (wrong) fail_msg("%s", wrong);
            if (k->traits & STEP_PER_LOOKUP)
                continue; /* rounds in an order of its own per column */
            const float *w = row_memory(b.tables.tables, b.in.tables, 1).weight;
            for (int d = 1; d < dim; d++) assert_memory_equal(&w[d], &w[0], sizeof *w);
        }
        builder_free(&b);
    }
}

/* PyTorch EmbeddingBag on CPU, #190063: counts of one row were used for another. Here the counts of
 * rows and bags all differ; the mean divides by the bag's count, nothing by the row's. */
static void pytorch_counts_of_another_row(void **state) {
    struct builder b;
    begin(&b, 6, 5, POOL_MEAN);
    builder_bag(&b, 8, (const int64_t[]){5, 1, 5, 0, 5, 1, 5, 5});
    builder_bag(&b, 2, (const int64_t[]){1, 1});
    builder_bag(&b, 4, (const int64_t[]){2, 5, 2, 0});
    builder_bag(&b, 1, (const int64_t[]){4});
    builder_finish(&b);
    assert_true(b.sums_exact);
    check_all_rules(&b, kernel_of(state));
    builder_free(&b);
}

/* Has the last run changed anything of a row of table 0? */
static bool row_changed(const struct builder *b, int64_t row) {
    const struct table_shape *shape = &b->in.tables[0];
    struct row_memory was = row_memory(&b->before.tables[0], shape, row),
                      is = row_memory(&b->tables.tables[0], shape, row);
    size_t bytes = (size_t)shape->dim * sizeof(float);
    bool changed = memcmp(was.weight, is.weight, bytes) != 0;
    for (int k = 0; k < RULE_ELEM_STATES && was.elem[k]; k++)
        changed |= memcmp(was.elem[k], is.elem[k], bytes) != 0;
    const size_t states = (size_t)rule_row_states(b->rules[0].kind) * sizeof(float);
    return changed || (states && memcmp(was.row, is.row, states) != 0);
}

/* DeepSpeed SparseTensor, #8504: rows with elements that add up to 0 were dropped. Row 0: elements
 * of one gradient cancel; row 1: gradients of two lookups cancel in every element; row 2: the
 * gradient is 0. All three are touched: momentum and Adam move them. */
static void deepspeed_zero_sum_rows(void **state) {
    enum { DIM = 4 };
    const struct kernel *k = kernel_of(state);
    static const float grad[4][DIM] = {
        {1, -1, 2, -2}, {3, 5, -1, 4}, {-3, -5, 1, -4}, {0, 0, 0, 0}};
    struct builder b;
    begin(&b, 5, DIM, POOL_SUM);
    for (int64_t q = 0; q < 4; q++)
        builder_bag(&b, 1, (const int64_t[]){q == 0 ? 0 : q == 3 ? 2 : 1});
    builder_finish(&b);
    for (int q = 0; q < 4; q++) memcpy(builder_grad(&b, 0, q), grad[q], sizeof grad[q]);
    check_all_rules(&b, k);
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        if (!kernel_applies(k, (enum rule_kind)rule) ||
            !builder_moves(rule_default((enum rule_kind)rule), 0.25f))
            continue;
        builder_rule(&b, 0, (enum rule_kind)rule);
        check_rule(&b, k);
        for (int64_t row = 0; row < 3; row++) assert_true(row_changed(&b, row));
    }
    builder_free(&b);
}

/* PyTorch embedding_renorm on CUDA, #44792: unsorted ids with duplicates far apart. */
static void pytorch_unsorted_duplicates(void **state) {
    struct builder b;
    begin(&b, 130, 7, POOL_SUM);
    builder_bag(&b, 9, (const int64_t[]){90, 3, 129, 3, 64, 90, 0, 129, 3});
    builder_bag(&b, 0, NULL);
    builder_bag(&b, 5, (const int64_t[]){64, 63, 0, 90, 64});
    builder_finish(&b);
    check_all_rules(&b, kernel_of(state));
    builder_free(&b);
}

/* --- two lookups of one row of one element, with gradients 3 and 4: by hand */

static void check_two_lookups(const struct kernel *k, struct rule rule, float state_before,
                              float state_after, float w_after) {
    if (!kernel_applies(k, (enum rule_kind)rule.kind)) skip();
    struct builder b;
    begin(&b, 1, 1, POOL_SUM);
    builder_bag(&b, 1, (const int64_t[]){0});
    builder_bag(&b, 1, (const int64_t[]){0});
    builder_finish(&b);
    *builder_grad(&b, 0, 0) = 3;
    *builder_grad(&b, 0, 1) = 4;
    builder_rule(&b, 0, rule.kind);
    b.rules[0] = rule;
    builder_start(&b);
    struct row_memory m = row_memory(b.tables.tables, b.in.tables, 0);
    float *state = m.row ? m.row : m.elem[0];
    *m.weight = 1;
    *state = state_before;
    assert_null(builder_run(&b, k, 2));
    assert_true(*state == state_after);
    assert_true(*m.weight == w_after);
    builder_free(&b);
}

/* Keras 3, sparse Adam and Adagrad: added the squares of duplicates, not the square of their sum.
 * s = 176 + (3 + 4)^2 = 225, not 176 + 9 + 16; w = 1 - 0.5*7/(15 + 1). */
static void keras_square_before_sum(void **state) {
    check_two_lookups(kernel_of(state), (struct rule){RULE_adagrad, {0.5f, 1}}, 176, 225, 0.78125f);
}

static void keras_square_before_sum_of_rows(void **state) {
    check_two_lookups(kernel_of(state), (struct rule){RULE_rowwise_adagrad, {0.5f, 1}}, 176, 225,
                      0.78125f);
}

/* caffe2 PR #254, TensorNet #29: one state update per duplicate.
 * b = 0.5*2 + 7 = 8, not 0.5*(0.5*2 + 3) + 4 = 6; w = 1 - 0.25*8. */
static void caffe2_tensornet_step_per_duplicate(void **state) {
    check_two_lookups(kernel_of(state), (struct rule){RULE_momentum, {0.25f, 0.5f}}, 2, 8, -1);
}

/* PaddlePaddle: the GPU kept the gradient of the padding row, the CPU did not. Here padding is a
 * hot row, first and last in bags; gradient rows without other lookups are NaN. */
static void paddle_padding_row_updated(void **state) {
    for (int pooling = POOL_SUM; pooling <= POOL_MAX; pooling++) {
        struct builder b;
        builder_begin(&b, 22, true);
        builder_feature(&b, builder_table(&b, 9, 20), (enum pooling)pooling, 4);
        builder_bag(&b, 4, (const int64_t[]){4, 1, 4, 4});
        builder_bag(&b, 2, (const int64_t[]){4, 4});
        builder_bag(&b, 5, (const int64_t[]){8, 4, 0, 4, 4});
        builder_finish(&b);
        check_all_rules(&b, kernel_of(state));
        builder_free(&b);
    }
}

/* WholeGraph PR #108: undefined behaviour if D is not a multiple of 32. FBGEMM #2509: D below 32
 * with long segments hung. */
static void wholegraph_ragged_dims(void **state) {
    static const int32_t dims[] = {1, 3, 17, 31, 33, 100, 127};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        struct builder b;
        begin(&b, 50, dims[i], POOL_SUM);
        builder_random_bags(&b, 30, 20);
        builder_finish(&b);
        check_all_rules(&b, kernel_of(state));
        builder_free(&b);
    }
}

/* FBGEMM #5732: segments of 32 lookups and more got no gradient. Row r has r + 1 lookups. */
static void fbgemm_runs_of_any_length(void **state) {
    enum { ROWS = 140 };
    struct builder b;
    begin(&b, ROWS, 9, POOL_SUM);
    for (int64_t q = 0; q < ROWS; q++) {
        int64_t ids[ROWS];
        for (int64_t r = q; r < ROWS; r++) ids[r - q] = r;
        builder_bag(&b, ROWS - q, ids);
    }
    builder_finish(&b);
    check_all_rules(&b, kernel_of(state));
    builder_free(&b);
}

/* FBGEMM #753 and torchrec #3728: several features read one table, with gradients at different
 * offsets; and features of another table surround one feature. */
static void fbgemm_torchrec_shared_tables(void **state) {
    struct builder b;
    builder_begin(&b, 23, true);
    int32_t s = builder_table(&b, 30, 18), t = builder_table(&b, 30, 5);
    for (int f = 0; f < 5; f++) {
        builder_feature(&b, f == 2 ? t : s, f == 3 ? POOL_NONE : POOL_SUM, -1);
        builder_random_bags(&b, 12, 4);
    }
    builder_finish(&b);
    check_all_rules(&b, kernel_of(state));
    builder_free(&b);
}

TESTS(defects) {
    add_kernel_tests("IPEX, gradient of the first vector", ipex_gradient_of_first_vector, NULL);
    add_kernel_tests("IPEX and Monolith, tail is another formula",
                     ipex_monolith_tail_is_another_formula, NULL);
    add_kernel_tests("PyTorch, counts of another row", pytorch_counts_of_another_row, NULL);
    add_kernel_tests("DeepSpeed, rows that sum to 0", deepspeed_zero_sum_rows, NULL);
    add_kernel_tests("PyTorch, unsorted duplicates", pytorch_unsorted_duplicates, NULL);
    add_kernel_tests("Keras, square before sum", keras_square_before_sum, NULL);
    add_kernel_tests("Keras, square before sum, row-wise", keras_square_before_sum_of_rows, NULL);
    add_kernel_tests("caffe2 and TensorNet, a step per duplicate",
                     caffe2_tensornet_step_per_duplicate, NULL);
    add_kernel_tests("PaddlePaddle, padding row updated", paddle_padding_row_updated, NULL);
    add_kernel_tests("WholeGraph, ragged dims", wholegraph_ragged_dims, NULL);
    add_kernel_tests("FBGEMM, runs of any length", fbgemm_runs_of_any_length, NULL);
    add_kernel_tests("FBGEMM and torchrec, shared tables", fbgemm_torchrec_shared_tables, NULL);
    return run_listed("defects");
}
