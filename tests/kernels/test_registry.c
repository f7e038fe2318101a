/* SPDX-License-Identifier: MIT
 *
 * What the registry and the rules say of themselves, and what kernels refuse. (The folder is the
 * registry: tests/portable/test_add.py. What kernels include: tests/programs/test_extras.py.)
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/batch_builder.h"

#include "tests/support/kernel_tests.h"

/* --- what a rule says about itself */

static void assert_states(const struct rule_info *a, const struct rule_state *s, int count,
                          int most) {
    for (int k = 0; k < most; k++) {
        assert_true(!s[k].name == (k >= count));
        if (!s[k].name) continue;
        assert_true(*s[k].name && isfinite(s[k].initial) && s[k].low < s[k].high);
        const int from = s[k].initial_param;
        assert_true(from >= 0 && from < a->num_params);
        if (from) assert_true(s[k].initial == a->params[from].preset);
    }
}

static void rules_are_described(void **state) {
    (void)state;
    for (int i = 0; i < RULE_COUNT; i++) {
        const struct rule_info a = rule_info((enum rule_kind)i);
        assert_true(*a.formula && *a.source);
        assert_states(&a, a.elem, a.elem_states, RULE_ELEM_STATES);
        assert_states(&a, a.row, a.row_states, RULE_ROW_STATES);
        for (int k = 0; k < a.num_params; k++) {
            const struct rule_param *p = &a.params[k];
            assert_true(*p->name && p->preset >= p->least && p->preset < p->below);
        }
        assert_string_equal(a.params[RULE_LR].name, "lr");
        assert_true(!a.linear || (a.elem_states == 0 && a.row_states == 0));
    }
}

static void found_by_name(void **state) {
    (void)state;
    struct error err;
    for (const struct registered *r = registry(); r->kernel; r++)
        assert_ptr_equal(registry_find(r->kernel->operation, r->kernel->name, &err), r->kernel);
    assert_null(registry_find(OP_STEP, "cpu_lookup", &err)); /* it computes something else */
    assert_null(registry_find(OP_STEP, "no_such_kernel", &err));
    assert_non_null(strstr(err.text, "no_such_kernel"));
    assert_non_null(strstr(err.text, registry()->kernel->name));
}

static void many_tables(void **state) {
    enum { TABLES = 65535 };
    struct table_shape *tables = calloc(TABLES, sizeof *tables);
    struct feature *features = calloc(TABLES, sizeof *features);
    for (int32_t t = 0; t < TABLES; t++) {
        tables[t] = (struct table_shape){
            .rows = 1, .dim = 1, .rule = RULE_sgd, .features = 1, .lookups = 1, .first_row = t};
        features[t] = (struct feature){.table = t,
                                       .padding_id = -1,
                                       .bags = 1,
                                       .first_bag = t,
                                       .lookups = 1,
                                       .first_lookup = t};
    }
    const struct batch in = {.num_tables = TABLES,
                             .num_features = TABLES,
                             .flat_bags = TABLES,
                             .lookups = TABLES,
                             .tables = tables,
                             .features = features,
                             .grad_elements = TABLES};
    assert_null(kernel_refuses(((const struct kernel_test *)*state)->kernel, &in));
    free(tables);
    free(features);
}

/* A kernel refuses what it cannot do, with a reason. */
static void refuses_rules_it_lacks(void **state) {
    struct kernel k = *((const struct kernel_test *)*state)->kernel;
    struct builder b;
    builder_begin(&b, 1, true);
    builder_feature(&b, builder_table(&b, 4, 4), POOL_SUM, -1);
    builder_finish(&b);
    k.traits |= STEP_PER_LOOKUP;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        builder_rule(&b, 0, (enum rule_kind)rule);
        const char *refused = kernel_refuses(&k, &b.in);
        assert_true(rule_linear((enum rule_kind)rule) ? !refused : refused && *refused);
    }
    builder_rule(&b, 0, RULE_sgd);
    builder_adjust(&b, 0, (const float[RULE_SHARED]){[CLIP_NORM] = 1});
    assert_non_null(strstr(kernel_refuses(&k, &b.in), "step per lookup"));
    builder_free(&b);
}

/* A table of so many rows and columns, and another one of 64 columns, with sums of lookups. */
static void two_tables(struct batch *in, struct table_shape *tables, struct feature *features,
                       int64_t rows, int32_t dim, int64_t lookups, enum pooling pooling) {
    static const int32_t none[1];
    for (int32_t t = 0; t < 2; t++) {
        tables[t] = (struct table_shape){.rows = t ? 4 : rows,
                                         .dim = t ? 64 : dim,
                                         .rule = RULE_sgd,
                                         .features = 1,
                                         .lookups = lookups / 2,
                                         .first_row = t ? rows : 0};
        features[t] = (struct feature){.table = t,
                                       .padding_id = -1,
                                       .pooling = pooling,
                                       .grad_offset = t * dim,
                                       .grad_stride = dim + 64,
                                       .bags = 1,
                                       .first_bag = t,
                                       .lookups = lookups / 2,
                                       .first_lookup = t * (lookups / 2)};
    }
    *in = (struct batch){.num_tables = 2,
                         .num_features = 2,
                         .flat_bags = 2,
                         .lookups = lookups,
                         .tables = tables,
                         .features = features,
                         .winners = pooling == POOL_MAX ? none : NULL,
                         .grad_elements = dim + 64};
}

/* In one line, before anything is allocated. */
static void refuses_sizes(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const int64_t fits = (INT64_C(1) << 32) - 8, is_too_many = fits + 3; /* with 4 more */
    const bool device = k->place == ON_DEVICE;
    struct table_shape tables[2];
    struct feature features[2];
    struct batch in;
    two_tables(&in, tables, features, fits, 64, 8, POOL_SUM);
    assert_null(kernel_refuses(k, &in));
    two_tables(&in, tables, features, is_too_many, 64, 8, POOL_SUM);
    const char *why = kernel_refuses(k, &in);
    if (device && k->operation == OP_STEP && !(k->traits & STEP_PER_LOOKUP))
        assert_string_equal(why, "2^32 rows or more");
    two_tables(&in, tables, features, 100, 64, INT64_C(1) << 31, POOL_SUM);
    why = kernel_refuses(k, &in);
    if (device && k->operation == OP_STEP && k->traits & DETERMINISTIC)
        assert_string_equal(why, "2^31 lookups or more"); /* each lookup has an entry */
}

static void says_whose_code_runs(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const struct {
        int32_t dim;
        enum pooling pooling;
        const char *variant, *of_fused;
    } cases[] = {
        {128, POOL_SUM, "lean", "lean"},
        {256, POOL_MEAN, "lean", "lean"},
        {260, POOL_SUM, "lean+general", "lean+general"},
        {63, POOL_SUM, "lean+general", "general"}, /* gradient rows of the other begin anywhere */
        {64, POOL_MAX, "lean", "general"}};
    struct table_shape tables[2];
    struct feature features[2];
    struct batch in;
    if (!k->variant) skip();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        two_tables(&in, tables, features, 100, cases[c].dim, 8, cases[c].pooling);
        const bool fused = strncmp(k->name, "cuda_fused", 10) == 0;
        assert_string_equal(k->variant(&in), fused ? cases[c].of_fused : cases[c].variant);
    }
}

TESTS(registry) {
    add_test("rules are described", rules_are_described, NULL, NULL);
    add_test("found by name", found_by_name, NULL, NULL);
    add_kernel_tests("65535 tables", many_tables, NULL);
    add_kernel_tests("refuses too many lookups and rows", refuses_sizes, NULL);
    add_kernel_tests("says whose code runs", says_whose_code_runs, NULL);
    add_kernel_tests("refuses rules that it lacks", refuses_rules_it_lacks, NULL);
    return run_listed("registry");
}
