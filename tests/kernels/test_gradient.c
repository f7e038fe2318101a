/* SPDX-License-Identifier: MIT
 *
 * The gradient as a product: numbers worked by hand, other optimizers that take it, and gradients
 * that the check must reject.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gradient.h"
#include "tests/support/output_run.h"

#include "tests/support/kernel_tests.h"

/* A kernel's gradient of a batch. */
struct product {
    void *output;
    struct sparse_gradient *of; /* [num_tables] in output */
};

static struct product product_of(struct builder *b, const struct kernel *k, int way) {
    char text[400];
    struct product p = {malloc(gradient_lay_out(&b->in, false, NULL, NULL)),
                        malloc((size_t)b->in.num_tables * sizeof *p.of)};
    if (output_run(b, k, way, p.output, text)) fail_msg("%s", text);
    gradient_lay_out(&b->in, k->traits & MERGED, p.output, p.of);
    return p;
}

static void product_free(struct product *p) {
    free(p->output);
    free(p->of);
}

/* --- numbers by hand */

/* What a gradient must be: `count` rows, and the values of column 0; those of column 1 are 10 times
 * as large. */
struct by_hand {
    int64_t count, row[8];
    float value[8];
};

/* Bags {1, 4, 1}, {}, {3}, {3, 1} of 6 rows; row 3 is padding. The gradient of bag b (POOL_NONE: of
 * lookup i) is (b+1, 10 (b+1)); the lookups weigh 1, 2, 3, 1, 1, 0.5 if `weighted`. */
static void check_by_hand(const struct kernel *k, enum pooling pooling, bool weighted,
                          const struct by_hand *want) {
    static const int64_t ids[] = {1, 4, 1, 3, 3, 1}, lengths[] = {3, 0, 1, 2};
    static const float weights[] = {1, 2, 3, 1, 1, 0.5f};
    struct builder b;
    builder_begin(&b, 1, true);
    b.weighted = weighted;
    builder_feature(&b, builder_table(&b, 6, 2), pooling, 3);
    for (int q = 0, at = 0; q < 4; at += (int)lengths[q++]) builder_bag(&b, lengths[q], ids + at);
    builder_finish(&b);
    const bool each = pooling == POOL_NONE;
    for (int r = 0; r < (each ? 6 : 4); r++)
        for (int d = 0; d < 2; d++)
            if (each ? ids[r] != 3 : r == 0 || r == 3)
                builder_grad(&b, 0, r)[d] = (d ? 10 : 1) * (float)(r + 1);
    if (weighted) memcpy((float *)b.in.lookup_weights, weights, sizeof weights);
    builder_pack(&b);
    builder_recount(&b);
    builder_start(&b);
    struct product p = product_of(&b, k, 1);
    assert_int_equal(*p.of[0].count, want->count);
    for (int64_t e = 0; e < want->count; e++) {
        assert_int_equal(p.of[0].rows[e], want->row[e]);
        for (int d = 0; d < 2; d++) {
            const float got = p.of[0].values[2 * e + d];
            if (fabsf(got - (d ? 10 : 1) * want->value[e]) > 1e-5f * fabsf(got))
                fail_msg("entry %d [%d]: got %g", (int)e, d, (double)got);
        }
    }
    product_free(&p);
    builder_free(&b);
}

static void worked_by_hand(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const bool merged = k->traits & MERGED;
    const struct by_hand sum[] = {{4, {1, 4, 1, 1}, {1, 1, 1, 4}}, {2, {1, 4}, {6, 1}}};
    const struct by_hand mean[] = {{4, {1, 4, 1, 1}, {1 / 3.f, 1 / 3.f, 1 / 3.f, 4}},
                                   {2, {1, 4}, {14 / 3.f, 1 / 3.f}}};
    const struct by_hand none[] = {{4, {1, 4, 1, 1}, {1, 2, 3, 6}}, {2, {1, 4}, {10, 2}}};
    const struct by_hand weighted[] = {{4, {1, 4, 1, 1}, {1, 2, 3, 2}}, {2, {1, 4}, {6, 2}}};
    check_by_hand(k, POOL_SUM, false, &sum[merged]);
    check_by_hand(k, POOL_MEAN, false, &mean[merged]);
    check_by_hand(k, POOL_NONE, false, &none[merged]);
    check_by_hand(k, POOL_SUM, true, &weighted[merged]);
}

/* --- optimizers that take the product */

static const struct kernel *kernel_named(enum operation operation, const char *name) {
    struct error err = {""};
    const struct kernel *k = registry_find(operation, name, &err);
    if (!k) fail_msg("%s", err.text);
    return k;
}

/* An optimizer elsewhere: applies the tables' rules to each entry of a gradient, one after
 * another. */
static void optimize(struct builder *b, const struct sparse_gradient *of) {
    for (int32_t t = 0; t < b->in.num_tables; t++) {
        const struct rule_step step = rule_step(b->rules[t], b->step);
        const struct table_shape *shape = &b->in.tables[t];
        for (int64_t e = 0; e < *of[t].count; e++) {
            struct row_memory row;
            for (int a = 0; a < TABLE_ARRAYS; a++)
                row.array[a] = array_row(&b->tables.tables[t].array[a], of[t].rows[e]);
            rule_apply(&step, &row, shape->dim, of[t].values + e * shape->dim);
        }
    }
}

/* Two tables, one with two features; rows repeat. */
static void begin_with_rule(struct builder *b, enum rule_kind rule) {
    builder_begin(b, 5, false);
    b->weighted = true;
    for (int t = 0; t < 2; t++) {
        const int32_t table = builder_table(b, 40, 16 + 3 * t);
        for (int f = 0; f <= t; f++) {
            builder_feature(b, table, f ? POOL_MEAN : POOL_SUM, t ? 2 : -1);
            builder_random_bags(b, 30, 9);
        }
    }
    builder_finish(b);
    for (int32_t t = 0; t < 2; t++) builder_rule(b, t, rule);
}

/* Tables after the rule took the gradient of a kernel; from malloc. */
static void *after_product(struct builder *b, const char *name, size_t *bytes) {
    const struct kernel *k = kernel_named(OP_GRADIENT, name);
    builder_start(b);
    struct product p = product_of(b, k, 3);
    optimize(b, p.of);
    product_free(&p);
    return builder_snapshot(b, bytes);
}

static void merged_then_rule_is_a_step(void **state) {
    (void)state;
    for (int r = 0; r < RULE_COUNT; r++) {
        struct builder b;
        size_t bytes, others;
        begin_with_rule(&b, (enum rule_kind)r);
        void *ours = after_product(&b, "cpu_merged", &bytes);
        builder_start(&b);
        const char *wrong = builder_run(&b, kernel_named(OP_STEP, "cpu_sort"), 3);
        if (wrong) fail_msg("%s", wrong);
        void *step = builder_snapshot(&b, &others);
        assert_int_equal(bytes, others);
        if (memcmp(ours, step, bytes)) fail_msg("rule %s differs", rule_info(r).name);
        free(ours);
        free(step);
        builder_free(&b);
    }
}

/* One step per entry is another function, unless the rule is linear: then only roundings differ. */
static void unmerged_needs_a_linear_rule(void **state) {
    (void)state;
    static const enum rule_kind rules[] = {RULE_adagrad, RULE_sgd};
    for (int r = 0; r < 2; r++) {
        struct builder b;
        size_t bytes;
        double most = 0;
        begin_with_rule(&b, rules[r]);
        void *merged = after_product(&b, "cpu_merged", &bytes);
        float *each = after_product(&b, "cpu_unmerged", &bytes);
        for (size_t i = 0; i < bytes / sizeof *each; i++)
            most = fmax(most, fabs((double)each[i] - (double)((float *)merged)[i]));
        if (rule_linear(rules[r]) ? most > 1e-4 : most < 1e-2)
            fail_msg("%s: they differ by up to %g", rule_info(rules[r]).name, most);
        free(merged);
        free(each);
        builder_free(&b);
    }
}

/* --- gradients that are wrong */

enum planted {
    NOTHING,
    COUNT_TOO_LOW,
    OTHER_ROW,
    ROWS_SWAPPED,
    ONE_VALUE,
    LOST_LOOKUP,
    BEHIND_ROWS,
    BEHIND_VALUES,
    AFTER_LAST,
    NO_STAGE,
    CHANGES_A_ROW,
    OUTSIDE,
    PLANTED
};
static enum planted planted;
static const struct kernel *planted_in;

static int run_planted(const struct batch *in, const struct rule_step *steps,
                       const struct table *io, const struct launch *how) {
    struct sparse_gradient of[1];
    struct launch silent = *how;
    if (planted == NO_STAGE) silent.mark = NULL;
    if (planted == NOTHING) {
        stage_done(how, STAGE_REDUCE);
        return 0;
    }
    planted_in->run(in, steps, io, &silent);
    const bool merged = planted_in->traits & MERGED;
    const size_t bytes = gradient_lay_out(in, merged, how->output, of),
                 all = gradient_lay_out(in, false, NULL, NULL);
    const int32_t dim = in->tables[0].dim;
    int64_t *rows = of->rows, first = rows[0];
    switch (planted) {
    case COUNT_TOO_LOW: --*of->count; break;
    case OTHER_ROW: rows[1] ^= 32; break;
    case ROWS_SWAPPED: rows[0] = rows[1], rows[1] = first; break;
    case ONE_VALUE: of->values[dim - 1] += 0.01f * fabsf(of->values[dim - 1]) + 0.001f; break;
    case LOST_LOOKUP: memset(of->values + dim, 0, (size_t)dim * sizeof(float)); break;
    case BEHIND_ROWS: rows[*of->count] = 0; break;
    case BEHIND_VALUES: of->values[*of->count * dim] = 0; break;
    case AFTER_LAST: ((char *)how->output)[merged ? bytes : all - 1] = 0; break;
    case CHANGES_A_ROW: *(float *)array_row(&io->weight, 3) += 1; break;
    case OUTSIDE: ((char *)how->output)[all] = 0; break;
    default: break;
    }
    return 0;
}

/* Rows 0 .. 39 have padding, so that both forms have fewer entries than their capacity. */
static void wrong_gradients_are_found(void **state) {
    (void)state;
    static const char *const says[PLANTED] = {
        [NOTHING] = "entries, expected",
        [COUNT_TOO_LOW] = "entries, expected",
        [OTHER_ROW] = "expected row",
        [ROWS_SWAPPED] = "expected row",
        [ONE_VALUE] = "allowed",
        [LOST_LOOKUP] = "allowed",
        [BEHIND_ROWS] = "belongs to no entry",
        [BEHIND_VALUES] = "belongs to no entry",
        [AFTER_LAST] = "belongs to no entry",
        [NO_STAGE] = "stages",
        [CHANGES_A_ROW] = "row 3",
        [OUTSIDE] = "outside",
    };
    for (const struct registered *r = registry(); r->kernel; r++)
        for (int p = 0; p < PLANTED; p++) {
            planted_in = r->kernel;
            if (planted_in->operation != OP_GRADIENT || planted_in->place != ON_HOST) continue;
            if (p == OUTSIDE && WITH_SANITIZER) continue; /* AddressSanitizer stops there */
            struct builder b;
            char text[400];
            struct kernel k = *planted_in;
            planted = (enum planted)p;
            k.name = "planted";
            k.run = run_planted;
            builder_begin(&b, 7, false);
            builder_feature(&b, builder_table(&b, 40, 12), POOL_SUM, 1);
            builder_random_bags(&b, 30, 9);
            builder_finish(&b);
            builder_start(&b);
            const int status = output_run(&b, &k, 1, NULL, text);
            if (status != 1 || !strstr(text, says[p]))
                fail_msg("%s, planted %d: %d, %s", planted_in->name, p, status, text);
            builder_free(&b);
        }
}

TESTS(gradient) {
    add_operation_tests(OP_GRADIENT, "worked by hand", worked_by_hand, NULL);
    add_test("merged, then a rule, is a step", merged_then_rule_is_a_step, NULL, NULL);
    add_test("unmerged needs a linear rule", unmerged_needs_a_linear_rule, NULL, NULL);
    add_test("wrong gradients are found", wrong_gradients_are_found, NULL, NULL);
    return run_listed("gradient");
}
